//! A cluster with an OVN-Kubernetes that never chooses the node which the planner would.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::lab::{Lab, Outcome};
use crate::ipam::ovn::{EgressIp, Ovn, plan};
use crate::ipam::{
    Action, Assigned, Namespace, NodeName, OwnerKind, Plan, PrivateIp, PrivateIpChange, PrivateIpStatus, Reason,
};

struct OvnLab {
    lab: Lab,
    ovn: Ovn,
}

impl OvnLab {
    fn new(nodes: &[usize], list: Option<&str>) -> Self {
        let mut lab = Lab::new(nodes, 10);
        lab.add_namespace("shop", list);
        lab.world.net_namespaces.clear();
        lab.world.host_subnets.clear();
        Self { lab, ovn: Ovn::default() }
    }

    fn plan(&self) -> Plan {
        plan(&self.lab.world, &self.ovn, &self.lab.journal, &self.lab.calls)
    }

    /// Executes what is due until nothing is, while OVN-Kubernetes does its part.
    fn settle(&mut self) -> Plan {
        for _ in 0..500 {
            self.assign();
            self.lab.describe();
            let plan = self.plan();
            for node in plan.nodes.keys() {
                self.lab.node(node).egress_assignable = true;
            }
            let Some(action) = plan.actions.first() else {
                let Some(wake) = plan.wake else { return plan };
                self.lab.world.now = wake;
                continue;
            };
            self.lab.log.push(format!("{action:?}"));
            if let Action::SetNetNamespace { name, egress_ips, .. } = action {
                let before = self.ovn.egress_ips.remove(name).unwrap_or_default();
                if !egress_ips.is_empty() {
                    let egress_ip = EgressIp { addresses: egress_ips.clone(), is_intact: true, ..before };
                    self.ovn.egress_ips.insert(name.clone(), egress_ip);
                }
                continue;
            }
            let seen = (self.lab.world.clone(), self.lab.journal.clone());
            self.lab.execute(action, (&seen.0, &seen.1), Outcome::Done);
        }
        panic!("does not settle: {:#?}", self.lab.log.iter().rev().take(12).collect::<Vec<_>>());
    }

    /// OVN-Kubernetes takes the last node of a subnet that is ready and has no address of the EgressIP.
    fn assign(&mut self) {
        let (world, cloud) = (&self.lab.world, &self.lab.cloud);
        for egress_ip in self.ovn.egress_ips.values_mut() {
            let addresses = egress_ip.addresses.clone();
            let is_ready = |node: &NodeName| {
                world.nodes.get(node).is_some_and(|node| node.not_ready_since.is_none() && node.egress_assignable)
            };
            egress_ip.items.retain(|address, node| addresses.contains(address) && is_ready(node));
            for address in addresses {
                let holds = |node: &NodeName| {
                    let instance = world.nodes[node].instance.as_ref().and_then(|id| cloud.instances.get(id));
                    instance.is_some_and(|instance| cloud.subnets[&instance.subnet].1.contains(&address))
                };
                let is_free = |node: &&NodeName| {
                    is_ready(node) && holds(node) && !egress_ip.items.values().any(|one| one == *node)
                };
                let chosen = world.nodes.keys().rev().find(is_free).cloned();
                if let (false, Some(node)) = (egress_ip.items.contains_key(&address), chosen) {
                    egress_ip.items.insert(address, node);
                }
            }
        }
        let items = self.ovn.egress_ips.values().flat_map(|egress_ip| egress_ip.items.clone());
        let private_ips = items.map(|(address, node)| {
            let status = PrivateIpStatus { node: Some(node.clone()), assigned: Assigned::Yes };
            (address, PrivateIp { wanted: node, status, ..PrivateIp::default() })
        });
        self.ovn.private_ips = private_ips.collect();
    }

    fn addresses(&self) -> BTreeSet<Ipv4Addr> {
        self.lab.addresses("shop")
    }

    fn namespace(&mut self) -> &mut Namespace {
        self.lab.namespace("shop")
    }
}

#[test]
fn claims_follow_the_nodes_that_were_chosen() {
    let mut cluster = OvnLab::new(&[3, 2], None);
    cluster.settle();
    let served = cluster.lab.served("shop");
    let nodes: BTreeSet<&str> = served.iter().map(|(_, node)| &**node).collect();
    assert_eq!(nodes, BTreeSet::from(["a3", "b2"]));
    assert_eq!(cluster.ovn.egress_ips["shop"].addresses, cluster.addresses());
    assert!(cluster.namespace().modified && cluster.lab.calls_made().is_empty());
    // the node is lost, and another one is chosen
    let now = cluster.lab.world.now;
    cluster.lab.node("a3").not_ready_since = Some(now);
    cluster.settle();
    assert!(cluster.lab.served("shop").iter().any(|(_, node)| &**node == "a2"), "{:#?}", cluster.lab.journal);
    cluster.lab.world.nodes.remove("b2");
    cluster.settle();
    assert!(cluster.lab.served("shop").iter().any(|(_, node)| &**node == "b1"), "{:#?}", cluster.lab.journal);
}

#[test]
fn an_address_cools_down_once_its_private_address_is_gone() {
    let mut cluster = OvnLab::new(&[1], None);
    cluster.settle();
    cluster.namespace().opted_in = false;
    cluster.settle();
    assert!(cluster.ovn.egress_ips.is_empty() && cluster.lab.journal.claims.is_empty());
    let steps: Vec<&String> = cluster.lab.log.iter().filter(|action| action.contains("Gone")).collect();
    assert_eq!(steps.len(), 1);
}

#[test]
fn an_address_without_a_node_is_reported() {
    let mut cluster = OvnLab::new(&[1], None);
    cluster.settle();
    let now = cluster.lab.world.now;
    cluster.lab.node("a1").not_ready_since = Some(now);
    for _ in 0..10 {
        cluster.assign();
        cluster.lab.describe();
        let plan = cluster.plan();
        let seen = (cluster.lab.world.clone(), cluster.lab.journal.clone());
        for action in &plan.actions {
            cluster.lab.execute(action, (&seen.0, &seen.1), Outcome::Done);
        }
        cluster.lab.world.now += 10_000;
    }
    let plan = cluster.plan();
    assert_eq!(Lab::reasons(&plan), [Reason::CloudError]);
    assert!(plan.unmet[0].message.contains("NotAssigned"), "{:?}", plan.unmet);
    cluster.lab.node("a1").not_ready_since = None;
    let plan = cluster.settle();
    assert!(plan.unmet.is_empty() && cluster.addresses().len() == 1);
}

#[test]
fn addresses_of_other_egress_ips_are_not_drawn_and_not_given() {
    let mut cluster = OvnLab::new(&[1], Some("10.0.0.9"));
    cluster.ovn.foreign = BTreeSet::from([Ipv4Addr::new(10, 0, 0, 9)]);
    let plan = cluster.settle();
    assert_eq!(Lab::reasons(&plan), [Reason::AddressInUse]);
    assert!(cluster.lab.journal.claims.is_empty());
}

#[test]
fn a_selector_that_somebody_changed_is_set_right() {
    let mut cluster = OvnLab::new(&[1], None);
    cluster.settle();
    cluster.ovn.egress_ips.get_mut("shop").unwrap().is_intact = false;
    assert!(matches!(&cluster.plan().actions[..], [Action::SetNetNamespace { .. }]));
    cluster.settle();
    assert!(cluster.ovn.egress_ips["shop"].is_intact);
}

/// A CloudPrivateIPConfig with the finalizer.
fn asked(wanted: &str) -> PrivateIp {
    PrivateIp { uid: "uid".into(), wanted: wanted.into(), has_finalizer: true, ..PrivateIp::default() }
}

impl OvnLab {
    /// Executes what is due until nothing is; the answer to a CloudPrivateIPConfig is written in it.
    fn serve(&mut self) {
        self.ovn.serves = true;
        for _ in 0..500 {
            self.lab.describe();
            let plan = self.plan();
            for (address, change) in &plan.private_ips {
                let Some(ip) = self.ovn.private_ips.get_mut(address) else { continue };
                match change {
                    PrivateIpChange::Finalizer(wanted) => ip.has_finalizer = *wanted,
                    PrivateIpChange::Status(status) => ip.status = status.clone(),
                }
            }
            self.ovn.private_ips.retain(|_, ip| !ip.deleting || ip.has_finalizer);
            if let Some(action) = plan.actions.first() {
                self.lab.log.push(format!("{action:?}"));
                let seen = (self.lab.world.clone(), self.lab.journal.clone());
                self.lab.execute(action, (&seen.0, &seen.1), Outcome::Done);
            } else if let Some(wake) = plan.wake {
                self.lab.world.now = wake;
            } else if plan.awaiting.is_empty() && plan.private_ips.is_empty() {
                return;
            } else {
                self.lab.world.now += 1_000;
            }
        }
        panic!("does not settle: {:#?}", self.lab.log.iter().rev().take(12).collect::<Vec<_>>());
    }
}

#[test]
fn a_private_address_is_recorded_attached_moved_and_released() {
    let mut cluster = OvnLab::new(&[2], None);
    cluster.namespace().opted_in = false;
    let address = Ipv4Addr::new(10, 0, 0, 77);
    cluster.ovn.private_ips.insert(address, PrivateIp { has_finalizer: false, ..asked("a2") });
    cluster.serve();
    let claim = &cluster.lab.journal.claims[&address];
    assert_eq!((claim.spec.owner.kind, &*claim.spec.owner.name), (OwnerKind::PrivateIp, "10.0.0.77"));
    let yes = |node: &str| PrivateIpStatus { node: Some(node.into()), assigned: Assigned::Yes };
    assert_eq!(cluster.ovn.private_ips[&address].status, yes("a2"));
    assert!(cluster.ovn.private_ips[&address].has_finalizer);
    assert_eq!(cluster.lab.calls_made().len(), 1);
    // OVN-Kubernetes wants it elsewhere: one call
    cluster.ovn.private_ips.get_mut(&address).unwrap().wanted = "a1".into();
    cluster.serve();
    assert_eq!(cluster.ovn.private_ips[&address].status, yes("a1"));
    assert_eq!(cluster.lab.calls_made().len(), 2, "{:#?}", cluster.lab.calls_made());
    cluster.ovn.private_ips.get_mut(&address).unwrap().deleting = true;
    cluster.serve();
    assert!(cluster.ovn.private_ips.is_empty() && cluster.lab.journal.claims.is_empty());
    assert!(!cluster.lab.cloud.is_used(address) && cluster.lab.cloud.wrongs.is_empty());
}

#[test]
fn what_the_other_controller_attached_is_taken_over_without_a_call() {
    let mut cluster = OvnLab::new(&[1], None);
    cluster.namespace().opted_in = false;
    let address = Ipv4Addr::new(10, 0, 0, 77);
    let now = cluster.lab.world.now;
    cluster.lab.cloud.edit(&"i-a1".into(), now, |secondary| {
        secondary.insert(address, super::cloud::By::Us);
    });
    let status = PrivateIpStatus { node: Some("a1".into()), assigned: Assigned::Yes };
    cluster.ovn.private_ips.insert(address, PrivateIp { status: status.clone(), ..asked("a1") });
    cluster.serve();
    assert!(cluster.lab.journal.claims.contains_key(&address) && cluster.lab.calls_made().is_empty());
    assert_eq!(cluster.ovn.private_ips[&address].status, status);
    cluster.ovn.private_ips.get_mut(&address).unwrap().deleting = true;
    cluster.serve();
    assert!(cluster.ovn.private_ips.is_empty() && !cluster.lab.cloud.is_used(address));
}

#[test]
fn a_private_address_that_cannot_be_had_says_why() {
    let mut cluster = OvnLab::new(&[1], None);
    cluster.namespace().opted_in = false;
    let address = Ipv4Addr::new(10, 0, 0, 77);
    cluster.lab.cloud.strangers.insert(address);
    cluster.ovn.private_ips.insert(address, asked("a1"));
    cluster.serve();
    let status = &cluster.ovn.private_ips[&address].status;
    assert!(matches!(&status.assigned, Assigned::Failed(why) if why.contains("already used")), "{status:?}");
    assert!(cluster.lab.calls_made().is_empty());
}

#[test]
fn nodes_say_what_they_can_have() {
    let mut cluster = OvnLab::new(&[1], None);
    cluster.lab.describe();
    cluster.ovn.serves = true;
    let plan = cluster.plan();
    let config = plan.nodes["a1"].config.clone().unwrap();
    let wanted = r#"[{"interface":"eni-i-a1","ifaddr":{"ipv4":"10.0.0.0/24"},"capacity":{"ipv4":9}}]"#;
    assert_eq!(&*config, wanted);
    let node = cluster.lab.node("a1");
    (node.egress_assignable, node.egress_ip_config) = (true, Some(config));
    assert!(cluster.plan().nodes.is_empty());
}
