//! Compares two objects by schema: which fields the second adds, modifies, removes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::node::{Items, Node, Shape};
use super::element::{Element, same};
use super::fields::Set;
use super::typed::by_element;

/// What became of the fields of an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub added: Set,
    pub modified: Set,
    pub removed: Set,
}

impl Changes {
    /// Added or modified.
    pub(super) fn set(&self) -> Set {
        self.modified.union(&self.added)
    }

    /// Without fields, and all below them.
    pub(super) fn without(&self, fields: &Set) -> Self {
        Self {
            added: self.added.without(fields),
            modified: self.modified.without(fields),
            removed: self.removed.without(fields),
        }
    }
}

/// The changes from one object to the other.
pub(super) fn compare(node: Node<'_>, before: &Value, after: &Value) -> Changes {
    let mut changes = Changes::default();
    visit(node, Some(before), Some(after), &mut Vec::new(), &mut changes);
    changes
}

fn visit(
    node: Node<'_>,
    before: Option<&Value>,
    after: Option<&Value>,
    path: &mut Vec<Element>,
    changes: &mut Changes,
) {
    if before == after {
        return;
    }
    let (was, is) = (node.shape(before), node.shape(after));
    if before.is_some() && after.is_some() && was != is {
        treat(node, was, before, after, path, changes);
    }
    let shape = if after.is_none() { was } else { is };
    let whole = treat(node, shape, before, after, path, changes);
    if !whole {
        match (before, after) {
            (None, _) => changes.added.insert(path),
            (_, None) => changes.removed.insert(path),
            (Some(_), Some(_)) => {}
        }
    }
}

/// Compares in one shape; true if the value counts as a whole.
fn treat(
    node: Node<'_>,
    shape: Shape,
    before: Option<&Value>,
    after: Option<&Value>,
    path: &mut Vec<Element>,
    changes: &mut Changes,
) -> bool {
    match shape {
        Shape::Scalar => whole(before, after, path, changes),
        Shape::Map => {
            let (old, new) = (before.and_then(Value::as_object), after.and_then(Value::as_object));
            // two empty ones are told apart from null as a whole
            let empty = old.is_none_or(serde_json::Map::is_empty) && new.is_none_or(serde_json::Map::is_empty);
            if node.schema.atomic_map || empty {
                return whole(before, after, path, changes);
            }
            let keys: BTreeSet<&String> = old.into_iter().chain(new).flat_map(serde_json::Map::keys).collect();
            for key in keys {
                let Some(member) = node.member(key) else { continue };
                path.push(Element::Field(key.clone()));
                let (old, new) = (old.and_then(|old| old.get(key)), new.and_then(|new| new.get(key)));
                visit(member, old, new, path, changes);
                path.pop();
            }
            false
        }
        Shape::List => {
            let (old, new) = (before.and_then(Value::as_array), after.and_then(Value::as_array));
            let items = node.items();
            let empty = old.is_none_or(Vec::is_empty) && new.is_none_or(Vec::is_empty);
            if items == Items::Atomic || empty {
                return whole(before, after, path, changes);
            }
            let (old, new) = (by_element(node, &items, old), by_element(node, &items, new));
            let elements: BTreeSet<&Element> = old.keys().chain(new.keys()).collect();
            for element in elements {
                let (old, new) = (old.get(element), new.get(element));
                let (old, new) = (old.map_or(&[][..], Vec::as_slice), new.map_or(&[][..], Vec::as_slice));
                path.push(element.clone());
                visit_item(node.item(), old, new, path, changes);
                path.pop();
            }
            false
        }
    }
}

/// The items of one name on both sides. Several of one name are owned together, as a whole.
fn visit_item(node: Node<'_>, old: &[&Value], new: &[&Value], path: &mut Vec<Element>, changes: &mut Changes) {
    match (old, new) {
        ([] | [_], [] | [_]) => visit(node, old.first().copied(), new.first().copied(), path, changes),
        ([_, _, ..], [_, _, ..]) => {
            if old.len() != new.len() || old.iter().zip(new).any(|(old, new)| !same(old, new)) {
                changes.modified.insert(path);
            }
        }
        ([_, _, ..], _) => {
            if let Some(new) = new.first() {
                visit(node, None, Some(new), path, changes);
            }
            changes.removed.insert(path);
        }
        (_, [_, _, ..]) => {
            if let Some(old) = old.first() {
                visit(node, Some(old), None, path, changes);
            }
            changes.added.insert(path);
        }
    }
}

fn whole(before: Option<&Value>, after: Option<&Value>, path: &[Element], changes: &mut Changes) -> bool {
    match (before, after) {
        (None, _) => changes.added.insert(path),
        (_, None) => changes.removed.insert(path),
        (Some(before), Some(after)) if !same(before, after) => changes.modified.insert(path),
        (Some(_), Some(_)) => {}
    }
    true
}
