//! Events of ipam: on Namespaces, and on HostSubnets that cannot be used as they are. Each is reported once.

use std::collections::{BTreeMap, BTreeSet};

use portolan_core::ipam::{Event, NamespaceName, Plan, Reason, Step};

use super::act::Done;
use super::observe::Cache;
use crate::runtime::events::{EventDetails, EventType, Recorder};
use crate::runtime::store::Key;

/// Reports what was not reported in this term.
#[derive(Default)]
pub(super) struct Reported {
    unmet: BTreeMap<NamespaceName, BTreeSet<Reason>>,
    events: BTreeSet<Event>,
}

impl Reported {
    /// Reports what a plan says and the one before did not.
    pub(super) fn follow(&mut self, recorder: &Recorder, cache: &Cache, plan: &Plan) {
        let before = std::mem::take(&mut self.unmet);
        for unmet in &plan.unmet {
            let is_new = self.unmet.entry(unmet.namespace.clone()).or_default().insert(unmet.reason);
            let was_there = before.get(&unmet.namespace).is_some_and(|reasons| reasons.contains(&unmet.reason));
            if is_new && !was_there {
                let details = EventDetails { reason: unmet.reason.as_str(), action: "Assign", note: &unmet.message };
                on_namespace(recorder, cache, &unmet.namespace, EventType::Warning, &details);
            }
        }
        let events: BTreeSet<Event> = plan.events.iter().cloned().collect();
        for event in events.difference(&self.events) {
            report(recorder, cache, event);
        }
        self.events = events;
    }
}

/// Reports a step that was recorded.
pub(super) fn done(recorder: &Recorder, cache: &Cache, done: &Done) {
    let Done { step, address, namespace, node } = done;
    let (event_type, action, note) = match step {
        Step::Published => (EventType::Normal, "Assign", format!("{address} is in service on node {node}")),
        Step::Gone => (EventType::Normal, "Release", format!("{address} was released")),
        Step::Move => (EventType::Normal, "Move", format!("{address} goes to node {node}")),
        Step::Repair => {
            (EventType::Normal, "Repair", format!("{address} was missing on node {node} and is put there again"))
        }
        Step::RollBack => (EventType::Warning, "Assign", format!("{address} is given back: the assignment failed")),
        // Why an address is blocked is reported with the plan.
        Step::Block | Step::Reserve | Step::Adopt | Step::Target | Step::Attached | Step::Release => return,
    };
    let Some(reason) = step.event() else { return };
    on_namespace(recorder, cache, namespace, event_type, &EventDetails { reason, action, note: &note });
}

fn report(recorder: &Recorder, cache: &Cache, event: &Event) {
    let (reason, action) = (event.reason(), "Verify");
    let (node, note) = match event {
        Event::NotOptedIn(namespace) => {
            let note = "the namespace lists addresses and did not opt in: set the annotation `egressipam`";
            on_namespace(recorder, cache, namespace, EventType::Warning, &EventDetails { reason, action, note });
            return;
        }
        Event::EgressCidrsSet(node) => {
            (node, "egressCIDRs is set, so the node gets no address of ours: remove it to use the node".to_owned())
        }
        Event::ForeignEgressIp(node, address) => (node, format!("{address} is not recorded by us and is left alone")),
    };
    if let Some(subnet) = cache.host_subnets.get(&Key::of_cluster(node)) {
        recorder.record(&*subnet, EventType::Warning, &EventDetails { reason, action, note: &note });
    }
}

fn on_namespace(
    recorder: &Recorder,
    cache: &Cache,
    namespace: &NamespaceName,
    event_type: EventType,
    details: &EventDetails<'_>,
) {
    if let Some(namespace) = cache.namespaces.get(&Key::of_cluster(namespace)) {
        recorder.record(&*namespace, event_type, details);
    }
}
