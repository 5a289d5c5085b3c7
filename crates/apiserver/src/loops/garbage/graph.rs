//! Who owns whom: plain data, fed by watches. It says what to look at again, and what it knows of an owner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::core::DynamicObject;

use super::super::discover::Served;

pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

/// Every object of every kind that is watched.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: BTreeMap<String, Node>,
    /// From an owner's uid, which need not exist, to those that name it.
    dependents: BTreeMap<String, BTreeSet<String>>,
}

/// What matters of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) kind: Arc<Served>,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) owners: Vec<Owner>,
    pub(super) deleting: bool,
    /// It waits until its dependents are deleted.
    pub(super) foreground: bool,
    /// It waits until its dependents have forgotten it.
    pub(super) orphan: bool,
}

/// A reference to an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: String,
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) name: String,
    /// blockOwnerDeletion.
    pub(super) blocks: bool,
}

/// What is known of an owner without asking the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It exists.
    Solid,
    /// It exists, and waits for its dependents to be deleted.
    Waiting,
    /// It was not seen, or not where the reference says: the server must be asked.
    Unseen,
}

impl Node {
    /// Reads an object; none without a uid.
    pub(super) fn read(kind: &Arc<Served>, object: DynamicObject) -> Option<(String, Self)> {
        let meta = object.metadata;
        let owners = meta.owner_references.unwrap_or_default().into_iter().map(|reference| Owner {
            group: reference.api_version.split_once('/').map_or(String::new(), |(group, _)| group.to_owned()),
            uid: reference.uid,
            kind: reference.kind,
            name: reference.name,
            blocks: reference.block_owner_deletion.unwrap_or_default(),
        });
        let finalizers = meta.finalizers.unwrap_or_default();
        let has = |finalizer: &str| finalizers.iter().any(|mine| mine == finalizer);
        let node = Self {
            kind: Arc::clone(kind),
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            owners: owners.collect(),
            deleting: meta.deletion_timestamp.is_some(),
            foreground: has(FOREGROUND),
            orphan: has(ORPHAN),
        };
        Some((meta.uid?, node))
    }

    pub(super) fn waits(&self) -> bool {
        self.deleting && self.foreground
    }
}

impl Graph {
    pub(super) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Those that name `uid` as owner.
    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = (&String, &Node)> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| self.nodes.get_key_value(uid))
    }

    /// Whether a dependent holds up the foreground deletion of `uid`.
    pub(super) fn is_blocked(&self, uid: &str) -> bool {
        self.dependents(uid).any(|(_, node)| node.owners.iter().any(|owner| owner.uid == uid && owner.blocks))
    }

    /// Takes in an object as it is; says whom to look at.
    pub(super) fn apply(&mut self, uid: &str, node: Node) -> BTreeSet<String> {
        if self.nodes.get(uid) == Some(&node) {
            return BTreeSet::new();
        }
        let mut look = BTreeSet::from([uid.to_owned()]);
        if let Some(before) = self.nodes.remove(uid) {
            self.unlink(uid, &before, &mut look);
        }
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.to_owned());
        }
        if node.waits() {
            look.extend(self.dependents(uid).map(|(uid, _)| uid.clone()));
        }
        self.nodes.insert(uid.to_owned(), node);
        look
    }

    /// Forgets an object; says whom to look at.
    pub(super) fn remove(&mut self, uid: &str) -> BTreeSet<String> {
        let mut look: BTreeSet<String> = self.dependents(uid).map(|(uid, _)| uid.clone()).collect();
        if let Some(node) = self.nodes.remove(uid) {
            self.unlink(uid, &node, &mut look);
        }
        look
    }

    /// The uids of a kind that are not among `seen`: gone while nobody watched.
    pub(super) fn missing(&self, kind: &Served, seen: &BTreeSet<String>) -> Vec<String> {
        let of_kind = self.nodes.iter().filter(|(_, node)| *node.kind == *kind);
        of_kind.filter(|(uid, _)| !seen.contains(*uid)).map(|(uid, _)| uid.clone()).collect()
    }

    /// What is known of an owner of `node`.
    pub(super) fn standing(&self, node: &Node, owner: &Owner) -> Standing {
        match self.nodes.get(&owner.uid) {
            Some(found) if found.is(owner) && (!found.kind.namespaced || found.namespace == node.namespace) => {
                if found.waits() { Standing::Waiting } else { Standing::Solid }
            }
            Some(_) | None => Standing::Unseen,
        }
    }

    /// Owners that wait for `uid` may be free to go.
    fn unlink(&mut self, uid: &str, node: &Node, look: &mut BTreeSet<String>) {
        for owner in &node.owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
            if self.nodes.get(&owner.uid).is_some_and(Node::waits) {
                look.insert(owner.uid.clone());
            }
        }
    }
}

impl Node {
    fn is(&self, owner: &Owner) -> bool {
        self.kind.group == owner.group && self.kind.kind == owner.kind && self.name == owner.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(namespaced: bool) -> Arc<Served> {
        let (plural, kind) = if namespaced { ("boxes", "Box") } else { ("racks", "Rack") };
        Arc::new(Served {
            group: "g".to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespaced,
            collections: true,
        })
    }

    fn node(namespace: &str, name: &str, owners: &[(&str, &str, bool)]) -> Node {
        let owners = owners.iter().map(|(kind, uid, blocks)| Owner {
            uid: (*uid).to_owned(),
            group: "g".to_owned(),
            kind: (*kind).to_owned(),
            name: (*uid).to_owned(),
            blocks: *blocks,
        });
        Node {
            kind: kind(!namespace.is_empty()),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            owners: owners.collect(),
            deleting: false,
            foreground: false,
            orphan: false,
        }
    }

    fn set(uids: &[&str]) -> BTreeSet<String> {
        uids.iter().map(|uid| (*uid).to_owned()).collect()
    }

    #[test]
    fn an_owner_that_goes_puts_its_dependents_up_for_a_look() {
        let mut graph = Graph::default();
        graph.apply("owner", node("a", "owner", &[]));
        graph.apply("child", node("a", "child", &[("Box", "owner", false)]));

        assert_eq!(graph.remove("owner"), set(&["child"]));
        assert_eq!(graph.remove("owner"), set(&["child"]), "and again if the deletion is seen twice");
        assert_eq!(graph.remove("child"), set(&[]));
        assert!(graph.dependents.is_empty());
    }

    #[test]
    fn an_owner_counts_only_where_the_reference_can_reach_it() {
        let mut graph = Graph::default();
        graph.apply("here", node("a", "here", &[]));
        graph.apply("there", node("b", "there", &[]));
        graph.apply("rack", node("", "rack", &[]));
        let child = node(
            "a",
            "child",
            &[("Box", "here", false), ("Box", "there", false), ("Rack", "rack", false), ("Rack", "here", false)],
        );

        let standings: Vec<Standing> = child.owners.iter().map(|owner| graph.standing(&child, owner)).collect();

        assert_eq!(standings, [Standing::Solid, Standing::Unseen, Standing::Solid, Standing::Unseen]);
    }

    #[test]
    fn a_foreground_deletion_waits_for_those_that_block_it() {
        let mut graph = Graph::default();
        graph.apply("blocks", node("a", "blocks", &[("Box", "owner", true)]));
        graph.apply("does-not", node("a", "does-not", &[("Box", "owner", false)]));
        let waiting = Node { deleting: true, foreground: true, ..node("a", "owner", &[]) };

        assert_eq!(graph.apply("owner", waiting), set(&["blocks", "does-not", "owner"]));
        assert!(graph.is_blocked("owner"));
        assert_eq!(graph.remove("blocks"), set(&["owner"]));
        assert!(!graph.is_blocked("owner"));
    }

    #[test]
    fn an_event_that_changes_nothing_puts_nobody_up() {
        let mut graph = Graph::default();
        graph.apply("child", node("a", "child", &[("Box", "owner", false)]));

        assert_eq!(graph.apply("child", node("a", "child", &[("Box", "owner", false)])), set(&[]));
        assert_eq!(graph.missing(&kind(true), &set(&[])), ["child"]);
        assert!(graph.missing(&kind(false), &set(&[])).is_empty());
    }
}
