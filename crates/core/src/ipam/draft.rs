//! A plan in the making.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::action::{Action, ClaimWrite, CloudCall, Plan, Step};
use super::index::{Host, Index, NodeId};
use super::journal::Claim;
use super::reason::{Event, Reason, Unmet};
use super::room::Room;
use super::types::{CallKind, Moment, NamespaceName, NodeName};

/// Decides namespace by namespace; what was decided counts for the next ones.
pub(super) struct Draft<'a> {
    pub(super) index: &'a Index<'a>,
    pub(super) room: Room,
    /// Nodes chosen for the namespace that is being decided.
    pub(super) chosen_nodes: Vec<NodeId>,
    /// Addresses of ours that each HostSubnet should have.
    pub(super) hosted: BTreeMap<&'a NodeName, BTreeSet<Ipv4Addr>>,
    pub(super) plan: Plan,
    /// Claims of the namespace that is being decided that get written.
    written: BTreeSet<Ipv4Addr>,
    /// Where the reports of the namespace begin that is being decided.
    unmet_from: usize,
    calls: BTreeMap<(bool, CallKind, &'a str), CloudCall>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(index: &'a Index<'a>) -> Self {
        let room = Room::of(index);
        Self {
            index,
            room,
            chosen_nodes: Vec::new(),
            hosted: BTreeMap::new(),
            plan: Plan::default(),
            written: BTreeSet::new(),
            unmet_from: 0,
            calls: BTreeMap::new(),
        }
    }

    /// Begins the decision about a namespace.
    pub(super) fn begin(&mut self) {
        self.chosen_nodes.clear();
        self.written.clear();
        self.unmet_from = self.plan.unmet.len();
    }

    /// What was reported for the namespace that is being decided.
    pub(super) fn reported(&self) -> &[Unmet] {
        &self.plan.unmet[self.unmet_from..]
    }

    pub(super) fn create(&mut self, address: Ipv4Addr, claim: Claim, step: Step) {
        self.plan.actions.push(Action::CreateClaim(ClaimWrite { address, claim, step }));
    }

    /// True if the claim is written anyway.
    pub(super) fn is_written(&self, address: Ipv4Addr) -> bool {
        self.written.contains(&address)
    }

    pub(super) fn update(&mut self, address: Ipv4Addr, claim: Claim, step: Step) {
        self.written.insert(address);
        self.plan.actions.push(Action::UpdateClaim(ClaimWrite { address, claim, step }));
    }

    pub(super) fn confirm(&mut self, address: Ipv4Addr, claim: Claim, step: Step) {
        self.plan.actions.push(Action::ConfirmClaim(ClaimWrite { address, claim, step }));
    }

    /// Makes a call due, unless one like it just succeeded or another controller does the calls.
    pub(super) fn call(&mut self, kind: CallKind, host: Host<'a>, address: Ipv4Addr, failover: bool) {
        self.plan.awaiting.insert(host.instance.clone());
        if self.index.world.cloud_controller.is_some() {
            return;
        }
        let within = self.index.world.options.visible_within;
        let visible_by = self.index.calls.visible_by(kind, host.interface, address, within);
        if let Some(visible_by) = visible_by.filter(|moment| *moment > self.index.world.now) {
            self.wake_at(visible_by);
            return;
        }
        let call = self.calls.entry((!failover, kind, host.interface)).or_insert_with(|| CloudCall {
            kind,
            failover,
            interface: host.interface.clone(),
            instance: host.instance.clone(),
            addresses: BTreeSet::new(),
        });
        call.addresses.insert(address);
    }

    pub(super) fn unmet(&mut self, namespace: &NamespaceName, reason: Reason, message: String) {
        self.plan.unmet.push(Unmet { namespace: namespace.clone(), reason, message });
    }

    pub(super) fn event(&mut self, event: Event) {
        self.plan.events.push(event);
    }

    /// Remembers a moment that changes the plan.
    pub(super) fn wake_at(&mut self, moment: Moment) {
        if moment > self.index.world.now {
            self.plan.wake = Some(self.plan.wake.map_or(moment, |wake| wake.min(moment)));
        }
    }

    /// The plan: calls first, failover before all others.
    pub(super) fn finish(mut self) -> Plan {
        let mut actions: Vec<Action> = self.calls.into_values().map(Action::Call).collect();
        actions.append(&mut self.plan.actions);
        Plan { actions, ..self.plan }
    }
}
