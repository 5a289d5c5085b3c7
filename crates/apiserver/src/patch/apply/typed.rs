//! Objects under their schema: the fields an object sets, how two differ, merging and removing fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::super::node::{Items, Node, Shape};
use super::fields::{FieldPath, FieldSet, PathElement, display_path};
use crate::schema::Type;

/// The changed fields of an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Added or modified.
    pub set: FieldSet,
    pub removed: FieldSet,
}

impl Changes {
    /// Without fields, and all below them.
    pub(super) fn without(&self, fields: &FieldSet) -> Self {
        Self { set: self.set.without(fields), removed: self.removed.without(fields) }
    }
}

/// The set of fields that a value sets.
pub(super) fn field_set(node: Node<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(node, value, &mut Vec::new(), &mut set);
    set
}

fn collect(node: Node<'_>, value: &Value, path: &mut FieldPath, set: &mut FieldSet) {
    match (node.shape(Some(value)), value) {
        (Shape::Scalar, _) => set.insert(path),
        (Shape::Map, _) if node.schema.atomic_map => set.insert(path),
        (Shape::List, _) if node.items() == Items::Atomic => set.insert(path),
        (Shape::Map, Value::Object(fields)) => {
            for (key, value) in fields {
                let Some(member) = node.member(key) else { continue };
                path.push(PathElement::field(key));
                collect(member, value, path, set);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if empty || node.named(key).is_none() {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Shape::List, Value::Array(_)) => {
            for (step, duplicates) in by_element(node, Some(value)) {
                path.push(step);
                if let [only] = duplicates.as_slice() {
                    collect(node.item(), only, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        (Shape::Map | Shape::List, _) => {}
    }
}

/// How a value breaks its schema, each error with its path; lists may have duplicate items if `duplicates_allowed`.
pub(super) fn schema_errors(node: Node<'_>, value: &Value, duplicates_allowed: bool) -> Vec<String> {
    let mut faults = Vec::new();
    check(node, value, duplicates_allowed, &mut Vec::new(), &mut faults);
    faults
}

fn check(node: Node<'_>, value: &Value, duplicates_allowed: bool, path: &mut FieldPath, faults: &mut Vec<String>) {
    let mut told = |path: &[PathElement], fault: &str| faults.push(format!("{}: {fault}", display_path(path)));
    match (node.shape(Some(value)), value) {
        (_, Value::Null) => {}
        (Shape::Scalar, _) => {
            let fits = match node.schema.type_ {
                Some(Type::Integer | Type::Number) => value.is_number(),
                Some(Type::Boolean) => value.is_boolean(),
                Some(Type::String) if node.plain_text() => value.is_string(),
                _ => !value.is_object() && !value.is_array(),
            };
            if !fits {
                told(path, "has the wrong type");
            }
        }
        (Shape::Map, Value::Object(fields)) => {
            for (key, value) in fields {
                path.push(PathElement::field(key));
                match node.member(key) {
                    Some(member) => check(member, value, duplicates_allowed, path, faults),
                    None => faults.push(format!("{}: field not declared in schema", display_path(path))),
                }
                path.pop();
            }
        }
        (Shape::List, Value::Array(list)) => {
            let mut seen = BTreeSet::new();
            for (at, item) in list.iter().enumerate() {
                let name =
                    if node.items() == Items::Atomic { Some(PathElement::index(at)) } else { element(node, item) };
                let Some(name) = name else {
                    return faults.push(format!("{}: item {at} has no key", display_path(path)));
                };
                if !duplicates_allowed && !seen.insert(name.clone()) {
                    faults.push(format!("{}: duplicate entries for key {name}", display_path(path)));
                }
                path.push(name);
                check(node.item(), item, duplicates_allowed, path, faults);
                path.pop();
            }
        }
        (Shape::Map, _) => told(path, "expected map"),
        (Shape::List, _) => told(path, "expected list"),
    }
}

/// The path element of a list item; none if it has no key.
fn element(list: Node<'_>, item: &Value) -> Option<PathElement> {
    match list.items() {
        Items::Atomic => None,
        Items::Set => (item.is_boolean() || item.is_number() || item.is_string()).then(|| PathElement::value(item)),
        Items::Keyed(keys) => {
            let fields = item.as_object()?;
            let named = keys.iter().filter_map(|key| {
                let value = fields.get(key).cloned().or_else(|| list.item().key_default(key))?;
                Some((key.clone(), value))
            });
            let named: Map<String, Value> = named.collect();
            (!named.is_empty()).then(|| PathElement::key(named))
        }
    }
}

/// The items of a list by path element, which may have several. Items without a key are left out.
fn by_element<'v>(list: Node<'_>, value: Option<&'v Value>) -> BTreeMap<PathElement, Vec<&'v Value>> {
    let mut named: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
    for item in value.and_then(Value::as_array).into_iter().flatten() {
        if let Some(step) = element(list, item) {
            named.entry(step).or_default().push(item);
        }
    }
    named
}

/// The changes from one object to the other.
pub(super) fn compare(node: Node<'_>, before: &Value, after: &Value) -> Changes {
    let mut changes = Changes::default();
    visit(node, Some(before), Some(after), &mut Vec::new(), &mut changes);
    changes
}

fn visit(node: Node<'_>, before: Option<&Value>, after: Option<&Value>, path: &mut FieldPath, changes: &mut Changes) {
    if before == after {
        return;
    }
    let (was, is) = (node.shape(before), node.shape(after));
    let shape = if after.is_none() { was } else { is };
    let mut whole = visit_as(node, shape, before, after, path, changes);
    if before.is_some() && after.is_some() && was != is {
        whole |= visit_as(node, was, before, after, path, changes);
    }
    match (before, after) {
        (_, None) => changes.removed.insert(path),
        (None, Some(_)) => changes.set.insert(path),
        (Some(_), Some(_)) if whole => changes.set.insert(path),
        (Some(_), Some(_)) => {}
    }
}

/// Compares in one shape; true if the value is compared as one.
fn visit_as(
    node: Node<'_>,
    shape: Shape,
    before: Option<&Value>,
    after: Option<&Value>,
    path: &mut FieldPath,
    changes: &mut Changes,
) -> bool {
    if shape == Shape::Scalar || is_atomic(node, shape) || (is_empty(shape, before) && is_empty(shape, after)) {
        return true;
    }
    if shape == Shape::Map {
        let (old, new) = (before.and_then(Value::as_object), after.and_then(Value::as_object));
        let keys: BTreeSet<&String> = old.into_iter().chain(new).flat_map(Map::keys).collect();
        for key in keys {
            let Some(member) = node.member(key) else { continue };
            path.push(PathElement::field(key));
            visit(member, old.and_then(|old| old.get(key)), new.and_then(|new| new.get(key)), path, changes);
            path.pop();
        }
        return false;
    }
    let (old, new) = (by_element(node, before), by_element(node, after));
    for step in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        let (old, new) = (old.get(step).map_or(&[][..], Vec::as_slice), new.get(step).map_or(&[][..], Vec::as_slice));
        path.push(step.clone());
        match (old, new) {
            ([] | [_], [] | [_]) => visit(node.item(), old.first().copied(), new.first().copied(), path, changes),
            // duplicates are owned together, as one
            (_, []) => changes.removed.insert(path),
            _ if old != new => changes.set.insert(path),
            _ => {}
        }
        path.pop();
    }
    false
}

fn is_atomic(node: Node<'_>, shape: Shape) -> bool {
    match shape {
        Shape::Scalar => false,
        Shape::Map => node.schema.atomic_map,
        Shape::List => node.items() == Items::Atomic,
    }
}

/// Whether there is nothing in a map or list.
fn is_empty(shape: Shape, value: Option<&Value>) -> bool {
    match shape {
        Shape::Scalar => false,
        Shape::Map => value.and_then(Value::as_object).is_none_or(Map::is_empty),
        Shape::List => value.and_then(Value::as_array).is_none_or(Vec::is_empty),
    }
}

/// The object merged with the configuration; none if the result is empty.
pub(super) fn merge(node: Node<'_>, object: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    let (Some(old), Some(new)) = (object, config) else { return config.or(object).cloned() };
    let shape = node.shape(Some(new));
    if shape == Shape::Scalar || is_atomic(node, shape) || (is_empty(shape, object) && is_empty(shape, config)) {
        return Some(new.clone());
    }
    if shape == Shape::List {
        let merged = merge_items(node, old, new);
        return (!merged.is_empty()).then_some(Value::Array(merged));
    }
    let (old, new) = (old.as_object(), new.as_object());
    let keys: BTreeSet<&String> = old.into_iter().chain(new).flat_map(Map::keys).collect();
    let merged = keys.into_iter().filter_map(|key| {
        let (old, new) = (old.and_then(|old| old.get(key)), new.and_then(|new| new.get(key)));
        let value = match node.member(key) {
            Some(member) => merge(member, old, new),
            None => new.or(old).cloned(),
        };
        value.map(|value| (key.clone(), value))
    });
    let merged: Map<String, Value> = merged.collect();
    (!merged.is_empty()).then_some(Value::Object(merged))
}

/// Merges two lists by the keys of the items. Items in both keep the order of the configuration; items
/// that only the object has stay near their old position.
fn merge_items(node: Node<'_>, old: &Value, new: &Value) -> Vec<Value> {
    let named = |list: &'_ Value| -> Vec<(PathElement, Value)> {
        let items = list.as_array().into_iter().flatten();
        items.filter_map(|item| element(node, item).map(|name| (name, item.clone()))).collect()
    };
    let held = by_element(node, Some(old));
    let wanted = by_element(node, Some(new));
    let put = |name: &PathElement, item: &Value| {
        // duplicates are not merged: the configuration replaces them
        let held = held
            .get(name)
            .filter(|duplicates| duplicates.len() == 1)
            .and_then(|duplicates| duplicates.first().copied());
        merge(node.item(), held, Some(item))
    };
    let mut merged = Vec::new();
    let config = named(new);
    let mut config = config.iter();
    for (name, item) in named(old) {
        if !wanted.contains_key(&name) {
            merged.push(item);
            continue;
        }
        // in the order of the configuration: an item that comes later there is skipped
        let mut ahead = config.clone();
        if ahead.find(|(next, _)| held.contains_key(next)).is_some_and(|(next, _)| *next == name) {
            for (next, item) in config.by_ref() {
                merged.extend(put(next, item));
                if *next == name {
                    break;
                }
            }
        }
    }
    merged.extend(config.filter_map(|(name, item)| put(name, item)));
    merged
}

/// The value without these fields; null where a map or list has nothing left.
pub(super) fn remove(node: Node<'_>, value: &Value, fields: &FieldSet) -> Value {
    let shape = node.shape(Some(value));
    let keep = |step: &PathElement, member: Option<Node<'_>>, value: &Value| match (member, fields.below(step)) {
        _ if fields.has(step) => None,
        (Some(member), Some(below)) => Some(remove(member, value, below)),
        _ => Some(value.clone()),
    };
    match (shape, value) {
        (Shape::Scalar, _) => value.clone(),
        _ if is_atomic(node, shape) => Value::Null,
        (Shape::Map, Value::Object(members)) => {
            let kept = members.iter().filter_map(|(key, value)| {
                keep(&PathElement::field(key), node.member(key), value).map(|kept| (key.clone(), kept))
            });
            let kept: Map<String, Value> = kept.collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (Shape::List, Value::Array(items)) => {
            let kept = items.iter().filter_map(|item| match element(node, item) {
                Some(step) => keep(&step, Some(node.item()), item),
                None => Some(item.clone()),
            });
            let kept: Vec<Value> = kept.collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (Shape::Map | Shape::List, _) => Value::Null,
    }
}
