//! Sets of pods: selectors, and the index that finds the sets of a pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::dependencies::PodSetId;
use crate::mesh::control::Diagnostic;
use crate::mesh::control::selector::{Field, FieldTest, Selector};
use crate::mesh::control::types::ObjectName;
use crate::mesh::control::world::Pod;
use crate::select::{self, Labels};

/// What a set is for: decides which annotation allows pods of other namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetPurpose {
    /// Pods that get configuration, if their namespace allows it.
    Placement,
    /// Pods that are called, if their namespace exports them.
    Callee,
}

/// The pods of a selector.
#[derive(Debug, Clone)]
pub(super) struct PodSet {
    pub(super) purpose: SetPurpose,
    pub(super) namespace: Arc<str>,
    pub(super) selector: Selector,
    pub(super) matcher: Matcher,
    /// The index keys under which changes of pods find this set.
    pub(super) index_keys: BTreeSet<PodIndexKey>,
    pub(super) members: BTreeSet<ObjectName>,
    /// The Service whose EndpointSlices hold the addresses of the pods.
    pub(super) service: Option<ObjectName>,
    /// The selector has nothing but the Service.
    pub(super) is_whole_service: bool,
    /// Why the set is empty.
    pub(super) problem: Option<Diagnostic>,
    pub(super) remark: Option<Diagnostic>,
}

/// The key under which a set is indexed by its pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PodIndexKey {
    /// Pods of a namespace with a label.
    Label(Arc<str>, Arc<str>, Arc<str>),
    /// Pods of a namespace.
    Namespace(Arc<str>),
    /// All pods.
    Everywhere,
}

/// A selector with its Service resolved.
#[derive(Debug, Clone, Default)]
pub(super) struct Matcher {
    /// The namespace; none if `fields` select it.
    pub(super) namespace: Option<Arc<str>>,
    pub(super) labels: select::Selector,
    pub(super) fields: Vec<FieldTest>,
    pub(super) service: ServicePods,
    pub(super) any_of: Vec<Matcher>,
}

#[derive(Debug, Clone, Default)]
pub(super) enum ServicePods {
    #[default]
    Any,
    /// Pods with the labels of the Service's selector.
    Labels(Labels),
    /// Pods in the EndpointSlices of a Service without selector.
    Named(BTreeSet<ObjectName>),
    /// Pods of the VirtualService of that name.
    Through(Box<Matcher>),
    None,
}

/// Namespace, key and value.
type Label = (Arc<str>, Arc<str>, Arc<str>);

/// Indexes pods by label, and sets by the pods they may contain.
#[derive(Debug, Clone, Default)]
pub(super) struct PodIndex {
    pub(super) by_label: BTreeMap<Label, BTreeSet<ObjectName>>,
    pub(super) sets: BTreeMap<PodIndexKey, BTreeSet<PodSetId>>,
}

impl PodIndex {
    /// Adds or removes the labels of a pod.
    pub(super) fn update(&mut self, name: &ObjectName, pod: &Pod, present: bool) {
        for (key, value) in pod.labels.shared() {
            let place = (Arc::clone(&name.namespace), Arc::clone(key), Arc::clone(value));
            set_member(&mut self.by_label, place, name.clone(), present);
        }
    }

    pub(super) fn register(&mut self, id: &PodSetId, index_keys: &BTreeSet<PodIndexKey>, present: bool) {
        for index_key in index_keys {
            set_member(&mut self.sets, index_key.clone(), Arc::clone(id), present);
        }
    }

    /// Sets that may contain a pod.
    pub(super) fn candidates(&self, name: &ObjectName, pod: &Pod) -> BTreeSet<PodSetId> {
        let labels = pod.labels.shared();
        let labels = labels
            .map(|(key, value)| PodIndexKey::Label(Arc::clone(&name.namespace), Arc::clone(key), Arc::clone(value)));
        let index_keys = labels.chain([PodIndexKey::Namespace(Arc::clone(&name.namespace)), PodIndexKey::Everywhere]);
        index_keys.filter_map(|index_key| self.sets.get(&index_key)).flatten().cloned().collect()
    }
}

/// Inserts into or removes from the set under a key; removes a set that becomes empty.
pub(super) fn set_member<K: Ord, T: Ord>(sets: &mut BTreeMap<K, BTreeSet<T>>, key: K, item: T, present: bool) {
    if present {
        sets.entry(key).or_default().insert(item);
    } else if let Some(set) = sets.get_mut(&key) {
        set.remove(&item);
        if set.is_empty() {
            sets.remove(&key);
        }
    }
}

/// What changed in a pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct PodChange {
    pub(super) placement_changed: bool,
    pub(super) address_changed: bool,
}

impl Matcher {
    pub(super) fn matches(&self, name: &ObjectName, pod: &Pod) -> bool {
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

    /// Index keys that together cover every match.
    pub(super) fn index_keys(&self, index_keys: &mut BTreeSet<PodIndexKey>) {
        if matches!(self.service, ServicePods::None) {
            return;
        }
        let Some(namespace) = &self.namespace else {
            index_keys.insert(PodIndexKey::Everywhere);
            return;
        };
        let of_service = match &self.service {
            ServicePods::Labels(labels) => labels.iter().next(),
            ServicePods::Any | ServicePods::Named(_) | ServicePods::Through(_) | ServicePods::None => None,
        };
        if let Some((key, value)) = of_service.or_else(|| self.labels.labels.iter().next()) {
            index_keys.insert(PodIndexKey::Label(Arc::clone(namespace), Arc::from(key), Arc::from(value)));
        } else if let ServicePods::Through(matcher) = &self.service {
            matcher.index_keys(index_keys);
        } else if self.any_of.is_empty() {
            index_keys.insert(PodIndexKey::Namespace(Arc::clone(namespace)));
        } else {
            for part in &self.any_of {
                part.index_keys(index_keys);
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
