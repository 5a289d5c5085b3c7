//! The dependency graph: what is computed, from which inputs, and what a changed input invalidates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::mesh::control::types::{MeshKind, ObjectName};

/// Identifies a set of pods: purpose, namespace and selector.
pub(super) type PodSetId = Arc<str>;

/// A computed node. A node depends only on nodes before it in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GraphNode {
    /// The pods of a selector.
    Set(PodSetId),
    /// A user's Target.
    Target(ObjectName),
    /// A generated Target.
    Generated(GeneratedTarget),
    /// A Route.
    Route(ObjectName),
    /// A VirtualService.
    VirtualService(ObjectName),
    /// A Rule.
    Rule(ObjectName),
}

/// A Target that is generated because a hop names a VirtualService or a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GeneratedTarget {
    /// Its namespace and name.
    pub(super) name: ObjectName,
    /// What it connects to.
    pub(super) callee: Callee,
}

impl GeneratedTarget {
    /// The first in order of all with this name.
    pub(super) fn first(name: &ObjectName) -> Self {
        Self { name: name.clone(), callee: Callee::VirtualService(ObjectName::new("", "")) }
    }
}

impl GraphNode {
    /// Whether it is a generated Target of this name.
    pub(super) fn is_generated_as(&self, name: &ObjectName) -> bool {
        matches!(self, Self::Generated(generated) if generated.name == *name)
    }
}

/// What a generated Target connects to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Callee {
    /// A user's VirtualService.
    VirtualService(ObjectName),
    /// A Service without proxies.
    Service(ObjectName),
}

/// An input of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dependency {
    /// The part of a user's object that others depend on.
    Object(MeshKind, ObjectName),
    /// A Service.
    Service(ObjectName),
    /// The EndpointSlices of a Service.
    Slices(ObjectName),
    /// The annotations of a namespace.
    Namespace(Arc<str>),
    /// The annotations of any namespace.
    AnyNamespace,
    /// The members of a set, and what their placement depends on.
    Members(PodSetId),
    /// The addresses of a set.
    Endpoints(PodSetId),
    /// The part of a node that others depend on.
    Outcome(GraphNode),
    /// Whether a VirtualService calls itself through others.
    Cycle(ObjectName),
    /// Ports that pods on the host network of a node declare.
    HostPorts(Arc<str>),
}

/// Which node depends on which input.
#[derive(Debug, Clone, Default)]
pub(super) struct DependencyGraph {
    of: BTreeMap<GraphNode, BTreeSet<Dependency>>,
    by: BTreeMap<Dependency, BTreeSet<GraphNode>>,
    /// Nodes that are computed for others only, and may have lost their last reader.
    pub(super) unread: BTreeSet<GraphNode>,
}

impl DependencyGraph {
    /// Replaces the inputs of a node.
    pub(super) fn set(&mut self, node: &GraphNode, keys: BTreeSet<Dependency>) {
        let before = self.of.remove(node).unwrap_or_default();
        for key in before.difference(&keys) {
            self.forget(node, key);
        }
        for key in keys.difference(&before) {
            self.by.entry(key.clone()).or_default().insert(node.clone());
        }
        if !keys.is_empty() {
            self.of.insert(node.clone(), keys);
        }
    }

    /// The nodes that depend on an input.
    pub(super) fn readers(&self, key: &Dependency) -> impl Iterator<Item = &GraphNode> {
        self.by.get(key).into_iter().flatten()
    }

    /// The number of nodes that depend on an input.
    pub(super) fn count(&self, key: &Dependency) -> usize {
        self.by.get(key).map_or(0, BTreeSet::len)
    }

    /// Whether any node depends on an input.
    pub(super) fn is_read(&self, key: &Dependency) -> bool {
        self.by.contains_key(key)
    }

    fn forget(&mut self, node: &GraphNode, key: &Dependency) {
        let Some(readers) = self.by.get_mut(key) else { return };
        readers.remove(node);
        if !readers.is_empty() {
            return;
        }
        self.by.remove(key);
        match key {
            Dependency::Members(set) | Dependency::Endpoints(set) => {
                self.unread.insert(GraphNode::Set(Arc::clone(set)));
            }
            Dependency::Outcome(node @ GraphNode::Generated(_)) => {
                self.unread.insert(node.clone());
            }
            Dependency::Object(..)
            | Dependency::Service(_)
            | Dependency::Slices(_)
            | Dependency::Namespace(_)
            | Dependency::AnyNamespace
            | Dependency::Outcome(_)
            | Dependency::Cycle(_)
            | Dependency::HostPorts(_) => {}
        }
    }
}
