//! Maintains the sets of pods, one per distinct selector.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::dependencies::{Dependency, GraphNode, PodSetId};
use super::pod_sets::{Matcher, PodChange, PodIndexKey, PodSet, ServicePods, SetPurpose};
use super::state::Resolver;
use crate::mesh::control::selector::{Field, Selector};
use crate::mesh::control::types::{MeshKind, ObjectName};
use crate::mesh::control::world::{CrossNamespace, ProxyRole};
use crate::mesh::control::{Diagnostic, Reason};
use crate::select::Labels;

/// Where a selector is written.
#[derive(Clone, Copy)]
struct SelectorScope<'a> {
    namespace: &'a Arc<str>,
    /// A name without a Service may name a VirtualService, whose selector is then used.
    follows_virtual_services: bool,
}

impl Resolver {
    /// The set of a selector, created on first use. The caller must record that it reads it.
    pub(super) fn set(&mut self, purpose: SetPurpose, namespace: &Arc<str>, selector: &Selector) -> PodSetId {
        let word = if purpose == SetPurpose::Placement { "at" } else { "to" };
        let id: PodSetId = Arc::from(format!("{word} {namespace} {}", selector.key()));
        if !self.sets.contains_key(&id) {
            let set = PodSet {
                purpose,
                namespace: Arc::clone(namespace),
                selector: selector.clone(),
                matcher: Matcher::default(),
                index_keys: BTreeSet::new(),
                members: BTreeSet::new(),
                service: None,
                is_whole_service: Selector { service: None, ..selector.clone() }.is_empty(),
                problem: None,
                remark: None,
            };
            self.sets.insert(Arc::clone(&id), set);
            self.evaluate_set(&id);
        }
        id
    }

    /// Members of a set that run a proxy.
    pub(super) fn proxies(&self, id: &PodSetId) -> Vec<ObjectName> {
        let members = self.sets.get(id).into_iter().flat_map(|set| &set.members);
        members.filter(|name| matches!(self.proxy_roles.get(*name), Some(ProxyRole::Proxy(_)))).cloned().collect()
    }

    /// Recomputes a set.
    pub(super) fn evaluate_set(&mut self, id: &PodSetId) {
        let Some(mut set) = self.sets.remove(id) else { return };
        let mut reads = BTreeSet::new();
        let reported = (set.problem.take(), set.remark.take());
        set.service = None;
        let namespace = Arc::clone(&set.namespace);
        let selector = set.selector.clone();
        let scope = SelectorScope { namespace: &namespace, follows_virtual_services: true };
        set.matcher = self.matcher(&mut set, &selector, scope, &mut reads);
        self.index.register(id, &set.index_keys, false);
        set.index_keys.clear();
        set.matcher.index_keys(&mut set.index_keys);
        self.index.register(id, &set.index_keys, true);
        let mut members = BTreeSet::new();
        for index_key in &set.index_keys {
            let found = self.pods_at(index_key).into_iter().filter(|name| self.is_member(&set, name, Some(&mut reads)));
            members.extend(found);
        }
        let before = std::mem::replace(&mut set.members, members);
        if set.selector.namespaces().is_some_and(|named| named.is_empty()) {
            reads.insert(Dependency::AnyNamespace);
        }
        let differs = (&before, &reported) != (&set.members, &(set.problem.clone(), set.remark.clone()));
        self.sets.insert(Arc::clone(id), set);
        self.graph.set(&GraphNode::Set(Arc::clone(id)), reads);
        if differs {
            self.invalidate(&Dependency::Members(Arc::clone(id)));
        }
        // its Service may have changed
        self.invalidate(&Dependency::Endpoints(Arc::clone(id)));
    }

    /// Removes a set that nothing depends on.
    pub(super) fn remove_set(&mut self, id: &PodSetId) {
        if let Some(set) = self.sets.remove(id) {
            self.index.register(id, &set.index_keys, false);
            self.graph.set(&GraphNode::Set(Arc::clone(id)), BTreeSet::new());
        }
    }

    /// Updates the membership of a changed pod.
    pub(super) fn update_membership(&mut self, name: &ObjectName, candidates: BTreeSet<PodSetId>, change: PodChange) {
        for id in candidates {
            let Some(set) = self.sets.get(&id) else { continue };
            let (was_in, is_in) = (set.members.contains(name), self.is_member(set, name, None));
            if let Some(set) = self.sets.get_mut(&id).filter(|_| was_in != is_in) {
                if is_in {
                    set.members.insert(name.clone())
                } else {
                    set.members.remove(name)
                };
            }
            if was_in != is_in || (is_in && change.placement_changed) {
                self.invalidate(&Dependency::Members(Arc::clone(&id)));
            }
            if was_in != is_in || (is_in && change.address_changed) {
                self.invalidate(&Dependency::Endpoints(id));
            }
        }
    }

    fn pods_at(&self, index_key: &PodIndexKey) -> Vec<ObjectName> {
        match index_key {
            PodIndexKey::Label(namespace, key, value) => {
                let place = (Arc::clone(namespace), Arc::clone(key), Arc::clone(value));
                self.index.by_label.get(&place).into_iter().flatten().cloned().collect()
            }
            PodIndexKey::Namespace(namespace) => {
                let first = ObjectName::new(Arc::clone(namespace), "");
                let pods = self.world.pods.range(first..).map(|(name, _)| name);
                pods.take_while(|name| name.namespace == *namespace).cloned().collect()
            }
            PodIndexKey::Everywhere => self.world.pods.keys().cloned().collect(),
        }
    }

    fn is_member(&self, set: &PodSet, name: &ObjectName, reads: Option<&mut BTreeSet<Dependency>>) -> bool {
        let Some(pod) = self.world.pods.get(name).filter(|pod| !pod.ended) else { return false };
        if !set.matcher.matches(name, pod) {
            return false;
        }
        if set.selector.is_empty() && set.purpose == SetPurpose::Placement && pod.proxy_role() == ProxyRole::Naked {
            return false;
        }
        if name.namespace == set.namespace {
            return true;
        }
        if let Some(reads) = reads {
            reads.insert(Dependency::Namespace(Arc::clone(&name.namespace)));
        }
        match set.purpose {
            SetPurpose::Placement => self.allows_config(&name.namespace, &set.namespace),
            SetPurpose::Callee => {
                let service = set.service.as_ref().and_then(|service| self.world.services.get(service));
                let annotations = service.map(|service| &service.annotations);
                self.exports(annotations, &name.namespace, &set.namespace)
            }
        }
    }

    /// Whether a namespace allows another one to configure its proxies.
    pub(super) fn allows_config(&self, namespace: &str, from: &str) -> bool {
        match self.world.settings.cross_namespace {
            CrossNamespace::Open => true,
            CrossNamespace::Deny => namespace == from,
            CrossNamespace::Grant => {
                let annotations = self.world.namespaces.get(namespace);
                namespace == from || consents(annotations, "l7mp.io/allow-config-from", from)
            }
        }
    }

    /// Whether an object with these annotations, in this namespace, may be used from another.
    pub(super) fn exports(&self, annotations: Option<&Labels>, namespace: &str, to: &str) -> bool {
        const EXPORT: &str = "l7mp.io/export-to";
        match self.world.settings.cross_namespace {
            CrossNamespace::Open => true,
            CrossNamespace::Deny => namespace == to,
            CrossNamespace::Grant => {
                namespace == to
                    || consents(annotations, EXPORT, to)
                    || consents(self.world.namespaces.get(namespace), EXPORT, to)
            }
        }
    }

    fn matcher(
        &self,
        set: &mut PodSet,
        selector: &Selector,
        scope: SelectorScope<'_>,
        reads: &mut BTreeSet<Dependency>,
    ) -> Matcher {
        let SelectorScope { namespace, follows_virtual_services } = scope;
        let mut matcher = Matcher {
            namespace: selector.namespace.clone(),
            labels: selector.labels.clone(),
            fields: selector.fields.clone(),
            ..Matcher::default()
        };
        let by_field = selector.fields.iter().any(|test| test.field == Field::Namespace);
        if matcher.namespace.is_none() && !by_field {
            matcher.namespace = Some(Arc::clone(namespace));
        }
        if let Some(named) = &selector.namespace
            && *named != *namespace
        {
            reads.insert(Dependency::Namespace(Arc::clone(named)));
            let (allowed, word) = match set.purpose {
                SetPurpose::Placement => (self.allows_config(named, namespace), "allow-config-from"),
                SetPurpose::Callee => (self.exports(None, named, namespace), "export-to"),
            };
            if !allowed {
                let message = format!(
                    "selector: namespace `{named}` does not allow `{namespace}` to use its pods: annotate it with l7mp.io/{word}"
                );
                set.problem.get_or_insert(Diagnostic::new(Reason::RefNotPermitted, message));
            }
        }
        if let Some(text) = &selector.service {
            let reference = self.world.settings.domain.reference(text, namespace);
            let name = reference.name;
            reads.insert(Dependency::Service(name.clone()));
            matcher.service = self.service_pods(set, &name, follows_virtual_services, reads);
            if selector.namespace.is_none() && !by_field {
                matcher.namespace = Some(name.namespace);
            }
        }
        let parts = selector.any_of.iter();
        matcher.any_of = parts.map(|part| self.matcher(set, part, scope, reads)).collect();
        matcher
    }

    fn service_pods(
        &self,
        set: &mut PodSet,
        name: &ObjectName,
        follows_virtual_services: bool,
        reads: &mut BTreeSet<Dependency>,
    ) -> ServicePods {
        if name.namespace != set.namespace && set.purpose == SetPurpose::Callee {
            reads.insert(Dependency::Namespace(Arc::clone(&name.namespace)));
            let annotations = self.world.services.get(name).map(|service| &service.annotations);
            if !self.exports(annotations, &name.namespace, &set.namespace) {
                set.problem.get_or_insert(not_exported(name, &set.namespace));
                return ServicePods::None;
            }
        }
        if let Some(service) = self.world.services.get(name) {
            set.service.get_or_insert(name.clone());
            if !service.selector.is_empty() {
                return ServicePods::Labels(service.selector.clone());
            }
            reads.insert(Dependency::Slices(name.clone()));
            let endpoints = self.slices(name).flat_map(|slice| &slice.endpoints);
            return ServicePods::Named(endpoints.filter_map(|endpoint| endpoint.pod.clone()).collect());
        }
        reads.insert(Dependency::Object(MeshKind::VirtualService, name.clone()));
        if let Some(found) = self.virtual_service(name).filter(|_| follows_virtual_services) {
            let message = format!(
                "selector: `{}` is a VirtualService, not a Service; its selector is used: write that selector instead",
                name.name
            );
            set.remark = Some(Diagnostic::new(Reason::SelectorThroughVirtualService, message));
            let selector = found.selector.clone();
            let scope = SelectorScope { namespace: &name.namespace, follows_virtual_services: false };
            return ServicePods::Through(Box::new(self.matcher(set, &selector, scope, reads)));
        }
        let message = format!("selector: Service `{}` does not exist in namespace `{}`", name.name, name.namespace);
        set.problem.get_or_insert(Diagnostic::new(Reason::RefNotFound, message));
        ServicePods::None
    }
}

/// Does not reveal whether the object exists.
pub(super) fn not_exported(name: &ObjectName, to: &str) -> Diagnostic {
    let message = format!(
        "`{}` of namespace `{}` is not exported to `{to}`: annotate it or its namespace with l7mp.io/export-to",
        name.name, name.namespace
    );
    Diagnostic::new(Reason::RefNotPermitted, message)
}

fn consents(annotations: Option<&Labels>, key: &str, namespace: &str) -> bool {
    let list = annotations.and_then(|annotations| annotations.get(key));
    list.is_some_and(|list| list.split(',').map(str::trim).any(|one| one == "*" || one == namespace))
}
