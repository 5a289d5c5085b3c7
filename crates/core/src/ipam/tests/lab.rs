//! A cluster on the small cloud, and an executor that does what is due.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::cloud::ModelCloud;
use crate::hash::SplitMix;
use crate::ipam::*;

/// How an action ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The process ends before anything happened.
    CrashBefore,
    /// A claim was written by half, or a call was made and its answer never recorded.
    CrashBetween,
    /// The process ends right after.
    CrashAfter,
}

pub(super) struct Lab {
    pub(super) world: World,
    pub(super) journal: Journal,
    pub(super) calls: Calls,
    pub(super) cloud: ModelCloud,
    pub(super) random: SplitMix,
    /// Milliseconds by which a describe is late, at most.
    pub(super) lag: u64,
    /// Errors that the next calls give.
    pub(super) faults: Vec<CloudError>,
    /// Calls on their way to the cloud whose sender gave up.
    pub(super) delayed: Vec<(Moment, CallKind, InterfaceId, Ipv4Addr)>,
    pub(super) log: Vec<String>,
    pub(super) executed: usize,
    pub(super) crashed: usize,
}

impl Lab {
    /// A cluster with so many nodes in each zone; zone `a` has the subnet 10.0.0.0/24, and so on.
    pub(super) fn new(nodes: &[usize], limit: u16) -> Self {
        let mut lab = Self {
            world: World { now: 1_000_000, seed: 7, ..World::default() },
            journal: Journal::default(),
            calls: Calls::default(),
            cloud: ModelCloud::default(),
            random: SplitMix::new(7),
            lag: 0,
            faults: Vec::new(),
            delayed: Vec::new(),
            log: Vec::new(),
            executed: 0,
            crashed: 0,
        };
        for (number, (zone, count)) in ["a", "b", "c", "d"].into_iter().zip(nodes).enumerate() {
            let cidr = format!("10.0.{number}.0/24").parse().unwrap();
            lab.cloud.subnets.insert(format!("subnet-{zone}").into(), (zone.into(), cidr));
            for node in 1..=*count {
                lab.add_node(&format!("{zone}{node}"), &format!("subnet-{zone}"), limit);
            }
        }
        lab.describe();
        lab
    }

    pub(super) fn add_node(&mut self, name: &str, subnet: &str, limit: u16) {
        self.cloud.add_instance(&format!("i-{name}"), subnet, limit, self.world.now);
        let instance: InstanceId = format!("i-{name}").into();
        let zone = Some(self.cloud.subnets[subnet].0.clone());
        let node = Node { compute: true, zone, instance: Some(instance), ..Node::default() };
        self.world.nodes.insert(name.into(), node);
        self.world.host_subnets.insert(name.into(), HostSubnet::default());
    }

    /// A namespace that opted in, with its NetNamespace.
    pub(super) fn add_namespace(&mut self, name: &str, list: Option<&str>) {
        let number = u32::try_from(self.random.next_u64() % 16_000_000).unwrap();
        let uid = format!("uid-{name}-{number}").into();
        let namespace = Namespace { uid, opted_in: true, egressips: list.map(Arc::from), ..Namespace::default() };
        self.world.namespaces.insert(name.into(), namespace);
        self.world.net_namespaces.insert(name.into(), NetNamespace { netid: number, ..NetNamespace::default() });
    }

    pub(super) fn namespace(&mut self, name: &str) -> &mut Namespace {
        self.world.namespaces.get_mut(name).unwrap()
    }

    pub(super) fn plan(&self) -> Plan {
        plan(&self.world, &self.journal, &self.calls)
    }

    pub(super) fn describe(&mut self) {
        self.world.now += 1;
        self.deliver();
        let now = self.world.now;
        let (lag, random) = (self.lag, &mut self.random);
        self.world.cloud = Some(self.cloud.describe(now, || random.next_u64() % (lag + 1)));
        self.world.now += 1;
    }

    /// Calls that were on their way arrive.
    fn deliver(&mut self) {
        let now = self.world.now;
        for (at, kind, interface, address) in self.delayed.extract_if(.., |call| call.0 <= now).collect::<Vec<_>>() {
            drop(self.cloud.call(kind, &interface, address, at));
        }
    }

    pub(super) fn crash(&mut self) {
        self.crashed += 1;
        self.calls = Calls::default();
        self.world.cloud = None;
    }

    /// Executes one action of a plan that was made for these objects; true if the process survives.
    pub(super) fn execute(&mut self, action: &Action, seen: (&World, &Journal), outcome: Outcome) -> bool {
        self.executed += 1;
        self.world.now += 1 + self.random.next_u64() % 50;
        self.deliver();
        if outcome == Outcome::CrashBefore {
            self.crash();
            return false;
        }
        match action {
            Action::CreateClaim(write) => {
                self.journal.claims.entry(write.address).or_insert_with(|| write.claim.clone());
            }
            Action::UpdateClaim(write) | Action::ConfirmClaim(write) => self.write_claim(write, seen.1, outcome),
            Action::DeleteClaim(address) => {
                if self.journal.claims.get(address) == seen.1.claims.get(address) {
                    self.journal.claims.remove(address);
                }
            }
            Action::Call(call) => {
                for address in &call.addresses {
                    self.call(call, *address, outcome);
                }
            }
            Action::SetHostSubnet { name, egress_ips, annotations } => {
                let before = seen.0.host_subnets.get(name);
                if let Some(found) = self.world.host_subnets.get_mut(name).filter(|found| Some(&**found) == before) {
                    found.egress_ips.clone_from(egress_ips);
                    found.annotations.clone_from(annotations);
                }
            }
            Action::SetNetNamespace { name, egress_ips, annotation } => {
                let before = seen.0.net_namespaces.get(name);
                if let Some(found) = self.world.net_namespaces.get_mut(name).filter(|found| Some(&**found) == before) {
                    found.egress_ips.clone_from(egress_ips);
                    found.annotation.clone_from(annotation);
                }
            }
            Action::AnnotateNamespace { name, egressips, status } => {
                let before = seen.0.namespaces.get(name);
                if let Some(found) = self.world.namespaces.get_mut(name).filter(|found| Some(&**found) == before) {
                    found.status.clone_from(status);
                    match egressips {
                        Some(ListAnnotation::Write(list)) => {
                            (found.egressips, found.modified) = (Some(list.clone()), true);
                        }
                        Some(ListAnnotation::Remove) => (found.egressips, found.modified) = (None, false),
                        None => {}
                    }
                }
            }
        }
        if outcome == Outcome::Done {
            return true;
        }
        self.crash();
        false
    }

    fn write_claim(&mut self, write: &ClaimWrite, seen: &Journal, outcome: Outcome) {
        let before = seen.claims.get(&write.address);
        if let Some(found) = self.journal.claims.get_mut(&write.address).filter(|found| Some(&**found) == before) {
            found.spec = write.claim.spec.clone();
            if outcome != Outcome::CrashBetween {
                found.status = write.claim.status.clone();
            }
        }
    }

    fn call(&mut self, call: &CloudCall, address: Ipv4Addr, outcome: Outcome) {
        self.calls.begin(&call.interface);
        let fault = self.faults.pop();
        self.world.now += self.random.next_u64() % 200;
        let now = self.world.now;
        let result = match fault {
            Some(CloudError::Transient) if self.random.next_u64().is_multiple_of(2) => {
                let at = now + self.random.next_u64() % 2_000;
                self.delayed.push((at, call.kind, call.interface.clone(), address));
                Err(CloudError::Transient)
            }
            Some(CloudError::Transient) => {
                drop(self.cloud.call(call.kind, &call.interface, address, now));
                Err(CloudError::Transient)
            }
            Some(error) => Err(error),
            None => self.cloud.call(call.kind, &call.interface, address, now),
        };
        self.world.now += 1;
        self.calls.end(&call.interface, self.world.now);
        match result {
            Ok(()) => self.calls.succeeded(call.kind, &call.interface, address, self.world.now),
            Err(error) if outcome == Outcome::Done => {
                if let Some(claim) = self.journal.claims.get_mut(&address) {
                    *claim = claim.failed(error, self.world.now);
                }
            }
            Err(_) => {}
        }
    }

    /// Executes everything that is due, in order, until nothing is.
    pub(super) fn settle(&mut self) -> Plan {
        for _ in 0..3_000 {
            self.describe();
            let plan = self.plan();
            if let Some(action) = plan.actions.first() {
                let seen = (self.world.clone(), self.journal.clone());
                self.log.push(format!("{action:?}"));
                self.execute(action, (&seen.0, &seen.1), Outcome::Done);
            } else if let Some(wake) = plan.wake {
                self.world.now = wake;
            } else if plan.awaiting.is_empty() {
                return plan;
            } else {
                self.world.now += 1_000;
            }
        }
        let last: Vec<&String> = self.log.iter().rev().take(12).collect();
        panic!("does not settle: {last:#?}");
    }

    /// Addresses of a namespace with their nodes, of those in service.
    pub(super) fn served(&self, name: &str) -> Vec<(Ipv4Addr, NodeName)> {
        let claims = self
            .journal
            .claims
            .iter()
            .filter(|(_, claim)| &*claim.spec.owner.name == name && claim.status.state == State::Published);
        claims.map(|(address, claim)| (*address, claim.spec.node.clone())).collect()
    }

    /// A settled cluster with one namespace, and an empty log.
    pub(super) fn serving(nodes: &[usize], list: Option<&str>) -> Self {
        let mut lab = Self::new(nodes, 10);
        lab.add_namespace("shop", list);
        lab.settle();
        assert!(!lab.served("shop").is_empty());
        lab.log.clear();
        lab
    }

    /// The calls in the log.
    pub(super) fn calls_made(&self) -> Vec<&String> {
        self.log.iter().filter(|action| action.starts_with("Call(")).collect()
    }

    /// Reasons of a plan.
    pub(super) fn reasons(plan: &Plan) -> Vec<Reason> {
        plan.unmet.iter().map(|unmet| unmet.reason).collect()
    }

    pub(super) fn addresses(&self, name: &str) -> BTreeSet<Ipv4Addr> {
        self.served(name).into_iter().map(|(address, _)| address).collect()
    }

    pub(super) fn node(&mut self, name: &str) -> &mut Node {
        self.world.nodes.get_mut(name).unwrap()
    }

    pub(super) fn host_subnet(&mut self, name: &str) -> &mut HostSubnet {
        self.world.host_subnets.get_mut(name).unwrap()
    }

    pub(super) fn net_namespace(&mut self, name: &str) -> &mut NetNamespace {
        self.world.net_namespaces.get_mut(name).unwrap()
    }

    pub(super) fn zones(&self, name: &str) -> Vec<Zone> {
        self.served(name).iter().map(|(address, _)| self.journal.claims[address].spec.zone.clone()).collect()
    }
}
