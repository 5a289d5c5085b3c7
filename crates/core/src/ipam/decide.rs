//! The decision about one namespace: which of its addresses stay, which come, which go.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::action::Step;
use super::cloud::Zone;
use super::draft::Draft;
use super::error::CloudError;
use super::index::NodeId;
use super::journal::{Claim, State};
use super::publish::Service;
use super::reason::{Event, Reason};
use super::request::AddressList;
use super::step::{Obstacle, reason_of};
use super::types::{Assigned, Namespace, NamespaceName};
use super::wish::{Placement, Refusal, Wish};

/// Failed attempts after which an unfinished address is reported.
const REPORTED: u32 = 3;

/// An address with its claim.
pub(super) type Owned<'a> = (Ipv4Addr, &'a Claim);

/// What a namespace should have.
struct Goal<'a> {
    /// Claims that stay.
    keep: Vec<Owned<'a>>,
    /// Claims that go once the others are in service.
    surplus: Vec<Owned<'a>>,
    /// What is still missing.
    wishes: Vec<Wish<'a>>,
}

impl<'a> Draft<'a> {
    /// Decides about a namespace, or about the claims of one that is gone.
    pub(super) fn decide(&mut self, name: &'a NamespaceName) {
        self.begin();
        let index = self.index;
        let namespace = index.world.namespaces.get(name);
        let addresses = index.owners.get(&**name).map_or(&[][..], Vec::as_slice);
        let claims: Vec<Owned<'a>> =
            addresses.iter().map(|address| (*address, &index.journal.claims[address])).collect();
        let opted_in = namespace.filter(|namespace| namespace.opted_in);
        let uid = opted_in.map(|namespace| &namespace.uid);
        let mut live = Vec::new();
        for (address, claim) in &claims {
            if claim.status.state == State::Releasing {
                self.advance_release(*address, claim);
            } else if uid != Some(&claim.spec.owner.uid) || claim.deleting {
                self.release(*address, claim, Step::Release);
            } else {
                live.push((*address, *claim));
            }
        }
        let service = match opted_in {
            Some(namespace) => self.serve(name, namespace, &claims, live),
            None => Service::default(),
        };
        self.publish(name, namespace, &claims, &service);
        let has_list = namespace.is_some_and(|found| {
            !found.opted_in && !found.modified && AddressList::parse(found.egressips.as_deref()) != AddressList::Absent
        });
        if has_list && claims.is_empty() {
            self.event(Event::NotOptedIn(name.clone()));
        }
    }

    fn serve(
        &mut self,
        name: &'a NamespaceName,
        namespace: &'a Namespace,
        claims: &[Owned<'a>],
        live: Vec<Owned<'a>>,
    ) -> Service<'a> {
        let Goal { keep, surplus, wishes } = self.goal(name, namespace, live);
        let (served, unserved): (Vec<Owned<'a>>, Vec<Owned<'a>>) =
            keep.iter().copied().partition(|(_, claim)| claim.status.served);

        // what is in service stays where it is, or moves
        for (address, claim) in &served {
            self.keep(name, claims, *address, claim);
        }
        let is_complete = unserved.is_empty() && wishes.is_empty() && !keep.is_empty();
        for (address, claim) in &surplus {
            if is_complete || !claim.status.served {
                self.release(*address, claim, Step::Release);
            } else {
                self.keep(name, claims, *address, claim);
            }
        }

        // what is not comes all together or not at all
        let starts = !unserved.is_empty() || !wishes.is_empty();
        // a list that is served by half is not served
        let is_open = self.index.lists[&**name] == AddressList::Absent;
        let partial = self.index.world.options.partial && is_open;
        let held_back = held_back(namespace, claims);
        let fatal = self.network_fault(name, starts || !keep.is_empty());
        let fatal = fatal.or_else(|| held_back.first().filter(|_| starts && !partial).map(HeldBack::report));
        let obstacles: Vec<Option<Obstacle>> = unserved
            .iter()
            .map(|(address, claim)| self.obstacle(*address, claim, &self.barred(claims, Some(*address))))
            .collect();
        let is_fatal = fatal.is_some();
        let barred = if wishes.is_empty() { Vec::new() } else { self.barred(claims, None) };
        let placements = if is_fatal { Vec::new() } else { self.place(name, namespace, &wishes, &barred, &held_back) };
        let failed = self.report(name, &obstacles, &placements, fatal);
        let rolls_back = is_fatal || failed && !partial;
        if !rolls_back {
            for placement in placements.iter().flatten() {
                self.reserve(name, namespace, placement);
            }
        }
        for ((address, claim), obstacle) in unserved.iter().zip(&obstacles) {
            let own = self.barred(claims, Some(*address));
            match obstacle {
                Some(Obstacle::InUse(_)) => self.advance(*address, claim, &own, true),
                Some(Obstacle::Redraw) => self.release(*address, claim, Step::Release),
                Some(Obstacle::Fails(..)) => self.release(*address, claim, Step::RollBack),
                None if rolls_back && claim.status.state == State::Blocked => {}
                None if rolls_back => self.release(*address, claim, Step::RollBack),
                None => {
                    self.report_controller(name, *address, claim);
                    self.advance(*address, claim, &own, wishes.is_empty() || partial);
                }
            }
        }
        let is_attached =
            |claim: &Claim| claim.status.served || matches!(claim.status.state, State::Attached | State::Published);
        let first = self.index.publishes_first();
        let all = wishes.is_empty() && keep.iter().all(|(_, claim)| first || is_attached(claim));
        Service { gate: !rolls_back && (all || partial), keep, surplus, wishes: wishes.len(), partial }
    }

    /// What stays, what comes and what goes, by the list and the journal.
    fn goal(&mut self, name: &'a NamespaceName, namespace: &Namespace, live: Vec<Owned<'a>>) -> Goal<'a> {
        let index = self.index;
        let has_served = live.iter().any(|(_, claim)| claim.status.served);
        match &index.lists[&**name] {
            // it keeps what it has until it is gone
            AddressList::Addresses(_) | AddressList::Absent | AddressList::Invalid(_) if namespace.terminating => {
                let (keep, surplus): (Vec<_>, Vec<_>) = live.into_iter().partition(|(_, claim)| claim.status.served);
                Goal { keep, surplus, wishes: Vec::new() }
            }
            AddressList::Addresses(list) => {
                let recorded: BTreeSet<Ipv4Addr> = live.iter().map(|(address, _)| *address).collect();
                let wishes = list.difference(&recorded).map(|address| Wish::Address(*address)).collect();
                let (keep, surplus): (Vec<_>, Vec<_>) =
                    live.into_iter().partition(|(address, _)| list.contains(address));
                self.report_uncovered(name, &keep);
                Goal { keep, surplus, wishes }
            }
            AddressList::Absent if !has_served || index.world.options.partial => {
                let wishes: Vec<Wish<'_>> = index
                    .by_zone
                    .keys()
                    .filter(|zone| live.iter().all(|(_, claim)| claim.spec.zone != ***zone))
                    .map(|zone| Wish::Zone(zone))
                    .collect();
                if live.is_empty() && wishes.is_empty() {
                    let message = "no zone has a ready compute node that can take an address: check the nodes";
                    self.unmet(name, Reason::NoNodeInZone, message.to_owned());
                }
                Goal { keep: live, surplus: Vec::new(), wishes }
            }
            AddressList::Absent => {
                let (keep, surplus): (Vec<_>, Vec<_>) = live.into_iter().partition(|(_, claim)| claim.status.served);
                self.report_uncovered(name, &keep);
                Goal { keep, surplus, wishes: Vec::new() }
            }
            AddressList::Invalid(message) => {
                self.unmet(name, Reason::InvalidRequest, message.clone());
                let (keep, surplus): (Vec<_>, Vec<_>) = live.into_iter().partition(|(_, claim)| claim.status.served);
                Goal { keep, surplus, wishes: Vec::new() }
            }
        }
    }

    /// An address in service that is wanted.
    fn keep(&mut self, name: &NamespaceName, claims: &[Owned<'a>], address: Ipv4Addr, claim: &Claim) {
        if self.index.is_settled(address, claim) {
            return;
        }
        let barred = self.barred(claims, Some(address));
        let waits = matches!(claim.status.state, State::Assigning | State::Moving);
        match self.obstacle(address, claim, &barred) {
            Some(Obstacle::Fails(reason, message)) => self.unmet(name, reason, message),
            Some(Obstacle::InUse(message)) => self.unmet(name, Reason::AddressInUse, message),
            None if waits && claim.status.attempts >= REPORTED => self.report_attempts(name, address, claim),
            Some(Obstacle::Redraw) | None => self.report_controller(name, address, claim),
        }
        self.advance(address, claim, &barred, true);
    }

    /// What is wrong with the network of a namespace that should have addresses.
    fn network_fault(&self, name: &NamespaceName, needed: bool) -> Option<(Reason, String)> {
        if !needed {
            return None;
        }
        let Some(net_namespace) = self.index.world.net_namespaces.get(name) else {
            let message =
                "the namespace has no NetNamespace: wait for OpenShift SDN to create it, or check that it runs";
            return Some((Reason::NetNamespaceMissing, message.to_owned()));
        };
        self.index.shared_netids.contains(&net_namespace.netid).then(|| {
            let message = format!(
                "other namespaces share the network id {}: separate them with `oc adm pod-network isolate-projects`",
                net_namespace.netid
            );
            (Reason::SharedNetId, message)
        })
    }

    /// Reports what failed; true if something did.
    fn report(
        &mut self,
        name: &NamespaceName,
        obstacles: &[Option<Obstacle>],
        placements: &[Result<Placement, Refusal>],
        fatal: Option<(Reason, String)>,
    ) -> bool {
        let mut found: BTreeSet<(Reason, String)> = fatal.into_iter().collect();
        let mut waits = false;
        for obstacle in obstacles.iter().flatten() {
            match obstacle {
                Obstacle::Fails(reason, message) => drop(found.insert((*reason, message.clone()))),
                Obstacle::InUse(message) => drop(found.insert((Reason::AddressInUse, message.clone()))),
                Obstacle::Redraw => {}
            }
        }
        for refusal in placements.iter().filter_map(|placement| placement.as_ref().err()) {
            match refusal {
                Refusal::Wait => waits = true,
                Refusal::Unmet(reason, message) => drop(found.insert((*reason, message.clone()))),
            }
        }
        let failed = !found.is_empty();
        for (reason, message) in found {
            self.unmet(name, reason, message);
        }
        failed || waits
    }

    fn report_attempts(&mut self, name: &NamespaceName, address: Ipv4Addr, claim: &Claim) {
        let error = claim.status.last_error.as_ref().map_or(CloudError::Transient, |last| last.error.clone());
        let message = format!("{address} in zone {}: {error}", claim.spec.zone);
        self.unmet(name, reason_of(&error), message);
    }

    /// Another controller attaches addresses, and says why it could not.
    fn report_controller(&mut self, name: &NamespaceName, address: Ipv4Addr, claim: &Claim) {
        let known = self.index.world.cloud_controller.as_ref().and_then(|known| known.get(&address));
        if let Some(Assigned::Failed(message)) = known.map(|ip| &ip.status.assigned) {
            let zone = &claim.spec.zone;
            let message =
                format!("{address} in zone {zone}: cloud-network-config-controller did not attach it: {message}");
            self.unmet(name, Reason::CloudError, message);
        }
    }

    /// Zones that got their first node after the namespace got its addresses.
    fn report_uncovered(&mut self, name: &NamespaceName, keep: &[Owned<'a>]) {
        let chosen = !keep.is_empty() && keep.iter().all(|(_, claim)| claim.status.served && !claim.spec.requested);
        let index = self.index;
        for zone in index.by_zone.keys().filter(|_| chosen) {
            if keep.iter().all(|(_, claim)| claim.spec.zone != **zone) {
                let message = format!("zone {zone} has nodes and the namespace no address there: add one to its list");
                self.unmet(name, Reason::ZoneWithoutAddress, message);
            }
        }
    }

    /// Nodes that have or get another address of the same namespace.
    fn barred(&self, claims: &[Owned<'a>], except: Option<Ipv4Addr>) -> Vec<NodeId> {
        let others = claims.iter().filter(|(address, _)| Some(*address) != except);
        others.flat_map(|(_, claim)| claim.hosts()).filter_map(|node| self.index.id(node)).collect()
    }
}

/// A failure that was rolled back: the attempt is repeated once its address has cooled down.
pub(super) struct HeldBack<'a> {
    pub(super) zone: &'a Zone,
    error: &'a CloudError,
}

impl HeldBack<'_> {
    pub(super) fn report(&self) -> (Reason, String) {
        (reason_of(self.error), format!("zone {}: {}; tried again later", self.zone, self.error))
    }
}

fn held_back<'a>(namespace: &Namespace, claims: &[Owned<'a>]) -> Vec<HeldBack<'a>> {
    let rolled_back = claims
        .iter()
        .filter(|(_, claim)| claim.status.state == State::Releasing && claim.spec.owner.uid == namespace.uid);
    let failures = rolled_back.filter_map(|(_, claim)| Some((claim, claim.status.rolled_back.as_ref()?)));
    failures.map(|(claim, error)| HeldBack { zone: &claim.spec.zone, error }).collect()
}
