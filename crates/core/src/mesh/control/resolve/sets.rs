//! Sets of pods, one per distinct selector, kept as pods come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Resolver;
use super::keys::{Key, Node, SetId};
use crate::mesh::control::selector::{Field, FieldTest, Selector};
use crate::mesh::control::types::{MeshKind, ObjectName};
use crate::mesh::control::world::{CrossNamespace, Pod, ProxyRole};
use crate::mesh::control::{Diagnostic, Reason};
use crate::select::{self, Labels};

/// What a set is for: it decides whose consent lets it leave its namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Pods that get configuration: their namespace allows it.
    Placement,
    /// Pods that are called: their namespace exports them.
    Callee,
}

/// The pods of a selector.
#[derive(Debug, Clone)]
pub(super) struct PodSet {
    purpose: Purpose,
    namespace: Arc<str>,
    selector: Selector,
    matcher: Matcher,
    /// Where changes of pods find this set.
    gates: BTreeSet<Gate>,
    pub(super) members: BTreeSet<ObjectName>,
    /// The Service whose EndpointSlices say where the pods are reached.
    pub(super) service: Option<ObjectName>,
    /// Nothing but the Service is asked for.
    pub(super) is_whole_service: bool,
    /// What keeps the set empty.
    pub(super) problem: Option<Diagnostic>,
    pub(super) remark: Option<Diagnostic>,
}

/// By what a set is found when a pod changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gate {
    /// Pods of a namespace with a label.
    Label(Arc<str>, Arc<str>, Arc<str>),
    /// Pods of a namespace.
    Namespace(Arc<str>),
    /// All pods.
    Everywhere,
}

/// A selector with its Service looked up.
#[derive(Debug, Clone, Default)]
struct Matcher {
    /// Only there; else wherever `fields` allow.
    namespace: Option<Arc<str>>,
    labels: select::Selector,
    fields: Vec<FieldTest>,
    service: ServicePods,
    any_of: Vec<Matcher>,
}

#[derive(Debug, Clone, Default)]
enum ServicePods {
    #[default]
    Any,
    /// Those with the labels of the Service's selector.
    Labels(Labels),
    /// Those that the EndpointSlices of a Service without selector name.
    Named(BTreeSet<ObjectName>),
    /// Those of a VirtualService of that name.
    Through(Box<Matcher>),
    None,
}

/// Namespace, key and value.
type Label = (Arc<str>, Arc<str>, Arc<str>);

/// Where pods are found by their labels.
#[derive(Debug, Clone, Default)]
pub(super) struct PodIndex {
    by_label: BTreeMap<Label, BTreeSet<ObjectName>>,
    gates: BTreeMap<Gate, BTreeSet<SetId>>,
}

impl PodIndex {
    /// Adds a pod's labels, or takes them out.
    pub(super) fn note(&mut self, name: &ObjectName, pod: &Pod, there: bool) {
        for (key, value) in pod.labels.shared() {
            let place = (Arc::clone(&name.namespace), Arc::clone(key), Arc::clone(value));
            put(&mut self.by_label, place, name.clone(), there);
        }
    }

    fn register(&mut self, id: &SetId, gates: &BTreeSet<Gate>, there: bool) {
        for gate in gates {
            put(&mut self.gates, gate.clone(), Arc::clone(id), there);
        }
    }

    /// Sets that a pod may be in.
    pub(super) fn candidates(&self, name: &ObjectName, pod: &Pod) -> BTreeSet<SetId> {
        let labels = pod.labels.shared();
        let labels =
            labels.map(|(key, value)| Gate::Label(Arc::clone(&name.namespace), Arc::clone(key), Arc::clone(value)));
        let gates = labels.chain([Gate::Namespace(Arc::clone(&name.namespace)), Gate::Everywhere]);
        gates.filter_map(|gate| self.gates.get(&gate)).flatten().cloned().collect()
    }
}

/// Adds to, or takes from, one of many sets; an empty one is no more.
pub(super) fn put<K: Ord, T: Ord>(sets: &mut BTreeMap<K, BTreeSet<T>>, key: K, item: T, there: bool) {
    if there {
        sets.entry(key).or_default().insert(item);
    } else if let Some(set) = sets.get_mut(&key) {
        set.remove(&item);
        if set.is_empty() {
            sets.remove(&key);
        }
    }
}

impl Resolver {
    /// The set of a selector, made if nobody has asked for it yet; the caller notes that it reads it.
    pub(super) fn set(&mut self, purpose: Purpose, namespace: &Arc<str>, selector: &Selector) -> SetId {
        let word = if purpose == Purpose::Placement { "at" } else { "to" };
        let id: SetId = Arc::from(format!("{word} {namespace} {}", selector.key()));
        if !self.sets.contains_key(&id) {
            let set = PodSet {
                purpose,
                namespace: Arc::clone(namespace),
                selector: selector.clone(),
                matcher: Matcher::default(),
                gates: BTreeSet::new(),
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
    pub(super) fn proxies(&self, id: &SetId) -> Vec<ObjectName> {
        let members = self.sets.get(id).into_iter().flat_map(|set| &set.members);
        members.filter(|name| matches!(self.marks.get(*name), Some(ProxyRole::Proxy(_)))).cloned().collect()
    }

    /// Looks a set up anew.
    pub(super) fn evaluate_set(&mut self, id: &SetId) {
        let Some(mut set) = self.sets.remove(id) else { return };
        let mut reads = BTreeSet::new();
        let said = (set.problem.take(), set.remark.take());
        set.service = None;
        let namespace = Arc::clone(&set.namespace);
        let selector = set.selector.clone();
        set.matcher = self.matcher(&mut set, &namespace, &selector, true, &mut reads);
        self.index.register(id, &set.gates, false);
        set.gates.clear();
        set.matcher.gates(&mut set.gates);
        self.index.register(id, &set.gates, true);
        let mut members = BTreeSet::new();
        for gate in &set.gates {
            let found = self.pods_at(gate).into_iter().filter(|name| self.is_member(&set, name, Some(&mut reads)));
            members.extend(found);
        }
        let before = std::mem::replace(&mut set.members, members);
        if set.selector.namespaces().is_some_and(|named| named.is_empty()) {
            reads.insert(Key::AnyNamespace);
        }
        let differs = (&before, &said) != (&set.members, &(set.problem.clone(), set.remark.clone()));
        self.sets.insert(Arc::clone(id), set);
        self.reads.set(&Node::Set(Arc::clone(id)), reads);
        if differs {
            self.emit(&Key::Members(Arc::clone(id)));
        }
        // the Service behind it may be another one
        self.emit(&Key::Endpoints(Arc::clone(id)));
    }

    /// Forgets a set that nobody reads.
    pub(super) fn drop_set(&mut self, id: &SetId) {
        if let Some(set) = self.sets.remove(id) {
            self.index.register(id, &set.gates, false);
            self.reads.set(&Node::Set(Arc::clone(id)), BTreeSet::new());
        }
    }

    /// Moves a changed pod between the sets it may be in.
    pub(super) fn regroup(&mut self, name: &ObjectName, candidates: BTreeSet<SetId>, is: PodChange) {
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
            if was_in != is_in || (is_in && is.placed_differently) {
                self.emit(&Key::Members(Arc::clone(&id)));
            }
            if was_in != is_in || (is_in && is.reached_differently) {
                self.emit(&Key::Endpoints(id));
            }
        }
    }

    fn pods_at(&self, gate: &Gate) -> Vec<ObjectName> {
        match gate {
            Gate::Label(namespace, key, value) => {
                let place = (Arc::clone(namespace), Arc::clone(key), Arc::clone(value));
                self.index.by_label.get(&place).into_iter().flatten().cloned().collect()
            }
            Gate::Namespace(namespace) => {
                let first = ObjectName::new(Arc::clone(namespace), "");
                let pods = self.world.pods.range(first..).map(|(name, _)| name);
                pods.take_while(|name| name.namespace == *namespace).cloned().collect()
            }
            Gate::Everywhere => self.world.pods.keys().cloned().collect(),
        }
    }

    fn is_member(&self, set: &PodSet, name: &ObjectName, reads: Option<&mut BTreeSet<Key>>) -> bool {
        let Some(pod) = self.world.pods.get(name).filter(|pod| !pod.ended) else { return false };
        if !set.matcher.matches(name, pod) {
            return false;
        }
        if set.selector.is_empty() && set.purpose == Purpose::Placement && pod.proxy_role() == ProxyRole::Naked {
            return false;
        }
        if name.namespace == set.namespace {
            return true;
        }
        if let Some(reads) = reads {
            reads.insert(Key::Namespace(Arc::clone(&name.namespace)));
        }
        match set.purpose {
            Purpose::Placement => self.allows_config(&name.namespace, &set.namespace),
            Purpose::Callee => {
                let service = set.service.as_ref().and_then(|service| self.world.services.get(service));
                let annotations = service.map(|service| &service.annotations);
                self.exports(annotations, &name.namespace, &set.namespace)
            }
        }
    }

    /// Whether a namespace lets another configure its proxies.
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
        namespace: &Arc<str>,
        selector: &Selector,
        may_go_through: bool,
        reads: &mut BTreeSet<Key>,
    ) -> Matcher {
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
            reads.insert(Key::Namespace(Arc::clone(named)));
            let (allowed, word) = match set.purpose {
                Purpose::Placement => (self.allows_config(named, namespace), "allow-config-from"),
                Purpose::Callee => (self.exports(None, named, namespace), "export-to"),
            };
            if !allowed {
                let message = format!(
                    "selector: namespace `{named}` does not let `{namespace}` use its pods: annotate it with l7mp.io/{word}"
                );
                set.problem.get_or_insert(Diagnostic::new(Reason::RefNotPermitted, message));
            }
        }
        if let Some(text) = &selector.service {
            let reference = self.world.settings.domain.reference(text, namespace);
            let name = reference.name;
            reads.insert(Key::Service(name.clone()));
            matcher.service = self.service_pods(set, &name, may_go_through, reads);
            if selector.namespace.is_none() && !by_field {
                matcher.namespace = Some(name.namespace);
            }
        }
        let parts = selector.any_of.iter();
        matcher.any_of = parts.map(|part| self.matcher(set, namespace, part, may_go_through, reads)).collect();
        matcher
    }

    fn service_pods(
        &self,
        set: &mut PodSet,
        name: &ObjectName,
        may_go_through: bool,
        reads: &mut BTreeSet<Key>,
    ) -> ServicePods {
        if name.namespace != set.namespace && set.purpose == Purpose::Callee {
            reads.insert(Key::Namespace(Arc::clone(&name.namespace)));
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
            reads.insert(Key::Slices(name.clone()));
            let endpoints = self.slices(name).flat_map(|slice| &slice.endpoints);
            return ServicePods::Named(endpoints.filter_map(|endpoint| endpoint.pod.clone()).collect());
        }
        reads.insert(Key::Object(MeshKind::VirtualService, name.clone()));
        if let Some(found) = self.virtual_service(name).filter(|_| may_go_through) {
            let message = format!(
                "selector: `{}` is no Service but a VirtualService: its selector is used; write that selector",
                name.name
            );
            set.remark = Some(Diagnostic::new(Reason::SelectorThroughVirtualService, message));
            let selector = found.selector.clone();
            return ServicePods::Through(Box::new(self.matcher(set, &name.namespace, &selector, false, reads)));
        }
        let message = format!("selector: there is no Service `{}` in namespace `{}`", name.name, name.namespace);
        set.problem.get_or_insert(Diagnostic::new(Reason::RefNotFound, message));
        ServicePods::None
    }
}

/// What of a pod is different.
#[derive(Debug, Clone, Copy)]
pub(super) struct PodChange {
    pub(super) placed_differently: bool,
    pub(super) reached_differently: bool,
}

impl Matcher {
    fn matches(&self, name: &ObjectName, pod: &Pod) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == name.namespace)
            && self.labels.matches(&pod.labels)
            && self.fields.iter().all(|test| field_holds(test, name, pod))
            && match &self.service {
                ServicePods::Any => true,
                ServicePods::Labels(labels) => labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value)),
                ServicePods::Named(pods) => pods.contains(name),
                ServicePods::Through(matcher) => matcher.matches(name, pod),
                ServicePods::None => false,
            }
            && (self.any_of.is_empty() || self.any_of.iter().any(|part| part.matches(name, pod)))
    }

    /// Gates one of which every match goes through.
    fn gates(&self, gates: &mut BTreeSet<Gate>) {
        if matches!(self.service, ServicePods::None) {
            return;
        }
        let Some(namespace) = &self.namespace else {
            gates.insert(Gate::Everywhere);
            return;
        };
        let of_service = match &self.service {
            ServicePods::Labels(labels) => labels.iter().next(),
            ServicePods::Any | ServicePods::Named(_) | ServicePods::Through(_) | ServicePods::None => None,
        };
        if let Some((key, value)) = of_service.or_else(|| self.labels.labels.iter().next()) {
            gates.insert(Gate::Label(Arc::clone(namespace), Arc::from(key), Arc::from(value)));
        } else if let ServicePods::Through(matcher) = &self.service {
            matcher.gates(gates);
        } else if self.any_of.is_empty() {
            gates.insert(Gate::Namespace(Arc::clone(namespace)));
        } else {
            for part in &self.any_of {
                part.gates(gates);
            }
        }
    }
}

fn field_holds(test: &FieldTest, name: &ObjectName, pod: &Pod) -> bool {
    let first = |addresses: &[std::net::IpAddr]| addresses.first().map(ToString::to_string).unwrap_or_default();
    match test.field {
        Field::Name => test.holds(&name.name),
        Field::Namespace => test.holds(&name.namespace),
        Field::NodeName => test.holds(&pod.node),
        Field::ServiceAccountName => test.holds(&pod.service_account),
        Field::PodIp => test.holds(&first(&pod.addresses)),
        Field::HostIp => test.holds(&first(&pod.host_addresses)),
    }
}

/// The same text whether or not the object exists.
pub(super) fn not_exported(name: &ObjectName, to: &str) -> Diagnostic {
    let message = format!(
        "`{}` of namespace `{}` is not offered to `{to}`: annotate it or its namespace with l7mp.io/export-to",
        name.name, name.namespace
    );
    Diagnostic::new(Reason::RefNotPermitted, message)
}

fn consents(annotations: Option<&Labels>, key: &str, namespace: &str) -> bool {
    let list = annotations.and_then(|annotations| annotations.get(key));
    list.is_some_and(|list| list.split(',').map(str::trim).any(|one| one == "*" || one == namespace))
}
