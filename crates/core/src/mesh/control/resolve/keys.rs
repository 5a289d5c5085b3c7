//! What is computed, what it is computed from, and which of it must be computed again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::mesh::control::types::{MeshKind, ObjectName};

/// Names a set of pods: purpose, namespace and selector.
pub(super) type SetId = Arc<str>;

/// Something computed. A node reads only nodes before it in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    /// The pods of a selector.
    Set(SetId),
    /// A user's Target.
    Target(ObjectName),
    /// A Target that a name made necessary.
    Generated(Generated),
    /// A Route.
    Route(ObjectName),
    /// A VirtualService.
    VirtualService(ObjectName),
    /// A Rule.
    Rule(ObjectName),
}

/// A Target that a name made necessary.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Generated {
    /// Where it lives and what it is called.
    pub(super) name: ObjectName,
    /// Whom it leads to.
    pub(super) callee: Callee,
}

impl Generated {
    /// Sorts before all of its name.
    pub(super) fn first(name: &ObjectName) -> Self {
        Self { name: name.clone(), callee: Callee::VirtualService(ObjectName::new("", "")) }
    }
}

impl Node {
    /// Whether it is a generated Target of this name.
    pub(super) fn is_generated_as(&self, name: &ObjectName) -> bool {
        matches!(self, Self::Generated(generated) if generated.name == *name)
    }
}

/// Whom a name leads to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Callee {
    /// A user's VirtualService.
    VirtualService(ObjectName),
    /// A naked Service.
    Service(ObjectName),
}

/// Something that may be read, and then be different.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// What others see of a user's object.
    Object(MeshKind, ObjectName),
    /// A Service.
    Service(ObjectName),
    /// The EndpointSlices of a Service.
    Slices(ObjectName),
    /// The annotations of a namespace.
    Namespace(Arc<str>),
    /// Those of any namespace.
    AnyNamespace,
    /// Who is in a set, and what matters of them to those who place something there.
    Members(SetId),
    /// Where a set is reached.
    Endpoints(SetId),
    /// What others see of a node.
    Outcome(Node),
    /// Whether a VirtualService leads back to itself.
    Loop(ObjectName),
    /// Ports that pods on the host's network of a node declare.
    HostPorts(Arc<str>),
}

/// Who reads what.
#[derive(Debug, Clone, Default)]
pub(super) struct Reads {
    of: BTreeMap<Node, BTreeSet<Key>>,
    by: BTreeMap<Key, BTreeSet<Node>>,
    /// Nodes that are computed for others only, and may have lost the last of them.
    pub(super) idle: BTreeSet<Node>,
}

impl Reads {
    /// Notes what a node has read this time.
    pub(super) fn set(&mut self, node: &Node, keys: BTreeSet<Key>) {
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

    /// Who has read it.
    pub(super) fn readers(&self, key: &Key) -> impl Iterator<Item = &Node> {
        self.by.get(key).into_iter().flatten()
    }

    /// How many have read it.
    pub(super) fn count(&self, key: &Key) -> usize {
        self.by.get(key).map_or(0, BTreeSet::len)
    }

    /// Whether anybody has read it.
    pub(super) fn is_read(&self, key: &Key) -> bool {
        self.by.contains_key(key)
    }

    fn forget(&mut self, node: &Node, key: &Key) {
        let Some(readers) = self.by.get_mut(key) else { return };
        readers.remove(node);
        if !readers.is_empty() {
            return;
        }
        self.by.remove(key);
        match key {
            Key::Members(set) | Key::Endpoints(set) => drop(self.idle.insert(Node::Set(Arc::clone(set)))),
            Key::Outcome(node @ Node::Generated(_)) => drop(self.idle.insert(node.clone())),
            Key::Object(..)
            | Key::Service(_)
            | Key::Slices(_)
            | Key::Namespace(_)
            | Key::AnyNamespace
            | Key::Outcome(_)
            | Key::Loop(_)
            | Key::HostPorts(_) => {}
        }
    }
}
