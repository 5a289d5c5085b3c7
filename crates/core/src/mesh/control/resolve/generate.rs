//! Objects that names make necessary: real ones, so that users see them, and never in the way of a user's own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::keys::{Callee, Generated};
use super::sets::put;
use super::{Resolver, Use};
use crate::mesh::control::names::spec_hash;
use crate::mesh::control::selector::Selector;
use crate::mesh::control::types::{MeshKind, ObjectName};

/// Users that an object names, at most: with thousands of them it would no longer fit into the API server.
const MOST_USERS: usize = 100;

/// An object as it should be written.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedObject {
    /// Its labels.
    pub labels: BTreeMap<&'static str, String>,
    /// Its annotations.
    pub annotations: BTreeMap<&'static str, String>,
    /// Whose it is; none of them is a controller.
    pub owners: Vec<Owner>,
    /// The spec.
    pub spec: Value,
}

/// An owner of a generated object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Its kind.
    pub kind: MeshKind,
    /// Its name, of the same namespace.
    pub name: Arc<str>,
    /// Tells it from one that had its name before.
    pub uid: Arc<str>,
}

impl Resolver {
    /// A generated object as it should be; none if nobody needs it.
    pub fn generated(&self, kind: MeshKind, name: &ObjectName) -> Option<GeneratedObject> {
        match kind {
            MeshKind::Target => {
                let first = Generated::first(name);
                let same = self.users.range(first..).take_while(|(generated, _)| generated.name == *name);
                same.into_iter().find_map(|(generated, _)| self.generated_target(generated))
            }
            MeshKind::VirtualService => self.generated_wrapper(name),
            MeshKind::Route | MeshKind::Rule | MeshKind::Service => None,
        }
    }

    pub(super) fn all_generated(&self) -> BTreeMap<(MeshKind, ObjectName), GeneratedObject> {
        let mut all = BTreeMap::new();
        let targets: BTreeSet<&ObjectName> = self.users.keys().map(|generated| &generated.name).collect();
        let wrapped: BTreeSet<&ObjectName> = self.wrapped.keys().chain(self.linked.keys()).collect();
        for (kind, names) in [(MeshKind::Target, targets), (MeshKind::VirtualService, wrapped)] {
            for name in names {
                all.extend(self.generated(kind, name).map(|object| ((kind, name.clone()), object)));
            }
        }
        all
    }

    fn generated_target(&self, generated: &Generated) -> Option<GeneratedObject> {
        let users = self.users.get(generated)?;
        let compiled = self.generated.get(generated)?.outcome.as_ref().ok()?;
        let namespace = &generated.name.namespace;
        let mut callers: Vec<Value> = users
            .callers
            .keys()
            .map(|(from, selector)| {
                let mut selector: Value = serde_json::from_str(selector).unwrap_or_default();
                if let Value::Object(selector) = &mut selector
                    && from != namespace
                {
                    selector.entry("matchNamespace").or_insert((&**from).into());
                }
                selector
            })
            .collect();
        let selector = if callers.len() == 1 { callers.remove(0) } else { json!({"anyOf": callers}) };
        let endpoints = match &generated.callee {
            Callee::VirtualService(name) => {
                let found = self.virtual_service(name)?;
                if found.listener.filename().is_some() {
                    compiled.cluster.endpoints.iter().map(|endpoint| json!({"spec": endpoint.spec})).collect()
                } else {
                    vec![json!({"selector": seen_from(namespace, name, &found.selector, self)})]
                }
            }
            Callee::Service(name) => {
                let elsewhere = self.world.services.get(name)?.external_name.as_deref();
                let selector = Selector::service(Arc::clone(&name.name));
                let pods = || json!({"selector": seen_from(namespace, name, &selector, self)});
                vec![elsewhere.map_or_else(pods, |elsewhere| json!({"spec": {"address": elsewhere}}))]
            }
        };
        let mut spec = compiled.cluster.spec.clone();
        if let Value::Object(spec) = &mut spec {
            // follows from the pods, as it would for a user's Target
            spec.remove("handshake");
        }
        let mut cluster = json!({"spec": spec, "endpoints": endpoints});
        if let Some(tls) = &compiled.cluster.tls {
            cluster["tls"] = tls.clone();
        }
        let spec = json!({"selector": selector, "cluster": cluster});
        let all = users.namers.keys();
        let owners = all.clone().filter(|(_, user)| user.namespace == *namespace).take(MOST_USERS);
        let owners = owners.filter_map(|(kind, user)| {
            let uid = &self.world.objects.get(&(*kind, user.clone()))?.uid;
            Some(Owner { kind: *kind, name: Arc::clone(&user.name), uid: Arc::clone(uid) })
        });
        Some(object(spec, all, owners.collect()))
    }

    /// The VirtualService around a naked Service.
    fn generated_wrapper(&self, name: &ObjectName) -> Option<GeneratedObject> {
        if self.is_users(MeshKind::VirtualService, name) {
            return None;
        }
        let service = self.world.services.get(name)?;
        let socket = self.only_port(name, service).ok()?;
        let mut users: BTreeSet<(MeshKind, ObjectName)> = BTreeSet::new();
        for generated in self.wrapped.get(name).into_iter().flatten() {
            let is_made = self.generated.get(generated).is_some_and(|made| made.outcome.is_ok());
            if let Some(own) = self.users.get(generated).filter(|_| is_made) {
                users.extend(own.namers.keys().take(MOST_USERS + 1).cloned());
            }
        }
        let linked = self.linked.get(name).into_iter().flatten();
        users.extend(linked.map(|target| (MeshKind::Target, target.clone())));
        if users.is_empty() {
            return None;
        }
        let spec = json!({
            "selector": {"matchService": &*name.name},
            "listener": {"protocol": socket.protocol.as_str(), "port": socket.port()},
        });
        let owner = Owner { kind: MeshKind::Service, name: Arc::clone(&name.name), uid: Arc::clone(&service.uid) };
        Some(object(spec, users.iter(), vec![owner]))
    }

    /// Counts who uses generated Targets.
    pub(super) fn use_generated(&mut self, before: &BTreeSet<Use>, after: &BTreeSet<Use>) {
        for (changed, there) in [(before.difference(after), false), (after.difference(before), true)] {
            for (generated, namer, caller) in changed {
                let users = self.users.entry(generated.clone()).or_default();
                count(&mut users.namers, namer, there);
                count(&mut users.callers, caller, there);
                let is_used = !users.namers.is_empty();
                if !is_used {
                    self.users.remove(generated);
                }
                if let Callee::Service(service) = &generated.callee {
                    put(&mut self.wrapped, service.clone(), generated.clone(), is_used);
                }
                self.touch_generated(generated);
            }
        }
    }

    /// Notes which Service a Target links to.
    pub(super) fn use_service(
        &mut self,
        before: Option<ObjectName>,
        after: Option<ObjectName>,
        user: (MeshKind, &ObjectName),
    ) {
        for (service, there) in [(before, false), (after, true)] {
            if let Some(service) = service {
                put(&mut self.linked, service.clone(), user.1.clone(), there);
                self.touch_wrapper(&service);
            }
        }
    }

    pub(super) fn touch_generated(&mut self, generated: &Generated) {
        self.touched.generated.insert((MeshKind::Target, generated.name.clone()));
        if let Callee::Service(name) = &generated.callee {
            self.touch_wrapper(name);
        }
    }

    pub(super) fn touch_wrapper(&mut self, service: &ObjectName) {
        self.touched.generated.insert((MeshKind::VirtualService, service.clone()));
    }
}

/// A callee's selector as an object of another namespace must write it.
fn seen_from(namespace: &Arc<str>, callee: &ObjectName, selector: &Selector, resolver: &Resolver) -> Value {
    if callee.namespace == *namespace {
        return selector.to_value();
    }
    let mut foreign = selector.clone();
    match &foreign.service {
        Some(service) => {
            let name = resolver.world.settings.domain.reference(service, &callee.namespace).name;
            foreign.service = Some(resolver.world.settings.domain.full(MeshKind::Service, &name));
        }
        None => drop(foreign.namespace.get_or_insert(Arc::clone(&callee.namespace))),
    }
    foreign.to_value()
}

fn object<'a>(
    spec: Value,
    users: impl Iterator<Item = &'a (MeshKind, ObjectName)> + Clone,
    owners: Vec<Owner>,
) -> GeneratedObject {
    let shown = users
        .clone()
        .take(MOST_USERS)
        .map(|(kind, name)| format!("{}/{}/{}", kind.as_str(), name.namespace, name.name));
    let mut list = shown.collect::<Vec<_>>().join(",");
    if users.take(MOST_USERS + 1).count() > MOST_USERS {
        list.push_str(",...");
    }
    let labels = [("l7mp.io/generated", "true"), ("app.kubernetes.io/managed-by", "portolan")];
    GeneratedObject {
        labels: labels.into_iter().map(|(key, value)| (key, value.to_owned())).collect(),
        annotations: BTreeMap::from([("l7mp.io/generated-for", list), ("l7mp.io/generated-hash", spec_hash(&spec))]),
        owners,
        spec,
    }
}

fn count<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, key: &K, there: bool) {
    if there {
        *counts.entry(key.clone()).or_default() += 1;
    } else if let Some(number) = counts.get_mut(key) {
        *number -= 1;
        if *number == 0 {
            counts.remove(key);
        }
    }
}
