//! What holds for every action, and for every cluster that came to rest.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::cloud::By;
use super::lab::Lab;
use crate::ipam::*;

impl Lab {
    fn describes(&self, address: Ipv4Addr, instance: &InstanceId) -> bool {
        let seen = self.world.cloud.as_ref().and_then(|cloud| cloud.nodes.get(instance));
        let interface = seen.and_then(|seen| seen.what.interface.as_ref());
        interface.is_some_and(|interface| interface.secondary.contains(&address))
    }

    /// What an action may not do, judged by what the plan saw.
    pub(super) fn check_action(&self, action: &Action) {
        match action {
            Action::Call(call) => {
                for address in &call.addresses {
                    self.check_call(call, *address);
                }
            }
            Action::SetHostSubnet { name, egress_ips, .. } => {
                let before = &self.world.host_subnets[name].egress_ips;
                for address in egress_ips.difference(before) {
                    let instance = self.world.nodes[name].instance.as_ref().unwrap();
                    assert!(self.describes(*address, instance), "publish implies attached: {address} on {name}");
                    self.check_all_attached(*address);
                    let others = self.world.host_subnets.values().filter(|subnet| subnet.egress_ips.contains(address));
                    assert_eq!(others.count(), 0, "one host per address: {address}");
                }
                for address in before.difference(egress_ips) {
                    let claim = self.journal.claims.get(address);
                    let claim = claim.unwrap_or_else(|| panic!("{address} is not ours to remove"));
                    let net_namespace = self.world.net_namespaces.get(&claim.spec.owner.name);
                    let used = net_namespace.is_some_and(|found| found.egress_ips.contains(address));
                    let leaves = claim.status.state == State::Releasing;
                    assert!(!(leaves && used), "the NetNamespace lets go of {address} before the HostSubnet");
                }
            }
            Action::CreateClaim(write) | Action::UpdateClaim(write) | Action::ConfirmClaim(write) => {
                let mut after = self.journal.claims.clone();
                after.insert(write.address, write.claim.clone());
                check_nodes(&after);
            }
            Action::DeleteClaim(address) => {
                assert!(self.journal.claims[address].is_cooling(), "{address} is deleted too early");
                let shown = self.cloud.instances.values().find_map(|instance| instance.secondary.get(address));
                assert_ne!(shown, Some(&By::Us), "{address} is forgotten while it is attached");
            }
            Action::SetNetNamespace { .. } | Action::AnnotateNamespace { .. } => {}
        }
    }

    /// What was not in service is published when all of it is attached.
    fn check_all_attached(&self, address: Ipv4Addr) {
        let owner = &self.journal.claims[&address].spec.owner;
        let list = AddressList::parse(self.world.namespaces[&owner.name].egressips.as_deref());
        let claims = self.journal.claims.iter().filter(|(address, claim)| {
            let is_wanted = match &list {
                AddressList::Addresses(list) => list.contains(*address),
                AddressList::Absent => true,
                AddressList::Invalid(_) => false,
            };
            claim.spec.owner == *owner && is_wanted && !claim.deleting && claim.status.state != State::Releasing
        });
        let is_attached = |claim: &Claim| matches!(claim.status.state, State::Attached | State::Published);
        let mut rest = claims.map(|(_, claim)| claim).filter(|claim| !claim.status.served);
        let is_partial = self.world.options.partial && list == AddressList::Absent;
        let exempt = self.journal.claims[&address].status.served || is_partial;
        assert!(exempt || rest.all(is_attached), "all zones or none: {address}");
    }

    fn check_call(&self, call: &CloudCall, address: Ipv4Addr) {
        let claim = self.journal.claims.get(&address).unwrap_or_else(|| panic!("{address} is not in the journal"));
        let target = claim.status.target.as_ref();
        assert!(target.is_some_and(|target| target.interface == call.interface), "the journal names the target first");
        let listed = self.world.host_subnets.values().any(|subnet| subnet.egress_ips.contains(&address));
        match call.kind {
            CallKind::Assign | CallKind::Take => {
                assert!(matches!(claim.status.state, State::Assigning | State::Moving), "{claim:?}");
                assert!(!listed, "{address} is put somewhere while a HostSubnet lists it");
            }
            CallKind::Release => {
                assert_eq!(claim.status.state, State::Releasing);
                let net_namespace = self.world.net_namespaces.get(&claim.spec.owner.name);
                let used = net_namespace.is_some_and(|found| found.egress_ips.contains(&address));
                assert!(!listed && !used, "release implies unpublished: {address}");
            }
        }
    }

    /// What holds once nothing is due.
    pub(super) fn check_rest(&self, plan: &Plan) {
        assert_eq!(plan.actions, [], "nothing is due");
        assert_eq!(self.cloud.wrongs, [""; 0]);
        check_nodes(&self.journal.claims);
        for (id, instance) in &self.cloud.instances {
            for (address, _) in instance.secondary.iter().filter(|(_, by)| **by == By::Us) {
                let claim = self.journal.claims.get(address).unwrap_or_else(|| panic!("{address} leaked on {id}"));
                assert!(!claim.is_cooling() && claim.status.state != State::Blocked, "{address} leaked: {claim:?}");
            }
        }
        for (name, namespace) in &self.world.namespaces {
            let unmet = plan.unmet.iter().any(|unmet| unmet.namespace == *name && !unmet.reason.is_notice());
            if namespace.opted_in && !namespace.terminating && !unmet {
                self.check_served(name, namespace);
            }
        }
        for (address, claim) in &self.journal.claims {
            let owner = &claim.spec.owner;
            let namespace = self.world.namespaces.get(&owner.name).filter(|found| found.uid == owner.uid);
            let requested = self.world.namespaces.values().any(|namespace| {
                let list = AddressList::parse(namespace.egressips.as_deref());
                matches!(list, AddressList::Addresses(list) if list.contains(address)) && namespace.opted_in
            });
            let wanted = namespace.is_some_and(|namespace| namespace.opted_in);
            assert!(wanted || claim.is_cooling() && requested, "{address} has no owner: {claim:?}");
        }
    }

    fn check_served(&self, name: &NamespaceName, namespace: &Namespace) {
        let claims: BTreeMap<Ipv4Addr, &Claim> = self
            .journal
            .claims
            .iter()
            .filter(|(_, claim)| claim.spec.owner.uid == namespace.uid && claim.status.state != State::Releasing)
            .map(|(address, claim)| (*address, claim))
            .collect();
        assert!(!claims.is_empty(), "{name} has neither an address nor a reason");
        let all: BTreeSet<Ipv4Addr> = claims.keys().copied().collect();
        let list = AddressList::parse(namespace.egressips.as_deref());
        assert_eq!(list, AddressList::Addresses(all.clone()), "the list of {name}");
        assert!(namespace.modified && namespace.status.is_none(), "{name}: {namespace:?}");
        // one that got its NetNamespace taken away keeps its service
        if let Some(net_namespace) = self.world.net_namespaces.get(name) {
            assert_eq!(net_namespace.egress_ips, all, "the NetNamespace of {name}");
        }
        let drawn = claims.values().filter(|claim| !claim.spec.requested);
        let zones: Vec<&Zone> = drawn.map(|claim| &claim.spec.zone).collect();
        assert_eq!(zones.iter().collect::<BTreeSet<_>>().len(), zones.len(), "one address per zone: {claims:?}");
        for (address, claim) in claims {
            assert_eq!(claim.status.state, State::Published, "{address} of {name}: {claim:?}");
            let node = &claim.spec.node;
            let instance = self.world.nodes[node].instance.as_ref().unwrap();
            let by = self.cloud.instances[instance].secondary.get(&address);
            assert!(by.is_some(), "{address} of {name} is lost");
            let hosts = self.world.host_subnets.iter().filter(|(_, subnet)| subnet.egress_ips.contains(&address));
            assert_eq!(hosts.map(|(name, _)| name).collect::<Vec<_>>(), [node], "the host of {address}");
        }
    }
}

/// Never two addresses of one owner on one node.
fn check_nodes(claims: &BTreeMap<Ipv4Addr, Claim>) {
    let mut taken = BTreeMap::new();
    for (address, claim) in claims {
        if !matches!(claim.status.state, State::Releasing | State::Blocked) {
            let other = taken.insert((&claim.spec.owner, &claim.spec.node), address);
            assert_eq!(other, None, "{address} is on a node with another address of its owner: {claims:#?}");
        }
    }
}
