//! A model of an API server, and operators that carry out plans on it: each write is locked by the version of its object,
//! and each operator sees every kind as it was some time ago, but never older than its own last write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::super::reserve::Parent;
use super::super::types::{Egw, Tunnel};
use super::super::unit::{Report, State};
use super::super::{EndpointPlans, FinalizerChange, ObjectName, Plan, World, namespace_of, plan};
use super::build::{endpoint, load_balancer, name, world};

/// Versions of objects, by kind and name.
type Versions = BTreeMap<String, u64>;

#[derive(Clone)]
struct Revision {
    world: World,
    versions: Versions,
}

/// Kinds that are watched one by one.
const KINDS: usize = 4;

struct Server {
    states: Vec<Revision>,
    clock: u64,
}

/// Which state each kind is seen in.
#[derive(Clone, Copy, Default)]
struct View([usize; KINDS]);

struct Operator {
    view: View,
    seen: Revision,
    quarantine: super::super::Quarantine,
}

impl Server {
    fn new(world: World) -> Self {
        Self { states: vec![Revision { world, versions: Versions::new() }], clock: 0 }
    }

    fn last(&self) -> &Revision {
        self.states.last().expect("there is a first state")
    }

    /// Writes an object unless somebody else did since it was seen.
    fn write(&mut self, key: &str, seen: &Versions, change: impl FnOnce(&mut World)) -> bool {
        let current = self.last();
        if current.versions.get(key) != seen.get(key) {
            return false;
        }
        let mut next = current.clone();
        change(&mut next.world);
        *next.versions.entry(key.to_owned()).or_default() += 1;
        self.clock += 1;
        self.states.push(next);
        self.check();
        true
    }

    /// What must hold at any moment.
    fn check(&self) {
        let world = &self.last().world;
        let keys: Vec<u16> = world.accounts.values().filter_map(|account| account.key).collect();
        assert_eq!(keys.len(), keys.iter().collect::<BTreeSet<_>>().len(), "account keys {keys:?}");
        assert!(!keys.contains(&0));
        let live = world.load_balancers.values();
        let keys: Vec<u32> = live.clone().filter_map(|object| object.key).collect();
        assert_eq!(keys.len(), keys.iter().collect::<BTreeSet<_>>().len(), "keys {keys:?}");
        let addresses: Vec<_> = live.clone().filter_map(|object| object.address).collect();
        assert_eq!(addresses.len(), addresses.iter().collect::<BTreeSet<_>>().len(), "addresses {addresses:?}");
        let tunnels: Vec<u32> = live.flat_map(|object| object.tunnels.values()).map(|tunnel| tunnel.id).collect();
        assert_eq!(tunnels.len(), tunnels.iter().collect::<BTreeSet<_>>().len(), "tunnels {tunnels:?}");
    }
}

impl Operator {
    fn new(server: &Server) -> Self {
        let mut operator = Self {
            view: View::default(),
            seen: server.last().clone(),
            quarantine: super::super::Quarantine::default(),
        };
        operator.look(server, [usize::MAX; KINDS]);
        operator
    }

    /// Sees each kind as it was at most so many writes ago.
    fn look(&mut self, server: &Server, lag: [usize; KINDS]) {
        let newest = server.states.len() - 1;
        for (position, lag) in self.view.0.iter_mut().zip(lag) {
            *position = newest.saturating_sub(lag.min(newest)).max(*position);
            if lag == usize::MAX {
                *position = newest;
            }
        }
        let [egw, accounts, balancers, claims] = self.view.0.map(|position| &server.states[position]);
        let mut world = server.last().world.clone();
        world.egw.clone_from(&egw.world.egw);
        world.accounts.clone_from(&accounts.world.accounts);
        world.load_balancers.clone_from(&balancers.world.load_balancers);
        world.endpoints.clone_from(&balancers.world.endpoints);
        world.claims.clone_from(&claims.world.claims);
        world.quarantine = self.quarantine.clone();
        world.now = 1_000_000 + server.clock * 10;
        let mut versions = Versions::new();
        for (prefix, state) in [("egw", egw), ("account", accounts), ("lb", balancers), ("claim", claims)] {
            versions
                .extend(state.versions.iter().filter(|(key, _)| key.starts_with(prefix)).map(|(k, v)| (k.clone(), *v)));
        }
        // every Envoy that is wanted runs at once
        let units = plan(&world).units;
        let report = |unit: &Arc<_>| Report {
            answered: Some(Arc::clone(unit)),
            rejected: BTreeMap::new(),
            state: State::Running,
        };
        world.reports = Some(units.iter().map(|(id, unit)| (id.clone(), report(unit))).collect());
        self.seen = Revision { world, versions };
    }

    /// Plans, and carries out at most so many writes.
    fn act(&mut self, server: &mut Server, most: usize) -> usize {
        let planned = plan(&self.seen.world);
        let length = self.seen.world.settings.key_quarantine;
        self.quarantine.follow(self.seen.world.now, length, planned.live.clone());
        let mut written = 0;
        for write in writes(&self.seen, &planned) {
            if written == most {
                break;
            }
            let Write { kind, key, change } = write;
            if let Some(proof) = change.proof.as_ref()
                && !proof(&server.last().world)
            {
                continue;
            }
            written += 1;
            if server.write(&key, &self.seen.versions, change.apply) {
                // read your writes
                self.view.0[kind] = server.states.len() - 1;
            }
        }
        written
    }
}

struct Write {
    kind: usize,
    key: String,
    change: Change,
}

/// Whether a write may be made, by what the server has.
type Proof = Box<dyn Fn(&World) -> bool>;

struct Change {
    /// Asks the server itself whether the write may be made.
    proof: Option<Proof>,
    apply: Box<dyn FnOnce(&mut World)>,
}

fn change(apply: impl FnOnce(&mut World) + 'static) -> Change {
    Change { proof: None, apply: Box::new(apply) }
}

/// What a plan has to write.
fn writes(seen: &Revision, planned: &Plan) -> Vec<Write> {
    let mut writes = Vec::new();
    let world = &seen.world;
    let egw = Egw { accounts: planned.egw.accounts.clone(), tunnels: planned.egw.tunnels.clone() };
    if world.egw.as_ref() != Some(&egw) {
        writes.push(Write { kind: 0, key: "egw".into(), change: change(move |world| world.egw = Some(egw)) });
    }
    for (name, account) in &planned.accounts {
        let before = &world.accounts[name];
        let services: Parent = account.services.clone();
        let (key, is_added) = (account.key, account.finalizer == FinalizerChange::Add);
        if services != before.services || (key.is_some() && before.key.is_none()) || is_added {
            let object = Arc::clone(name);
            let write = change(move |world| {
                let account = world.accounts.get_mut(&object).expect("its version was checked");
                account.services = services;
                account.key = account.key.or(key);
                account.identity.has_finalizer = true;
            });
            writes.push(Write { kind: 1, key: format!("account/{name}"), change: write });
        }
    }
    claims(seen, planned, &mut writes);
    balancers(seen, planned, &mut writes);
    writes
}

fn claims(seen: &Revision, planned: &Plan, writes: &mut Vec<Write>) {
    let world = &seen.world;
    for address in world.claims.keys().chain(planned.claims.keys()).collect::<BTreeSet<_>>() {
        let (before, after) = (world.claims.get(address), planned.claims.get(address).cloned());
        if before == after.as_ref() {
            continue;
        }
        let lost: Vec<(Arc<str>, ObjectName)> = before
            .iter()
            .flat_map(|claim| &claim.holders)
            .filter(|(uid, _)| after.as_ref().is_none_or(|after| !after.holders.contains_key(*uid)))
            .map(|(uid, holding)| (Arc::clone(uid), ObjectName::new(&namespace_of(&holding.account), &holding.name)))
            .collect();
        let address = *address;
        let proof = move |world: &World| {
            lost.iter().all(|(uid, name)| {
                world.load_balancers.get(name).is_none_or(|object| {
                    object.identity.uid != *uid || object.identity.is_terminating() || object.address != Some(address)
                })
            })
        };
        let apply = move |world: &mut World| match after {
            Some(claim) => drop(world.claims.insert(address, claim)),
            None => drop(world.claims.remove(&address)),
        };
        let change = Change { proof: Some(Box::new(proof)), apply: Box::new(apply) };
        writes.push(Write { kind: 3, key: format!("claim/{address}"), change });
    }
}

fn balancers(seen: &Revision, planned: &Plan, writes: &mut Vec<Write>) {
    for (name, balancer) in &planned.load_balancers {
        let before = &seen.world.load_balancers[name];
        let key = format!("lb/{name}");
        let object = name.clone();
        if balancer.is_finished {
            let apply = change(move |world| drop(world.load_balancers.remove(&object)));
            writes.push(Write { kind: 2, key, change: apply });
        } else if let Some(completion) = balancer.completion {
            let apply = change(move |world| {
                let balancer = world.load_balancers.get_mut(&object).expect("its version was checked");
                assert!(balancer.key.is_none_or(|key| key == completion.key), "a key is never changed");
                balancer.key = Some(completion.key);
                balancer.address = balancer.address.or(completion.address);
                balancer.identity.has_finalizer = true;
            });
            writes.push(Write { kind: 2, key, change: apply });
        } else if before.tunnels != balancer.tunnels {
            let tunnels: BTreeMap<_, Tunnel> = balancer.tunnels.clone();
            let apply = change(move |world| {
                world.load_balancers.get_mut(&object).expect("its version was checked").tunnels = tunnels;
            });
            writes.push(Write { kind: 2, key, change: apply });
        }
    }
    let all = planned.endpoints.values().flat_map(EndpointPlans::iter);
    let gone: Vec<Arc<str>> = all.filter(|(_, planned)| planned.is_deleted).map(|(name, _)| Arc::clone(name)).collect();
    for name in gone {
        let apply = change(move |world| {
            for endpoints in world.endpoints.values_mut() {
                Arc::make_mut(endpoints).remove(&name);
            }
            world.endpoints.retain(|_, endpoints| !endpoints.is_empty());
        });
        writes.push(Write { kind: 2, key: "lb-endpoints".into(), change: apply });
    }
}

#[derive(Debug, Clone)]
enum Event {
    Create(u8),
    Delete(u8),
    Endpoint(u8, u8),
    Act { operator: usize, lag: [usize; KINDS], most: usize },
    Restart(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => (0u8..12).prop_map(Event::Create),
        1 => (0u8..12).prop_map(Event::Delete),
        2 => (0u8..12, 0u8..4).prop_map(|(balancer, node)| Event::Endpoint(balancer, node)),
        12 => (0usize..3, prop::array::uniform4(0usize..12), 1usize..8)
            .prop_map(|(operator, lag, most)| Event::Act { operator, lag, most }),
        1 => (0usize..3).prop_map(Event::Restart),
    ];
    prop::collection::vec(event, 1..120)
}

fn balancer_name(number: u8) -> ObjectName {
    name(["a", "b"][usize::from(number % 2)], &format!("lb{number}"))
}

fn happens(server: &mut Server, operators: &mut [Operator], event: &Event) {
    let fresh = server.last().versions.clone();
    match event {
        Event::Create(number) => {
            let object = balancer_name(*number);
            if !server.last().world.load_balancers.contains_key(&object) {
                let uid = format!("{number}-{}", server.states.len());
                let created = i64::try_from(server.states.len()).unwrap();
                server.write(&format!("lb/{object}"), &fresh, |world| {
                    world.load_balancers.insert(object.clone(), load_balancer(&uid, created));
                });
            }
        }
        Event::Delete(number) => {
            let object = balancer_name(*number);
            let now = 1_000_000 + server.clock * 10;
            server.write(&format!("lb/{object}"), &fresh, |world| {
                let Some(balancer) = world.load_balancers.get_mut(&object) else { return };
                if balancer.identity.has_finalizer {
                    balancer.identity.deleted.get_or_insert(now);
                } else {
                    world.load_balancers.remove(&object);
                }
            });
        }
        Event::Endpoint(number, node) => {
            let object = balancer_name(*number);
            let uid = format!("e{number}-{node}");
            server.write("lb-endpoints", &fresh, |world| {
                let endpoints = world.endpoints.entry(object).or_default();
                Arc::make_mut(endpoints).insert(uid.as_str().into(), endpoint(&uid, number * 10 + node, *node));
            });
        }
        Event::Act { operator, lag, most } => {
            operators[*operator].look(server, *lag);
            operators[*operator].act(server, *most);
        }
        Event::Restart(operator) => operators[*operator] = Operator::new(server),
    }
}

/// One operator goes on until nothing is left to write.
fn settle(server: &mut Server) {
    let mut operator = Operator::new(server);
    let mut quiet = 0;
    for _ in 0..2000 {
        operator.look(server, [usize::MAX; KINDS]);
        // time passes, so that quarantines end
        server.clock += 1000;
        quiet = if operator.act(server, usize::MAX) == 0 { quiet + 1 } else { 0 };
        if quiet > 12 {
            return;
        }
    }
    panic!("it never settles");
}

fn test_world(pool: &str) -> World {
    let mut world = world(pool, &["a", "b"]);
    world.settings.key_quarantine = 1000;
    world.settings.address_quarantine = 1000;
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn operators_with_old_caches_give_nothing_twice_and_leak_nothing(events in events()) {
        let mut server = Server::new(test_world("192.0.2.0/28"));
        let mut operators: Vec<Operator> = (0..3).map(|_| Operator::new(&server)).collect();
        for event in &events {
            happens(&mut server, &mut operators, event);
        }
        settle(&mut server);
        let world = server.last().world.clone();
        for (name, object) in &world.load_balancers {
            prop_assert!(object.key.is_some() && object.address.is_some(), "{name} has nothing: {object:?}");
            let nodes = world.endpoints.get(name).map_or(0, |endpoints| {
                endpoints.iter().filter_map(|(_, one)| one.spec.as_ref().ok()).map(|spec| spec.node).collect::<BTreeSet<_>>().len()
            });
            prop_assert_eq!(object.tunnels.len(), nodes, "{}: a tunnel for each node", name);
        }
        let held: BTreeSet<_> = world.load_balancers.values().filter_map(|object| object.address).collect();
        let claimed: BTreeSet<_> = world.claims.keys().copied().collect();
        prop_assert_eq!(&held, &claimed, "each address is claimed, and no other");
        for (number, _) in world.load_balancers.iter().enumerate() {
            let now = 1_000_000 + server.clock * 10;
            let fresh = server.last().versions.clone();
            let name = world.load_balancers.keys().nth(number).unwrap();
            server.write(&format!("lb/{name}"), &fresh, |world| {
                world.load_balancers.get_mut(name).unwrap().identity.deleted = Some(now);
            });
        }
        settle(&mut server);
        let world = &server.last().world;
        prop_assert!(world.load_balancers.is_empty() && world.claims.is_empty(), "{:?}", world.claims);
        let pending = world.accounts.values().map(|account| account.services.pending.len()).sum::<usize>();
        prop_assert_eq!(pending, 0, "no reservation is left");
    }
}
