//! Events of the mirror: on the local Service involved, else on the RemoteCluster.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use portolan_core::mirror::{Reason, RemoteName, Role, ServiceName};

use super::mcs::Clusterset;
use super::model::{Model, concerns};
use super::observe::{Cache, service_key};
use super::remote::Moved;
use crate::runtime::events::{EventDetails, EventType, Recorder};
use crate::runtime::store::Key;

/// Records events.
#[derive(Clone)]
pub(super) struct MirrorEvents {
    recorder: Recorder,
}

impl MirrorEvents {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder }
    }

    pub(super) fn adopted(&self, service: &Service, remote: &RemoteName) {
        let note = format!("taken over from Barrelman for {remote}");
        let details = EventDetails { reason: "Adopted", action: "Adopt", note: &note };
        self.recorder.record(service, EventType::Normal, &details);
    }

    pub(super) fn unmirrored(&self, service: &Service, remote: Option<&RemoteName>) {
        let note = match remote {
            Some(remote) => format!("{remote} has no Service of this name to mirror any more"),
            None => "the RemoteCluster that it was made for is gone".to_owned(),
        };
        let reason = if remote.is_some() { "Unmirrored" } else { "Swept" };
        let details = EventDetails { reason, action: "Delete", note: &note };
        self.recorder.record(service, EventType::Normal, &details);
    }

    /// The server of a remote moved, or other certificates are trusted there.
    pub(super) fn moved(&self, cache: &Cache, remote: &RemoteName, moved: Moved, server: &str) {
        let Some(remote) = cache.remotes.get(&Key::of_cluster(remote)) else { return };
        let (reason, note) = match moved {
            Moved::Authority => ("CAChanged", format!("other certificates are trusted at {server} now")),
            Moved::Endpoint => ("EndpointChanged", format!("the API server is at {server} now")),
        };
        let details = EventDetails { reason, action: "Connect", note: &note };
        self.recorder.record(remote.as_ref(), EventType::Normal, &details);
    }
}

/// What was reported as unmet, so that it is reported once.
#[derive(Debug, Default)]
pub(super) struct Reported {
    reasons: BTreeMap<ServiceName, BTreeSet<(Option<RemoteName>, Reason)>>,
}

impl Reported {
    /// Reports what is unmet about a name and was not before.
    pub(super) fn follow(&mut self, events: &MirrorEvents, cache: &Cache, model: &Model, name: &ServiceName) {
        let decision = model.decisions.get(name);
        let role = model.planner.world().local.services.get(name).map_or(Role::Foreign, |service| service.role);
        let unmet = decision.map(|decision| &decision.unmet[..]).unwrap_or_default();
        let reasons: BTreeSet<_> = unmet.iter().map(|unmet| (unmet.remote.clone(), unmet.reason)).collect();
        let before = self.reasons.remove(name).unwrap_or_default();
        for unmet in unmet.iter().filter(|unmet| !before.contains(&(unmet.remote.clone(), unmet.reason))) {
            let details = |note| EventDetails { reason: unmet.reason.as_str(), action: "Mirror", note };
            if decision.is_some_and(|decision| concerns(role, decision, unmet)) {
                // Its condition says so, and its change is an event.
            } else if let Some(service) = cache.services.get(&service_key(name)) {
                events.recorder.record(service.as_ref(), EventType::Warning, &details(&unmet.message));
            } else if let Some(remote) =
                unmet.remote.as_ref().and_then(|remote| cache.remotes.get(&Key::of_cluster(remote)))
            {
                let note = format!("Service {name}: {}", unmet.message);
                events.recorder.record(remote.as_ref(), EventType::Warning, &details(&note));
            }
        }
        if !reasons.is_empty() {
            self.reasons.insert(name.clone(), reasons);
        }
    }

    /// Reports what is unmet about an import and was not before.
    pub(super) fn follow_import(
        &mut self,
        events: &MirrorEvents,
        cache: &Cache,
        clusterset: &Clusterset,
        name: &ServiceName,
    ) {
        let unmet = clusterset.decisions.get(name).map(|decision| &decision.unmet[..]).unwrap_or_default();
        let reasons: BTreeSet<_> = unmet.iter().map(|unmet| (unmet.remote.clone(), unmet.reason)).collect();
        let before = self.reasons.remove(name).unwrap_or_default();
        for unmet in unmet.iter().filter(|unmet| !before.contains(&(unmet.remote.clone(), unmet.reason))) {
            let details = |note| EventDetails { reason: unmet.reason.as_str(), action: "Import", note };
            if let Some(import) = cache.imports.get(&service_key(name)) {
                events.recorder.record(import.as_ref(), EventType::Warning, &details(&unmet.message));
            } else if let Some(remote) =
                unmet.remote.as_ref().and_then(|remote| cache.remotes.get(&Key::of_cluster(remote)))
            {
                let note = format!("ServiceImport {name}: {}", unmet.message);
                events.recorder.record(remote.as_ref(), EventType::Warning, &details(&note));
            }
        }
        if !reasons.is_empty() {
            self.reasons.insert(name.clone(), reasons);
        }
    }
}
