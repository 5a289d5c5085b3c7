//! The life cycle of CustomResourceDefinitions: their status, the kinds they serve, and their deletion.

use std::sync::Arc;

use serde_json::Value;

use crate::crd::{self, CLEANUP, Names, Served, ServedKind, conditions};
use crate::kinds::{Kind, builtin, events};
use crate::object::{get_meta, has_finalizers, is_deleting, set_meta, time};
use crate::schema::cel::Rules;
use crate::state::ServerState;
use crate::store::{Change, Entry, Expect, Resource};

const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

impl ServerState {
    /// Whether a write of this kind can change what is served.
    pub(crate) fn is_of_definitions(&self, kind: &Kind) -> bool {
        let is_ending = || self.served().get(&kind.group, &kind.version, &kind.plural).is_some_and(|kind| kind.ending);
        (kind.group.as_str(), kind.plural.as_str()) == DEFINITIONS || (kind.custom && is_ending())
    }

    /// Updates the status of every definition, finishes those that are being deleted, and serves the rest.
    pub(crate) async fn settle_definitions(&self) {
        self.accept_definitions().await;
        if self.end_definitions().await {
            // Their names are free for others.
            self.accept_definitions().await;
        }
        self.serve_definitions();
    }

    /// Serves the built-in kinds and those of definitions whose names were accepted.
    pub(crate) fn serve_definitions(&self) {
        let _one_at_a_time = self.serving.lock();
        let definitions = self.all(DEFINITIONS);
        let custom = definitions.iter().flat_map(|(_, definition)| {
            let ending = is_deleting(definition);
            crd::kinds(definition).into_iter().map(move |kind| (kind, ending))
        });
        let all = builtin::all().into_iter().map(|kind| (kind, false)).chain(custom);
        let kinds = all.map(|(kind, ending)| {
            let group = if events::is_view(&kind) { "" } else { &kind.group };
            let resource = Resource::new(group, &kind.plural);
            let rules = if kind.custom { Rules::compile(&kind.schema) } else { Rules::default() };
            ServedKind { kind, rules, ending, resource }
        });
        let served: Served = kinds.collect();
        *self.served.write() = Arc::new(served);
    }

    /// Updates the status of every definition.
    async fn accept_definitions(&self) {
        let definitions = self.all(DEFINITIONS);
        for (entry, definition) in &definitions {
            let held = Names::held(definition, definitions.iter().map(|(_, other)| other));
            let status = conditions(definition, &held, &time(self.clock.now()));
            if definition["status"] != status {
                let mut accepted = definition.clone();
                accepted["status"] = status;
                self.put(entry, accepted, false).await;
            }
        }
    }

    /// Deletes the objects of definitions that are being deleted, and those definitions that have none left. Returns
    /// whether one was deleted.
    async fn end_definitions(&self) -> bool {
        let mut ended = false;
        for (entry, mut definition) in self.all(DEFINITIONS) {
            let mut finalizers = get_meta(&definition, "finalizers").as_array().cloned().unwrap_or_default();
            if !is_deleting(&definition) || !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
                continue;
            }
            let text = |pointer| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let which = (text("/spec/group"), text("/spec/names/plural"));
            for (entry, object) in self.all(which) {
                self.end(&entry, object).await;
            }
            if !self.all(which).is_empty() {
                continue;
            }
            finalizers.retain(|finalizer| finalizer != CLEANUP);
            let last = finalizers.is_empty();
            if !last {
                set_meta(&mut definition, "finalizers", finalizers);
            }
            ended |= self.put(&entry, definition, last).await;
        }
        ended
    }

    /// Deletes an object whose kind is being deleted; one with finalizers is marked.
    async fn end(&self, entry: &Entry, mut object: Value) {
        let held = has_finalizers(&object);
        if held && is_deleting(&object) {
            return;
        }
        if held {
            set_meta(&mut object, "deletionTimestamp", time(self.clock.now()));
            set_meta(&mut object, "deletionGracePeriodSeconds", 0);
            let generation = get_meta(&object, "generation").as_i64().unwrap_or(0);
            set_meta(&mut object, "generation", generation + 1);
        }
        self.put(entry, object, !held).await;
    }

    /// Stores an object over its entry, or deletes it (`last`). False when another write came in between: that write then
    /// updates the definitions.
    async fn put(&self, entry: &Entry, mut object: Value, last: bool) -> bool {
        let change = move |revision: u64| {
            set_meta(&mut object, "resourceVersion", revision.to_string());
            let bytes = object.to_string().into_bytes();
            if last { Change::Delete(bytes) } else { Change::Set(bytes) }
        };
        self.store.commit(entry.key.clone(), Expect::Revision(entry.revision), change).await.is_ok()
    }
}
