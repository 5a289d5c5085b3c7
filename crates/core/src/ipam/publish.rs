//! What OpenShift SDN reads: HostSubnet, NetNamespace and the annotations of the Namespace.
//!
//! An address is published in this order and taken back in the opposite one: HostSubnet, NetNamespace, Namespace.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::action::{Action, ListAnnotation, Step};
use super::draft::Draft;
use super::index::Location;
use super::journal::{Claim, ClaimStatus, State};
use super::reason::Event;
use super::request::AddressList;
use super::types::{HostSubnet, Namespace, NamespaceName, NodeName};

/// What a namespace has and should have.
#[derive(Default)]
pub(super) struct Service<'a> {
    /// Claims that stay.
    pub(super) keep: Vec<(Ipv4Addr, &'a Claim)>,
    /// Claims that stay until the others are in service.
    pub(super) surplus: Vec<(Ipv4Addr, &'a Claim)>,
    /// Addresses that are still missing.
    pub(super) wishes: usize,
    /// Addresses that were not in service yet may be published.
    pub(super) gate: bool,
    /// It may be in service although others are missing.
    pub(super) partial: bool,
}

impl<'a> Draft<'a> {
    /// Publishes the addresses of a namespace as far as the journal allows.
    pub(super) fn publish(
        &mut self,
        name: &'a NamespaceName,
        namespace: Option<&Namespace>,
        claims: &[(Ipv4Addr, &'a Claim)],
        service: &Service<'a>,
    ) {
        for (address, claim) in claims {
            self.publish_host(name, *address, claim, service);
        }
        let is_current = claims.is_empty() || self.publish_net_namespace(name, claims, service);
        let Some(namespace) = namespace else { return };
        let list = match namespace.opted_in {
            true if is_current => self.list_to_write(name, namespace, service),
            true => None,
            false => {
                let mut own = claims.iter().filter(|(_, claim)| claim.spec.owner.uid == namespace.uid).peekable();
                let written = namespace.modified || own.peek().is_some() && namespace.egressips.is_some();
                (written && own.all(|(_, claim)| claim.is_cooling())).then_some(ListAnnotation::Remove)
            }
        };
        self.annotate(name, namespace, list);
        if !is_current {
            return;
        }
        let keep = service.keep.iter().map(|(address, _)| *address).collect::<BTreeSet<_>>();
        let is_listed = matches!(self.index.lists.get(&**name), Some(AddressList::Addresses(list)) if *list == keep);
        // a list that is not complete would be a request for less
        let documented = namespace.modified && is_listed || service.partial;
        for (address, claim) in service.keep.iter().chain(&service.surplus) {
            self.complete(name, *address, claim, documented);
        }
    }

    /// Makes HostSubnets list what was decided; addresses of others stay.
    pub(super) fn publish_host_subnets(&mut self) {
        let index = self.index;
        let none = BTreeSet::new();
        for (name, subnet) in &index.world.host_subnets {
            let hosted = self.hosted.get(name).unwrap_or(&none);
            let ours = |address: &Ipv4Addr| index.journal.claims.contains_key(address);
            let foreign: Vec<Ipv4Addr> = subnet.egress_ips.iter().copied().filter(|address| !ours(address)).collect();
            let egress_ips: BTreeSet<Ipv4Addr> = hosted.iter().chain(&foreign).copied().collect();
            let mut annotations = subnet.annotations.clone();
            annotations.retain(|address, _| !ours(address) || hosted.contains(address));
            for address in hosted {
                annotations.insert(*address, index.journal.claims[address].spec.owner.name.clone());
            }
            if subnet.egress_cidrs && index.world.nodes.get(name).is_some_and(|node| node.compute) {
                self.plan.events.push(Event::EgressCidrsSet(name.clone()));
            }
            if !subnet.egress_cidrs {
                let events = foreign.into_iter().map(|address| Event::ForeignEgressIp(name.clone(), address));
                self.plan.events.extend(events);
            }
            let wanted = HostSubnet { egress_ips, egress_cidrs: subnet.egress_cidrs, annotations };
            if wanted != *subnet {
                let HostSubnet { egress_ips, annotations, .. } = wanted;
                self.plan.actions.push(Action::SetHostSubnet { name: name.clone(), egress_ips, annotations });
            }
        }
    }

    fn publish_host(&mut self, name: &NamespaceName, address: Ipv4Addr, claim: &'a Claim, service: &Service<'a>) {
        let index = self.index;
        let is_wanted = service.keep.iter().chain(&service.surplus).any(|(wanted, _)| *wanted == address);
        if claim.status.state == State::Releasing || !is_wanted {
            // the NetNamespace lets go first, and before it the journal
            let net_namespace = index.world.net_namespaces.get(name);
            let in_use = net_namespace.is_some_and(|found| found.egress_ips.contains(&address));
            if in_use || claim.status.state != State::Releasing {
                for node in index.listed(address) {
                    self.hosted.entry(node).or_default().insert(address);
                }
            }
            return;
        }
        let is_kept = service.keep.iter().any(|(kept, _)| *kept == address);
        if !self.may_list(claim, service.gate && is_kept) {
            return;
        }
        let Some((node, _)) = index.world.host_subnets.get_key_value(&claim.spec.node) else { return };
        let is_listed = index.is_listed_at(address, node);
        let is_there = match index.locate(address, claim) {
            Location::At(instance) => index.host(node).is_some_and(|host| host.instance == instance),
            Location::Unknown => is_listed,
            Location::InUse | Location::Nowhere => false,
        };
        let keeps = index.id(node).is_some_and(|id| index.nodes[id].keeps);
        let may_add = keeps && index.listed(address).is_empty();
        if (is_there || index.publishes_first()) && (is_listed || may_add) {
            self.hosted.entry(node).or_default().insert(address);
        }
    }

    /// Whether the journal allows a HostSubnet to list an address.
    fn may_list(&self, claim: &Claim, gate: bool) -> bool {
        let is_far_enough = match claim.status.state {
            State::Attached | State::Published => true,
            State::Assigning | State::Moving => self.index.publishes_first(),
            State::Reserved | State::Releasing | State::Blocked => false,
        };
        is_far_enough && (claim.status.served || gate)
    }

    /// True if the NetNamespace is as it should be.
    fn publish_net_namespace(
        &mut self,
        name: &NamespaceName,
        claims: &[(Ipv4Addr, &'a Claim)],
        service: &Service<'a>,
    ) -> bool {
        let index = self.index;
        let Some(net_namespace) = index.world.net_namespaces.get(name) else { return false };
        let wanted = || service.keep.iter().chain(&service.surplus);
        let mut egress_ips: BTreeSet<Ipv4Addr> =
            wanted().filter(|(_, claim)| claim.status.served).map(|(address, _)| *address).collect();
        let new: Vec<_> = service
            .keep
            .iter()
            .filter(|(_, claim)| !claim.status.served && self.may_list(claim, service.gate))
            .collect();
        if new.iter().all(|(address, claim)| index.is_listed_at(*address, &claim.spec.node)) {
            egress_ips.extend(new.iter().map(|(address, _)| *address));
        }
        let annotation = if egress_ips.is_empty() {
            let is_leaving = |address: &Ipv4Addr| {
                claims.iter().any(|(leaving, claim)| leaving == address && claim.status.state == State::Releasing)
            };
            egress_ips = net_namespace.egress_ips.iter().copied().filter(|address| !is_leaving(address)).collect();
            let all_leave = claims.iter().all(|(_, claim)| claim.status.state == State::Releasing);
            net_namespace.annotation.clone().filter(|_| !all_leave)
        } else {
            let unrecorded = claims.iter().filter(|(address, claim)| {
                let is_wanted = wanted().any(|(wanted, _)| wanted == address);
                !is_wanted && claim.status.state != State::Releasing && net_namespace.egress_ips.contains(address)
            });
            egress_ips.extend(unrecorded.map(|(address, _)| *address));
            Some(AddressList::format(&egress_ips))
        };
        if egress_ips == net_namespace.egress_ips && annotation == net_namespace.annotation {
            return true;
        }
        self.plan.actions.push(Action::SetNetNamespace { name: name.clone(), egress_ips, annotation });
        false
    }

    fn list_to_write(
        &self,
        name: &NamespaceName,
        namespace: &Namespace,
        service: &Service<'a>,
    ) -> Option<ListAnnotation> {
        let keep: BTreeSet<Ipv4Addr> = service.keep.iter().map(|(address, _)| *address).collect();
        let is_served = |claim: &Claim| claim.status.served || claim.status.state == State::Attached;
        let in_net_namespace = |address: &Ipv4Addr| {
            let net_namespace = self.index.world.net_namespaces.get(name);
            net_namespace.is_some_and(|found| found.egress_ips.contains(address))
        };
        let done = service.keep.iter().all(|(address, claim)| is_served(claim) && in_net_namespace(address));
        if keep.is_empty() || !done || service.wishes > 0 {
            return None;
        }
        let write = || Some(ListAnnotation::Write(AddressList::format(&keep)));
        match self.index.lists.get(&**name)? {
            AddressList::Absent => write(),
            AddressList::Addresses(list) if *list == keep && !namespace.modified => write(),
            AddressList::Addresses(_) | AddressList::Invalid(_) => None,
        }
    }

    fn annotate(&mut self, name: &NamespaceName, namespace: &Namespace, list: Option<ListAnnotation>) {
        let mut unmet = self.reported().iter().filter(|unmet| !unmet.reason.is_notice());
        let status: Option<Arc<str>> = match unmet.next() {
            Some(unmet) if namespace.opted_in => Some(unmet.annotation()),
            Some(_) | None => None,
        };
        if list.is_some() || status != namespace.status {
            let name = name.clone();
            self.plan.actions.push(Action::AnnotateNamespace { name, egressips: list, status });
        }
    }

    /// Records that everything is written.
    fn complete(&mut self, name: &NamespaceName, address: Ipv4Addr, claim: &'a Claim, documented: bool) {
        let node: &NodeName = &claim.spec.node;
        let net_namespace = self.index.world.net_namespaces.get(name);
        let is_hosted = self.hosted.get(node).is_some_and(|hosted| hosted.contains(&address));
        let is_published = claim.status.state == State::Attached
            && !self.is_written(address)
            && is_hosted
            && self.index.is_listed_at(address, node)
            && net_namespace.is_some_and(|found| found.egress_ips.contains(&address))
            && (claim.status.served || documented);
        if is_published {
            let status = ClaimStatus {
                state: State::Published,
                since: self.index.world.now,
                served: true,
                earlier: Vec::new(),
                ..claim.status.clone()
            };
            self.update(address, Claim { status, ..claim.clone() }, Step::Published);
        }
    }
}
