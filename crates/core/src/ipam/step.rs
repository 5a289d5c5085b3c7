//! The next step of one claim: what the journal records and the cloud shows decide.

use std::net::Ipv4Addr;

use super::action::{Action, Step};
use super::cloud::InstanceId;
use super::draft::Draft;
use super::error::{CloudError, Severity};
use super::index::{Host, Location, NodeId};
use super::journal::{Claim, ClaimStatus, LastError, State, Target};
use super::reason::Reason;
use super::types::{CallKind, Moment};
use crate::pick;

/// Nodes that refuse an address before the attempt counts as failed.
const REFUSALS: u32 = 5;

/// What stands in the way of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It fails until something changes.
    Fails(Reason, String),
    /// Somebody else has it, and no other one will do.
    InUse(String),
    /// Somebody else has it; another one is drawn.
    Redraw,
}

impl<'a> Draft<'a> {
    /// What stands in the way of an address that is wanted; `barred` are the nodes of the owner's other addresses.
    pub(super) fn obstacle(&self, address: Ipv4Addr, claim: &Claim, barred: &[NodeId]) -> Option<Obstacle> {
        let status = &claim.status;
        if self.index.locate(address, claim) == Location::InUse {
            let redraws = !claim.spec.requested && !status.served;
            return Some(if redraws { Obstacle::Redraw } else { Obstacle::InUse(in_use(address)) });
        }
        let waits = matches!(status.state, State::Assigning | State::Moving);
        if let Some(LastError { error, .. }) = status.last_error.as_ref().filter(|_| waits) {
            let fails = match error.severity() {
                Severity::Permanent => true,
                Severity::Node => status.attempts >= REFUSALS || self.other_node(claim, barred).is_err(),
                Severity::Throttled | Severity::Transient | Severity::Address => false,
            };
            if fails {
                return Some(Obstacle::Fails(
                    reason_of(error),
                    format!("{address} in zone {}: {error}", claim.spec.zone),
                ));
            }
        }
        if self.home(claim, barred).is_none()
            && let Err(reason) = self.other_node(claim, barred)
        {
            return Some(Obstacle::Fails(reason, no_node(reason, &claim.spec.zone, address)));
        }
        if let Some(host) = self.home(claim, barred).filter(|host| self.is_full(*host, address))
            && self.other_node(claim, barred).is_err()
        {
            let reason = Reason::NoCapacity;
            let what = format!("{address} on {} ({})", claim.spec.node, host.interface);
            return Some(Obstacle::Fails(reason, no_node(reason, &claim.spec.zone, what)));
        }
        if self.is_overdue(claim) {
            let error = status.last_error.as_ref().map_or(&CloudError::Transient, |last| &last.error);
            return Some(Obstacle::Fails(reason_of(error), format!("{address} in zone {}: {error}", claim.spec.zone)));
        }
        None
    }

    /// Next step of a wanted address towards its node. `may_start`: a first call may be made.
    pub(super) fn advance(&mut self, address: Ipv4Addr, claim: &Claim, barred: &[NodeId], may_start: bool) {
        let status = &claim.status;
        if status.state == State::Reserved && !may_start {
            return;
        }
        let location = self.index.locate(address, claim);
        let host = self.home(claim, barred);
        match (location, host) {
            (Location::Unknown, _) => {
                self.plan.awaiting.extend(status.target.as_ref().map(|target| target.instance.clone()));
                self.plan.awaiting.extend(host.map(|host| host.instance.clone()));
            }
            (Location::InUse, _) => self.block(address, claim),
            (Location::At(instance), Some(host)) if instance == host.instance => self.arrived(address, claim, host),
            (Location::At(_) | Location::Nowhere, None) => self.retarget(address, claim, barred),
            (Location::At(_) | Location::Nowhere, Some(host)) => {
                let is_full = self.is_full(host, address);
                if (is_full || was_refused(claim, host)) && self.other_node(claim, barred).is_ok() {
                    self.retarget(address, claim, barred);
                } else if !is_full {
                    self.put(address, claim, host, location);
                }
            }
        }
    }

    /// Gives an address up: journal first.
    pub(super) fn release(&mut self, address: Ipv4Addr, claim: &Claim, step: Step) {
        let mut after = claim.clone();
        let status = &mut after.status;
        let last_error = status.last_error.take().map(|last| last.error);
        let overdue = self.is_overdue(claim).then_some(CloudError::Transient);
        status.rolled_back = last_error.or(overdue).filter(|error| {
            step == Step::RollBack && !matches!(error, CloudError::InUse { .. } | CloudError::Throttled)
        });
        status.gone = status.target.is_none() && status.earlier.is_empty();
        status.state = State::Releasing;
        status.since = self.index.world.now;
        status.served = false;
        status.attempts = 0;
        self.update(address, after, step);
    }

    /// The next step of an address that is on its way out.
    pub(super) fn advance_release(&mut self, address: Ipv4Addr, claim: &Claim) {
        let owner = &claim.spec.owner.name;
        let net_namespace = self.index.world.net_namespaces.get(owner);
        let is_published = net_namespace.is_some_and(|found| found.egress_ips.contains(&address))
            || !self.index.listed(address).is_empty();
        if is_published {
            return;
        }
        let location = self.index.locate(address, claim);
        let status = &claim.status;
        let now = self.index.world.now;
        match location {
            Location::Unknown => {
                self.plan.awaiting.extend(status.target.as_ref().map(|target| target.instance.clone()));
            }
            Location::At(instance) => {
                let Some(seen) = self.index.cloud.nodes.get(instance) else { return };
                let Some(interface) = &seen.what.interface else { return };
                let node = self.index.node_of(instance).cloned();
                let known = status.target.as_ref().filter(|target| target.instance == *instance);
                let name = node.or_else(|| known.map(|target| target.node.clone()));
                let name = name.unwrap_or_else(|| claim.spec.node.clone());
                if known.is_some() && !status.gone {
                    let subnet = &seen.what.subnet;
                    let host = Host { instance, interface: &interface.id, subnet, zone: &seen.what.zone };
                    self.call(CallKind::Release, host, address, false);
                    return;
                }
                let target = Target { node: name.clone(), instance: instance.clone(), interface: interface.id.clone() };
                let mut after = claim.clone();
                after.status.aim(target);
                after.status.node = Some(name);
                (after.status.since, after.status.gone) = (now, false);
                self.update(address, after, Step::Target);
            }
            Location::Nowhere | Location::InUse if !status.gone => {
                let status = ClaimStatus { node: None, last_error: None, since: now, gone: true, ..status.clone() };
                self.confirm(address, Claim { status, ..claim.clone() }, Step::Gone);
            }
            Location::Nowhere | Location::InUse => self.cool(address, claim),
        }
    }

    fn cool(&mut self, address: Ipv4Addr, claim: &Claim) {
        let end = claim.status.since + self.index.world.options.cooling;
        let owner = &claim.spec.owner;
        let namespace = self.index.world.namespaces.get(&owner.name).filter(|found| found.uid == owner.uid);
        if namespace.is_some_and(|found| !found.opted_in && (found.egressips.is_some() || found.modified)) {
            return; // the annotations go first
        }
        let requested = self.index.requested.contains(&address);
        if requested && !claim.deleting && claim.status.rolled_back.is_none() {
            return; // left to whoever requests it
        }
        if end > self.index.world.now {
            self.wake_at(end);
            return;
        }
        // A call whose answer got lost may still have happened: the last look is newer than the cooling.
        let mut calls = claim.status.calls().filter(|_| self.index.world.cloud_controller.is_none());
        let unseen = calls.find(|target| {
            self.index.cloud.nodes.contains_key(&target.instance) && self.index.began(&target.instance) < end
        });
        match unseen {
            Some(target) => drop(self.plan.awaiting.insert(target.instance.clone())),
            None => self.plan.actions.push(Action::DeleteClaim(address)),
        }
    }

    fn arrived(&mut self, address: Ipv4Addr, claim: &Claim, host: Host<'a>) {
        match claim.status.state {
            State::Attached | State::Published => {}
            State::Reserved | State::Assigning | State::Moving | State::Releasing | State::Blocked => {
                let mut status = ClaimStatus {
                    state: State::Attached,
                    node: Some(claim.spec.node.clone()),
                    attempts: 0,
                    last_error: None,
                    since: self.index.world.now,
                    ..claim.status.clone()
                };
                status.aim(target_at(claim, host));
                self.confirm(address, Claim { status, ..claim.clone() }, Step::Attached);
            }
        }
    }

    fn block(&mut self, address: Ipv4Addr, claim: &Claim) {
        if claim.status.state == State::Blocked {
            return;
        }
        let error = LastError { error: CloudError::InUse { by: None }, at: self.index.world.now };
        let last_error = claim.status.last_error.clone().filter(|last| matches!(last.error, CloudError::InUse { .. }));
        let status = ClaimStatus {
            state: State::Blocked,
            node: None,
            last_error: last_error.or(Some(error)),
            since: self.index.world.now,
            ..claim.status.clone()
        };
        self.update(address, Claim { status, ..claim.clone() }, Step::Block);
    }

    /// Chooses another node of the same subnet, and records it.
    fn retarget(&mut self, address: Ipv4Addr, claim: &Claim, barred: &[NodeId]) {
        let Ok(node) = self.other_node(claim, barred) else { return };
        let Some(target) = self.index.target(node) else { return };
        self.room.take(node, address);
        self.chosen_nodes.push(node);
        let mut after = claim.clone();
        after.spec.node = target.node.clone();
        let status = &mut after.status;
        if status.state == State::Reserved {
            self.update(address, after, Step::Move);
            return;
        }
        status.aim(target);
        status.state = State::Moving;
        status.since = self.index.world.now;
        status.last_error = None;
        self.update(address, after, Step::Move);
    }

    /// Records where the address is put, and puts it there.
    fn put(&mut self, address: Ipv4Addr, claim: &Claim, host: Host<'a>, location: Location<'a>) {
        let status = &claim.status;
        let elsewhere = match location {
            Location::At(instance) => Some(instance),
            Location::InUse | Location::Nowhere | Location::Unknown => None,
        };
        let is_on_its_way = match status.state {
            State::Moving => true,
            State::Assigning => elsewhere.is_none(),
            State::Reserved | State::Attached | State::Published | State::Releasing | State::Blocked => false,
        };
        let is_recorded = status.target.as_ref().is_some_and(|target| {
            target.instance == *host.instance && target.interface == *host.interface && target.node == claim.spec.node
        });
        if !is_on_its_way || !is_recorded {
            let moving = elsewhere.is_some() || status.state == State::Moving;
            let (state, step) = match (moving, status.served) {
                (true, _) => (State::Moving, Step::Move),
                (false, true) => (State::Assigning, Step::Repair),
                (false, false) => (State::Assigning, Step::Target),
            };
            let node = elsewhere.and_then(|instance| self.index.node_of(instance)).or(status.node.as_ref());
            let mut status = ClaimStatus {
                state,
                node: node.cloned(),
                attempts: 0,
                last_error: None,
                since: self.index.world.now,
                ..status.clone()
            };
            status.aim(target_at(claim, host));
            self.update(address, Claim { status, ..claim.clone() }, step);
            return;
        }
        if !self.index.publishes_first() && !self.index.listed(address).is_empty() {
            return; // no HostSubnet may list it before it is there
        }
        match elsewhere {
            None => self.call(CallKind::Assign, host, address, status.state == State::Moving),
            // Only a look that is newer than the loss, and not old itself, proves that it is still ours.
            Some(instance) if self.is_proof(instance, status.since) => {
                self.call(CallKind::Take, host, address, true);
            }
            Some(instance) => drop(self.plan.awaiting.insert(instance.clone())),
        }
    }

    /// The interface that a claim wants, if its node can have it. While the address was blocked, another one of the
    /// owner may have got the node.
    fn home(&self, claim: &Claim, barred: &[NodeId]) -> Option<Host<'a>> {
        let host = self.index.usable_host(claim)?;
        let taken = |id: NodeId| barred.contains(&id) || self.chosen_nodes.contains(&id);
        let is_taken = claim.status.state == State::Blocked && self.index.id(&claim.spec.node).is_some_and(taken);
        (!is_taken).then_some(host)
    }

    fn is_proof(&self, instance: &InstanceId, loss: Moment) -> bool {
        let began = self.index.began(instance);
        began > loss && began + self.index.world.options.visible_within > self.index.world.now
    }

    /// True if the cloud shows that an interface has no room for the address.
    fn is_full(&self, host: Host<'a>, address: Ipv4Addr) -> bool {
        let Some(node) = self.index.cloud.nodes.get(host.instance).map(|seen| &seen.what) else { return false };
        node.interface.as_ref().is_some_and(|interface| {
            let used = interface.secondary.len() + 1 + usize::from(interface.prefixes);
            used >= usize::from(node.address_limit) && !interface.secondary.contains(&address)
        })
    }

    /// Another node of the same subnet for an address.
    fn other_node(&self, claim: &Claim, barred: &[NodeId]) -> Result<NodeId, Reason> {
        let nodes = self.index.by_subnet.get(&claim.spec.subnet).map_or(&[][..], Vec::as_slice);
        let owner = &claim.spec.owner;
        let key = pick::hash(self.index.world.seed, &[owner.uid.as_bytes(), claim.spec.zone.as_bytes()]);
        let own = self.index.id(&claim.spec.node);
        let others: Vec<NodeId> = nodes.iter().copied().filter(|node| Some(*node) != own).collect();
        let barred: Vec<NodeId> = barred.iter().chain(&self.chosen_nodes).copied().collect();
        self.room.choose(&others, &barred, key)
    }

    /// True if the assignment of an address takes too long.
    fn is_overdue(&self, claim: &Claim) -> bool {
        let status = &claim.status;
        matches!(status.state, State::Assigning | State::Moving)
            && !status.served
            && status.since + self.index.world.options.rollback_after <= self.index.world.now
    }
}

fn was_refused(claim: &Claim, host: Host<'_>) -> bool {
    let status = &claim.status;
    status.last_error.as_ref().is_some_and(|last| last.error.severity() == Severity::Node)
        && status.target.as_ref().is_some_and(|target| target.interface == *host.interface)
}

fn target_at(claim: &Claim, host: Host<'_>) -> Target {
    let node = claim.spec.node.clone();
    Target { node, instance: host.instance.clone(), interface: host.interface.clone() }
}

/// The reason that a failure of the cloud gives to a namespace.
pub(super) fn reason_of(error: &CloudError) -> Reason {
    match error {
        CloudError::Throttled => Reason::CloudThrottled,
        CloudError::InUse { .. } => Reason::AddressInUse,
        CloudError::LimitExceeded => Reason::NoCapacity,
        CloudError::OutsideSubnet => Reason::InvalidRequest,
        CloudError::SubnetFull => Reason::SubnetFull,
        CloudError::NoSuchInterface | CloudError::NoSuchInstance => Reason::NoNodeInZone,
        CloudError::Denied { .. } => Reason::CloudDenied,
        CloudError::Transient => Reason::CloudUnavailable,
        CloudError::Unknown { .. } => Reason::CloudError,
    }
}

/// Somebody else has the address.
pub(super) fn in_use(address: Ipv4Addr) -> String {
    format!("IP not available, already used: {address} has another holder; free it, or request another address")
}

/// No node can take the address.
pub(super) fn no_node(reason: Reason, zone: &str, what: impl std::fmt::Display) -> String {
    let cause = match reason {
        Reason::NotEnoughNodes => "every node there has an address of this namespace already: add a node",
        Reason::NoCapacity => "no node there has room for another address: add nodes or use larger instances",
        Reason::SubnetFull => "its subnets have no free address: free some, or add a subnet with nodes",
        Reason::NoNodeInZone
        | Reason::InvalidRequest
        | Reason::AddressInUse
        | Reason::NetNamespaceMissing
        | Reason::SharedNetId
        | Reason::ZoneWithoutAddress
        | Reason::CloudDenied
        | Reason::CloudThrottled
        | Reason::CloudUnavailable
        | Reason::CloudError
        | Reason::NetworkUnknown => "no ready compute node is in its subnet: add one, or repair the nodes there",
    };
    format!("{what} in zone {zone}: {cause}")
}
