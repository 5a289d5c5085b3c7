//! A gateway and an API server in memory that carry out decisions, with answers that may be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::super::*;

/// Calls that change something at the gateway, and the gateway's own state.
#[derive(Debug, Default)]
pub(super) struct Gateway {
    pub(super) load_balancers: BTreeMap<LbName, Remote>,
    pub(super) changes: Vec<String>,
    made: u32,
}

/// Both sides.
pub(super) struct Lab {
    pub(super) world: World,
    pub(super) gateway: Gateway,
}

pub(super) fn name(name: &str) -> ServiceName {
    ServiceName::new("shop", name)
}

pub(super) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn service() -> Service {
    let port = Port { name: "".into(), port: 80, protocol: Protocol::Tcp, target: TargetPort::Number(8080) };
    Service {
        uid: "u1".into(),
        standing: Standing::Ours,
        is_held: false,
        is_reported: false,
        ports: vec![port],
        requested: Requested::Any,
        limits: Limits::default(),
    }
}

pub(super) fn slice(endpoints: &[(&str, &str)]) -> Slice {
    let endpoint = |(address_, node): &(&str, &str)| SliceEndpoint {
        addresses: vec![address(address_)],
        node: Some((*node).into()),
        serves: true,
    };
    Slice {
        ports: vec![SlicePort { name: "".into(), port: 8080, protocol: Protocol::Tcp }],
        endpoints: endpoints.iter().map(endpoint).collect(),
    }
}

impl Lab {
    pub(super) fn new() -> Self {
        let world = World {
            cluster: ClusterKey::new("cluster-1"),
            group: "default".into(),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            nodes: (1..=3u8).map(|n| (format!("n{n}").into(), vec![IpAddr::from([10, 0, 0, n])])).collect(),
            seen: BTreeMap::new(),
        };
        Self { world, gateway: Gateway::default() }
    }

    /// Carries out the next step of a Service; false if there is none. The answer of a call may be lost.
    pub(super) fn step(&mut self, name: &ServiceName, is_lost: bool) -> bool {
        let Decision { call, finalizer, shown } = decide(&self.world, name);
        if let Some(change) = finalizer
            && let Some(service) = self.world.services.get_mut(name)
        {
            service.is_held = change == FinalizerChange::Add;
            if !service.is_held && service.standing == Standing::Deleting {
                self.world.services.remove(name);
            }
            return true;
        }
        if shown == Shown::Nothing {
            self.world.services.get_mut(name).unwrap().is_reported = false;
        }
        let Some(call) = call else { return false };
        let lb = self.world.cluster.name(name);
        let said = self.gateway.answer(&lb, &call, self.world.seen.get(&lb));
        match said {
            Some(seen) if !is_lost => drop(self.world.seen.insert(lb, seen)),
            _ => drop(self.world.seen.remove(&lb)),
        }
        true
    }

    /// Carries out everything; the number of changing calls that it took.
    pub(super) fn settle(&mut self, name: &ServiceName) -> usize {
        let before = self.gateway.changes.len();
        for _ in 0..1000 {
            if !self.step(name, false) {
                return self.gateway.changes.len() - before;
            }
        }
        panic!("it never settles: {:?}", self.gateway.changes);
    }

    pub(super) fn remote(&self, name: &ServiceName) -> Option<&Remote> {
        self.gateway.load_balancers.get(&self.world.cluster.name(name))
    }
}

impl Gateway {
    /// What it says; none if what it says has to be asked for.
    fn answer(&mut self, lb: &LbName, call: &Call, known: Option<&Seen>) -> Option<Seen> {
        if !matches!(call, Call::Read | Call::ReadLater | Call::ReadEndpoints) {
            self.changes.push(format!("{call:?}"));
        }
        let without_endpoints = |remote: &Remote| Seen::Present(Remote { endpoints: None, ..remote.clone() });
        match call {
            Call::Read | Call::ReadLater => Some(self.load_balancers.get(lb).map_or(Seen::Absent, without_endpoints)),
            Call::Create { ports, address } => {
                assert!(!self.load_balancers.contains_key(lb), "it is there already");
                self.made += 1;
                let given =
                    address.unwrap_or_else(|| IpAddr::from([192, 0, 2, u8::try_from(self.made % 250).unwrap()]));
                let remote = Remote {
                    id: format!("id-{}", self.made).into(),
                    group: "default".into(),
                    address: Some(given),
                    ports: ports.clone(),
                    endpoints: Some(NodeEndpoints::new()),
                };
                self.load_balancers.insert(lb.clone(), remote.clone());
                Some(without_endpoints(&remote))
            }
            Call::Update { ports } => {
                let remote = self.load_balancers.get_mut(lb)?;
                remote.ports.clone_from(ports);
                Some(without_endpoints(remote))
            }
            Call::ReadEndpoints => Some(self.load_balancers.get(lb).cloned().map_or(Seen::Absent, Seen::Present)),
            Call::PutEndpoints { node, endpoints } => {
                let remote = self.load_balancers.get_mut(lb)?;
                let nodes = remote.endpoints.get_or_insert_default();
                let elsewhere: BTreeSet<_> = nodes
                    .iter()
                    .filter(|(other, _)| *other != node)
                    .flat_map(|(_, endpoints)| endpoints.iter().map(Endpoint::identity))
                    .collect();
                let taken = endpoints.iter().find(|one| elsewhere.contains(&one.identity()));
                assert!(taken.is_none(), "{taken:?} is on another node");
                nodes.insert(*node, endpoints.clone());
                nodes.retain(|_, endpoints| !endpoints.is_empty());
                let Some(Seen::Present(known)) = known else { return None };
                let mut known = known.clone();
                known.endpoints.get_or_insert_default().insert(*node, endpoints.clone());
                known.endpoints.get_or_insert_default().retain(|_, endpoints| !endpoints.is_empty());
                Some(Seen::Present(known))
            }
            Call::Delete => {
                self.load_balancers.remove(lb);
                Some(Seen::Absent)
            }
        }
    }
}
