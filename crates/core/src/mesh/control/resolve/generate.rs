//! Generated objects: written to the API server so that users see them; a user's own object takes precedence.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::dependencies::{Callee, GeneratedTarget};
use super::pod_sets::set_member;
use super::state::{Caller, GeneratedUse, Resolver};
use crate::mesh::control::names::spec_hash;
use crate::mesh::control::selector::Selector;
use crate::mesh::control::types::{MeshKind, ObjectName};

/// Maximum number of users listed in an object: thousands would exceed the size limit of the API server.
const MOST_USERS: usize = 100;

/// An object as it should be written.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedObject {
    /// Its labels.
    pub labels: BTreeMap<&'static str, String>,
    /// Its annotations.
    pub annotations: BTreeMap<&'static str, String>,
    /// Its owners; none of them is the controller.
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
    /// Distinguishes it from an earlier object of the same name.
    pub uid: Arc<str>,
}

impl Resolver {
    /// A generated object as it should be written; none if it is not needed.
    pub fn generated(&self, kind: MeshKind, name: &ObjectName) -> Option<GeneratedObject> {
        match kind {
            MeshKind::Target => {
                let first = GeneratedTarget::first(name);
                let same = self.generated_users.range(first..).take_while(|(generated, _)| generated.name == *name);
                same.into_iter().find_map(|(generated, _)| self.generated_target(generated))
            }
            MeshKind::VirtualService => self.generated_wrapper(name),
            MeshKind::Route | MeshKind::Rule | MeshKind::Service => None,
        }
    }

    pub(super) fn all_generated(&self) -> BTreeMap<(MeshKind, ObjectName), GeneratedObject> {
        let mut all = BTreeMap::new();
        let targets: BTreeSet<&ObjectName> = self.generated_users.keys().map(|generated| &generated.name).collect();
        let wrapped: BTreeSet<&ObjectName> = self.wrapped_services.keys().chain(self.linked_services.keys()).collect();
        for (kind, names) in [(MeshKind::Target, targets), (MeshKind::VirtualService, wrapped)] {
            for name in names {
                all.extend(self.generated(kind, name).map(|object| ((kind, name.clone()), object)));
            }
        }
        all
    }

    fn generated_target(&self, generated: &GeneratedTarget) -> Option<GeneratedObject> {
        let users = self.generated_users.get(generated)?;
        let compiled = self.generated.get(generated)?.outcome.as_ref().ok()?;
        let namespace = &generated.name.namespace;
        let mut callers: Vec<Value> = users
            .callers
            .keys()
            .map(|Caller { namespace: from, selector }| {
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
            // computed from the pods, as for a user's Target
            spec.remove("handshake");
        }
        let mut cluster = json!({"spec": spec, "endpoints": endpoints});
        if let Some(tls) = &compiled.cluster.tls {
            cluster["tls"] = tls.clone();
        }
        let spec = json!({"selector": selector, "cluster": cluster});
        let all = users.users.keys();
        let owners = all.clone().filter(|(_, user)| user.namespace == *namespace).take(MOST_USERS);
        let owners = owners.filter_map(|(kind, user)| {
            let uid = &self.world.objects.get(&(*kind, user.clone()))?.uid;
            Some(Owner { kind: *kind, name: Arc::clone(&user.name), uid: Arc::clone(uid) })
        });
        Some(object(spec, all, owners.collect()))
    }

    /// The VirtualService for a Service without proxies.
    fn generated_wrapper(&self, name: &ObjectName) -> Option<GeneratedObject> {
        if self.is_user_object(MeshKind::VirtualService, name) {
            return None;
        }
        let service = self.world.services.get(name)?;
        let socket = self.only_port(name, service).ok()?;
        let mut users: BTreeSet<(MeshKind, ObjectName)> = BTreeSet::new();
        for generated in self.wrapped_services.get(name).into_iter().flatten() {
            let is_made = self.generated.get(generated).is_some_and(|made| made.outcome.is_ok());
            if let Some(own) = self.generated_users.get(generated).filter(|_| is_made) {
                users.extend(own.users.keys().take(MOST_USERS + 1).cloned());
            }
        }
        let linked = self.linked_services.get(name).into_iter().flatten();
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

    /// Updates the reference counts of generated Targets.
    pub(super) fn update_generated_users(&mut self, before: &BTreeSet<GeneratedUse>, after: &BTreeSet<GeneratedUse>) {
        for (changed, present) in [(before.difference(after), false), (after.difference(before), true)] {
            for GeneratedUse { target: generated, user, caller } in changed {
                let users = self.generated_users.entry(generated.clone()).or_default();
                count(&mut users.users, user, present);
                count(&mut users.callers, caller, present);
                let is_used = !users.users.is_empty();
                if !is_used {
                    self.generated_users.remove(generated);
                }
                if let Callee::Service(service) = &generated.callee {
                    set_member(&mut self.wrapped_services, service.clone(), generated.clone(), is_used);
                }
                self.mark_generated(generated);
            }
        }
    }

    /// Updates the Service that a Target links to.
    pub(super) fn update_linked_service(
        &mut self,
        before: Option<ObjectName>,
        after: Option<ObjectName>,
        user: (MeshKind, &ObjectName),
    ) {
        for (service, present) in [(before, false), (after, true)] {
            if let Some(service) = service {
                set_member(&mut self.linked_services, service.clone(), user.1.clone(), present);
                self.mark_generated_service(&service);
            }
        }
    }

    pub(super) fn mark_generated(&mut self, generated: &GeneratedTarget) {
        self.affected.generated.insert((MeshKind::Target, generated.name.clone()));
        if let Callee::Service(name) = &generated.callee {
            self.mark_generated_service(name);
        }
    }

    pub(super) fn mark_generated_service(&mut self, service: &ObjectName) {
        self.affected.generated.insert((MeshKind::VirtualService, service.clone()));
    }
}

/// The selector of a callee, as written in an object of another namespace.
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

fn count<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, key: &K, present: bool) {
    if present {
        *counts.entry(key.clone()).or_default() += 1;
    } else if let Some(number) = counts.get_mut(key) {
        *number -= 1;
        if *number == 0 {
            counts.remove(key);
        }
    }
}
