//! A large cluster.

use std::collections::BTreeMap;

use super::lab::Lab;
use crate::ipam::*;

/// Namespaces, each with an address in each of three zones.
const NAMESPACES: usize = 5_000;
/// Nodes, with room for 29 addresses each.
const NODES: usize = 1_000;

/// A cluster before anything is assigned, and the plan that reserves everything.
fn large() -> (Lab, Plan) {
    let mut lab = Lab::new(&[], 30);
    for (number, zone) in ["a", "b", "c"].into_iter().enumerate() {
        let cidr = format!("10.{number}.0.0/19").parse().unwrap();
        lab.cloud.subnets.insert(format!("subnet-{zone}").into(), (zone.into(), cidr));
        for node in 0..NODES / 3 + usize::from(zone == "a") {
            lab.add_node(&format!("{zone}{node}"), &format!("subnet-{zone}"), 30);
        }
    }
    for namespace in 0..NAMESPACES {
        lab.add_namespace(&format!("ns-{namespace}"), None);
        let netid = u32::try_from(namespace).unwrap();
        lab.net_namespace(&format!("ns-{namespace}")).netid = netid;
    }
    lab.describe();
    let plan = lab.plan();
    (lab, plan)
}

#[test]
fn five_thousand_namespaces_are_spread_evenly_and_then_left_alone() {
    let (mut lab, plan) = large();
    assert_eq!((plan.actions.len(), plan.unmet.len()), (3 * NAMESPACES, 0));
    let mut load: BTreeMap<NodeName, usize> = BTreeMap::new();
    for action in &plan.actions {
        let Action::CreateClaim(write) = action else { panic!("{action:?}") };
        *load.entry(write.claim.spec.node.clone()).or_default() += 1;
        lab.serve(write);
    }
    assert_eq!((load.values().min(), load.values().max(), load.len()), (Some(&14), Some(&16), NODES));
    lab.describe();
    let idle = lab.plan();
    assert_eq!((idle.actions.len(), idle.unmet.len()), (0, 0));
    // one node is lost: its addresses move, and nothing else
    let lost: NodeName = "a7".into();
    lab.node(&lost).deleting = true;
    let moves = lab.plan();
    assert_eq!(moves.actions.len(), load[&lost]);
}

impl Lab {
    /// Puts everything where a finished assignment leaves it.
    fn serve(&mut self, write: &ClaimWrite) {
        let ClaimWrite { address, claim, .. } = write;
        let mut claim = claim.clone();
        let node = claim.spec.node.clone();
        let instance: InstanceId = format!("i-{node}").into();
        let interface: InterfaceId = format!("eni-{instance}").into();
        self.cloud.call(CallKind::Assign, &interface, *address, self.world.now).unwrap();
        let target = Target { node: node.clone(), instance, interface };
        claim.status = ClaimStatus {
            state: State::Published,
            node: Some(node.clone()),
            target: Some(target),
            served: true,
            ..claim.status
        };
        let name = claim.spec.owner.name.clone();
        self.host_subnet(&node).egress_ips.insert(*address);
        self.host_subnet(&node).annotations.insert(*address, name.clone());
        let net_namespace = self.net_namespace(&name);
        net_namespace.egress_ips.insert(*address);
        let list = AddressList::format(&net_namespace.egress_ips);
        net_namespace.annotation = Some(list.clone());
        let namespace = self.namespace(&name);
        (namespace.egressips, namespace.modified) = (Some(list), true);
        self.journal.claims.insert(*address, claim);
    }
}
