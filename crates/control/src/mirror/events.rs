//! Events of the mirror: on the local Service involved, else on the RemoteCluster.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use kube::Resource;
use portolan_core::mirror::{Reason, RemoteName, Role, ServiceName, Unmet};

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

    /// Something is unmet: on the object if there is one, else on the RemoteCluster, which names it.
    fn unmet<K: Resource<DynamicType = ()>>(
        &self,
        cache: &Cache,
        object: Option<&K>,
        action: &'static str,
        name: &str,
        unmet: &Unmet,
    ) {
        let details = |note| EventDetails { reason: unmet.reason.as_str(), action, note };
        let remote = || cache.remotes.get(&Key::of_cluster(unmet.remote.as_ref()?));
        if let Some(object) = object {
            self.recorder.record(object, EventType::Warning, &details(&unmet.message));
        } else if let Some(remote) = remote() {
            let note = format!("{name}: {}", unmet.message);
            self.recorder.record(remote.as_ref(), EventType::Warning, &details(&note));
        }
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
        for unmet in self.new_ones(name, unmet) {
            // Its condition says so, and its change is an event.
            if !decision.is_some_and(|decision| concerns(role, decision, unmet)) {
                let service = cache.services.get(&service_key(name));
                events.unmet(cache, service.as_deref(), "Mirror", &format!("Service {name}"), unmet);
            }
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
        for unmet in self.new_ones(name, unmet) {
            let import = cache.imports.get(&service_key(name));
            events.unmet(cache, import.as_deref(), "Import", &format!("ServiceImport {name}"), unmet);
        }
    }

    /// Those that were not there when the name was looked at last.
    fn new_ones<'a>(&mut self, name: &ServiceName, unmet: &'a [Unmet]) -> impl Iterator<Item = &'a Unmet> {
        let before = self.reasons.remove(name).unwrap_or_default();
        if !unmet.is_empty() {
            let reasons = unmet.iter().map(|unmet| (unmet.remote.clone(), unmet.reason)).collect();
            self.reasons.insert(name.clone(), reasons);
        }
        unmet.iter().filter(move |unmet| !before.contains(&(unmet.remote.clone(), unmet.reason)))
    }
}
