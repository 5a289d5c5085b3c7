//! The objects that references make necessary: created, kept in step, deleted. A user's object is never written.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use portolan_api::mesh::{Target, TargetSpec, VirtualService, VirtualServiceSpec};
use portolan_core::mesh::control::types::{MeshKind, ObjectName};
use portolan_core::mesh::control::{GeneratedObject, ObjectOrigin, Resolver};
use serde::Serialize;
use serde_json::{Map, Value};

use super::super::events::MeshEvents;
use super::super::observe::{Cache, key};
use super::super::owner::{Owner, display, reference};
use crate::runtime::due::Prepared;
use crate::runtime::endpoint::Part;
use crate::runtime::events::EventType;
use crate::runtime::store::Store;
use crate::runtime::watch;
use crate::runtime::write::Writer;

/// A kind of which objects are generated.
trait Generated: watch::Kind + Serialize {
    fn made(metadata: ObjectMeta, spec: Map<String, Value>) -> Self;
    fn set(&mut self, spec: Map<String, Value>);
}

impl Generated for VirtualService {
    fn made(metadata: ObjectMeta, spec: Map<String, Value>) -> Self {
        Self { metadata, spec: VirtualServiceSpec(spec), status: None }
    }

    fn set(&mut self, spec: Map<String, Value>) {
        self.spec = VirtualServiceSpec(spec);
    }
}

impl Generated for Target {
    fn made(metadata: ObjectMeta, spec: Map<String, Value>) -> Self {
        Self { metadata, spec: TargetSpec(spec), status: None }
    }

    fn set(&mut self, spec: Map<String, Value>) {
        self.spec = TargetSpec(spec);
    }
}

/// What they are written with, and what that looks at.
pub(in super::super) struct Generating<'a> {
    pub(in super::super) writer: &'a Writer,
    pub(in super::super) events: &'a MeshEvents,
    pub(in super::super) cache: &'a Cache,
    pub(in super::super) resolver: &'a Resolver,
}

/// That something was written.
pub(in super::super) struct Generation;

impl Generating<'_> {
    /// What a generated object needs.
    pub(in super::super) fn prepare(&self, (kind, name): &Owner) -> Prepared<Generation> {
        match kind {
            MeshKind::VirtualService => self.one(&self.cache.virtual_services, *kind, name),
            MeshKind::Target => self.one(&self.cache.targets, *kind, name),
            MeshKind::Route | MeshKind::Rule | MeshKind::Service => Prepared::Nothing,
        }
    }

    fn one<K: Generated>(&self, store: &Store<K>, kind: MeshKind, name: &ObjectName) -> Prepared<Generation> {
        let wanted = self.resolver.generated(kind, name);
        let Some(seen) = store.get(&key(name)) else {
            return wanted.map_or(Prepared::Nothing, |wanted| self.create(store, &(kind, name.clone()), &wanted));
        };
        match (self.resolver.origin(kind, name), wanted) {
            // a user's object, or not resolved yet
            (None | Some(ObjectOrigin::User), _) => Prepared::Nothing,
            (Some(ObjectOrigin::TakenOver), _) => self.hand_over(store, &seen),
            (Some(ObjectOrigin::Generated), None) => self.delete(store, seen),
            (Some(ObjectOrigin::Generated), Some(wanted)) => self.update(store, &seen, name, &wanted),
        }
    }

    fn create<K: Generated>(&self, store: &Store<K>, made: &Owner, wanted: &GeneratedObject) -> Prepared<Generation> {
        let object = K::made(metadata(&made.1, wanted), map(&wanted.spec));
        // Recorded on the first object that made it necessary: that is what users look at.
        let regarding = wanted.owners.first().map(|owner| {
            let name = ObjectName::new(made.1.namespace.clone(), owner.name.clone());
            reference(&(owner.kind, name), Some(owner.uid.to_string()))
        });
        let note = format!("{} was generated because a reference needs it", display(made));
        let (writer, store, events) = (self.writer.clone(), store.clone(), self.events.clone());
        Prepared::write(async move {
            writer.create(&store, &object).await?;
            if let Some(regarding) = regarding {
                record(&events, regarding, "GeneratedObjectCreated", "Generate", &note);
            }
            Ok(Generation)
        })
    }

    fn update<K: Generated>(
        &self,
        store: &Store<K>,
        seen: &Arc<K>,
        name: &ObjectName,
        wanted: &GeneratedObject,
    ) -> Prepared<Generation> {
        let mut object = K::clone(seen);
        let made = metadata(name, wanted);
        let own = object.meta_mut();
        own.labels.get_or_insert_default().extend(made.labels.unwrap_or_default());
        own.annotations.get_or_insert_default().extend(made.annotations.unwrap_or_default());
        own.owner_references = made.owner_references;
        object.set(map(&wanted.spec));
        if serde_json::to_value(&object).ok() == serde_json::to_value(&**seen).ok() {
            return Prepared::Nothing;
        }
        let (writer, store) = (self.writer.clone(), store.clone());
        Prepared::write(async move {
            writer.replace(&store, Part::Object, &object).await?;
            Ok(Generation)
        })
    }

    fn delete<K: Generated>(&self, store: &Store<K>, seen: Arc<K>) -> Prepared<Generation> {
        let (writer, store, events) = (self.writer.clone(), store.clone(), self.events.clone());
        Prepared::write(async move {
            writer.delete(&store, seen.as_ref()).await?;
            record(&events, seen.object_ref(&()), "GeneratedObjectRemoved", "Remove", "nothing refers to it any more");
            Ok(Generation)
        })
    }

    /// A user has edited it: our labels, annotations and owners are removed, or it would be deleted with those owners.
    fn hand_over<K: Generated>(&self, store: &Store<K>, seen: &Arc<K>) -> Prepared<Generation> {
        let mut object = K::clone(seen);
        let own = object.meta_mut();
        let is_ours = |name: &str| name.starts_with("l7mp.io/generated") || name == MANAGED_BY;
        if let Some(labels) = &mut own.labels {
            labels.retain(|name, _| !is_ours(name));
        }
        if let Some(annotations) = &mut own.annotations {
            annotations.retain(|name, _| !is_ours(name));
        }
        own.owner_references = None;
        let (writer, store, events) = (self.writer.clone(), store.clone(), self.events.clone());
        Prepared::write(async move {
            writer.replace(&store, Part::Object, &object).await?;
            let note = "it was generated and edited since: it is no longer managed, and stays as it is";
            record(&events, object.object_ref(&()), "GeneratedObjectTaken", "HandOver", note);
            Ok(Generation)
        })
    }
}

fn record(events: &MeshEvents, regarding: ObjectReference, reason: &'static str, action: &'static str, note: &str) {
    events.record(regarding, EventType::Normal, (reason, action), note);
}

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

fn metadata(name: &ObjectName, wanted: &GeneratedObject) -> ObjectMeta {
    let owned = |map: &BTreeMap<&'static str, String>| {
        map.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect::<BTreeMap<_, _>>()
    };
    let owners = wanted.owners.iter().map(|owner| OwnerReference {
        api_version: if owner.kind == MeshKind::Service { "v1" } else { "l7mp.io/v1" }.to_owned(),
        kind: owner.kind.as_str().to_owned(),
        name: owner.name.to_string(),
        uid: owner.uid.to_string(),
        ..OwnerReference::default()
    });
    ObjectMeta {
        name: Some(name.name.to_string()),
        namespace: Some(name.namespace.to_string()),
        labels: Some(owned(&wanted.labels)),
        annotations: Some(owned(&wanted.annotations)),
        owner_references: Some(owners.collect()),
        ..ObjectMeta::default()
    }
}

fn map(spec: &Value) -> Map<String, Value> {
    spec.as_object().cloned().unwrap_or_default()
}
