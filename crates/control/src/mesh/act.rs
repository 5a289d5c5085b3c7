//! Writes the objects that names make necessary: created, kept in step, taken away. A user's object is never written.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use portolan_api::mesh::{Target, TargetSpec, VirtualService, VirtualServiceSpec};
use portolan_core::mesh::control::types::{MeshKind, ObjectName};
use portolan_core::mesh::control::{GeneratedObject, ObjectOrigin, Resolver};
use serde::Serialize;
use serde_json::{Map, Value};

use super::fleet::Owner;
use super::observe::{Cache, key};
use super::tell::{Teller, reference, told};
use crate::runtime::Error;
use crate::runtime::endpoint::Part;
use crate::runtime::events::Tone;
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

/// What became of them.
#[derive(Default)]
pub(super) struct Brought {
    /// Something was written.
    pub(super) wrote: bool,
    /// The API server does not let us: they live in memory, and proxies get what they mean all the same.
    pub(super) forbidden: bool,
    pub(super) failure: Option<Error>,
}

/// What writes them, and what it looks at.
pub(super) struct Generating<'a> {
    pub(super) writer: &'a Writer,
    pub(super) teller: &'a Teller,
    pub(super) cache: &'a Cache,
    pub(super) resolver: &'a Resolver,
}

impl Generating<'_> {
    /// Brings the objects named to what they should be; those that are left need another turn.
    pub(super) async fn bring(&self, due: &mut BTreeSet<Owner>) -> Brought {
        let mut brought = Brought::default();
        for (kind, name) in std::mem::take(due) {
            let done = match kind {
                MeshKind::VirtualService => self.one(&self.cache.virtual_services, kind, &name).await,
                MeshKind::Target => self.one(&self.cache.targets, kind, &name).await,
                MeshKind::Route | MeshKind::Rule | MeshKind::Service => Ok(false),
            };
            match done {
                Ok(wrote) => brought.wrote |= wrote,
                Err(problem) => {
                    due.insert((kind, name));
                    if problem.is_forbidden() {
                        brought.forbidden = true;
                    } else {
                        brought.failure.get_or_insert(problem);
                    }
                }
            }
        }
        brought
    }

    async fn one<K: Generated>(&self, store: &Store<K>, kind: MeshKind, name: &ObjectName) -> Result<bool, Error> {
        let wanted = self.resolver.generated(kind, name);
        let Some(seen) = store.get(&key(name)) else {
            let Some(wanted) = wanted else { return Ok(false) };
            let object = K::made(metadata(name, &wanted), map(&wanted.spec));
            self.writer.create(store, &object).await?;
            self.created(&(kind, name.clone()), &wanted);
            return Ok(true);
        };
        match (self.resolver.origin(kind, name), wanted) {
            // its owner is at it
            (None | Some(ObjectOrigin::User), _) => Ok(false),
            (Some(ObjectOrigin::TakenOver), _) => self.hand_over(store, &seen).await.map(|()| true),
            (Some(ObjectOrigin::Generated), None) => {
                self.writer.delete(store, &*seen).await?;
                let note = "nobody names it any more".to_owned();
                self.teller.tell(seen.object_ref(&()), Tone::Normal, ("GeneratedObjectRemoved", "Remove"), note);
                Ok(true)
            }
            (Some(ObjectOrigin::Generated), Some(wanted)) => {
                let mut object = K::clone(&seen);
                let made = metadata(name, &wanted);
                let own = object.meta_mut();
                own.labels.get_or_insert_default().extend(made.labels.unwrap_or_default());
                own.annotations.get_or_insert_default().extend(made.annotations.unwrap_or_default());
                own.owner_references = made.owner_references;
                object.set(map(&wanted.spec));
                let differs = serde_json::to_value(&object).ok() != serde_json::to_value(&*seen).ok();
                if differs {
                    self.writer.replace(store, Part::Object, &object).await?;
                }
                Ok(differs)
            }
        }
    }

    /// A user has taken it over: our marks come off, or it would go with those who named it.
    async fn hand_over<K: Generated>(&self, store: &Store<K>, seen: &K) -> Result<(), Error> {
        let mut object = seen.clone();
        let own = object.meta_mut();
        let is_ours = |name: &str| name.starts_with("l7mp.io/generated") || name == MANAGED_BY;
        if let Some(labels) = &mut own.labels {
            labels.retain(|name, _| !is_ours(name));
        }
        if let Some(annotations) = &mut own.annotations {
            annotations.retain(|name, _| !is_ours(name));
        }
        own.owner_references = None;
        self.writer.replace(store, Part::Object, &object).await?;
        let note = "it was generated and has been edited since: it is yours now, and stays as you leave it".to_owned();
        self.teller.tell(seen.object_ref(&()), Tone::Normal, ("GeneratedObjectTaken", "HandOver"), note);
        Ok(())
    }

    /// Told on the first of those that made it necessary: they are what users look at.
    fn created(&self, made: &Owner, wanted: &GeneratedObject) {
        let Some(owner) = wanted.owners.first() else { return };
        let name = ObjectName::new(made.1.namespace.clone(), owner.name.clone());
        let note = format!("{} was generated, as a name makes it necessary", told(made));
        let regarding = reference(&(owner.kind, name), Some(owner.uid.to_string()));
        self.teller.tell(regarding, Tone::Normal, ("GeneratedObjectCreated", "Generate"), note);
    }
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
