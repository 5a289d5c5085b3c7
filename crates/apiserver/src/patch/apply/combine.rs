//! Merges an applied configuration into an object, and takes fields out of an object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::super::node::{Items, Node, Shape};
use super::element::Element;
use super::fields::Set;
use super::typed::element;

/// The object with the configuration laid over it; none if nothing is left.
pub(super) fn merge(node: Node<'_>, object: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    let (Some(old), Some(new)) = (object, config) else { return config.or(object).cloned() };
    match node.shape(Some(new)) {
        Shape::Scalar => Some(new.clone()),
        Shape::Map => {
            let (old_fields, new_fields) = (old.as_object(), new.as_object());
            let empty = old_fields.is_none_or(Map::is_empty) && new_fields.is_none_or(Map::is_empty);
            if node.schema.atomic_map || empty {
                return Some(new.clone());
            }
            let keys: BTreeSet<&String> = old_fields.into_iter().chain(new_fields).flat_map(Map::keys).collect();
            let merged = keys.into_iter().filter_map(|key| {
                let (old, new) = (old_fields.and_then(|old| old.get(key)), new_fields.and_then(|new| new.get(key)));
                let value = match node.member(key) {
                    Some(member) => merge(member, old, new),
                    None => new.or(old).cloned(),
                };
                value.map(|value| (key.clone(), value))
            });
            let merged: Map<String, Value> = merged.collect();
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
        Shape::List => {
            let empty = Vec::new();
            let (old_items, new_items) = (old.as_array().unwrap_or(&empty), new.as_array().unwrap_or(&empty));
            let items = node.items();
            if items == Items::Atomic || (old_items.is_empty() && new_items.is_empty()) {
                return Some(new.clone());
            }
            let merged = merge_items(node, &items, old_items, new_items);
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
    }
}

/// One list over the other, by the names of the items. What both have keeps the order of the configuration; items
/// that only the object has stay near where they were.
fn merge_items(node: Node<'_>, items: &Items<'_>, old: &[Value], new: &[Value]) -> Vec<Value> {
    let named = |list| -> Vec<(Element, &Value)> {
        <[Value]>::iter(list).filter_map(|item| element(node, items, item).ok().map(|name| (name, item))).collect()
    };
    let (old, new): (Vec<_>, Vec<_>) = (named(old), named(new));
    let wanted: BTreeMap<&Element, &Value> = new.iter().map(|(name, item)| (name, *item)).collect();
    // several items of one name are not merged with: the configuration replaces them
    let mut held: BTreeMap<&Element, Option<&Value>> = BTreeMap::new();
    for (name, item) in &old {
        held.entry(name).and_modify(|held| *held = None).or_insert(Some(*item));
    }
    let mut shared = new.iter().map(|(name, _)| name).filter(|name| held.contains_key(name));
    let mut next_shared = shared.next();
    let mut done: BTreeSet<&Element> = BTreeSet::new();
    let mut merged = Vec::with_capacity(old.len().max(new.len()));
    let (mut left, mut right) = (0, 0);
    while left < old.len() || right < new.len() {
        if let (Some((name, _)), Some((new_name, item))) = (old.get(left), new.get(right)) {
            if name == new_name {
                done.insert(name);
                merged.extend(merge(node.item(), held.get(name).copied().flatten(), Some(*item)));
                left += 1;
                right += 1;
                next_shared = shared.next();
                continue;
            }
            if wanted.contains_key(name) && next_shared.is_some_and(|next| next != name) {
                left += 1;
                continue;
            }
        }
        if let Some((name, item)) = old.get(left) {
            if !wanted.contains_key(name) {
                merged.push((*item).clone());
                left += 1;
                continue;
            } else if done.contains(name) {
                left += 1;
            }
        }
        if let Some((name, item)) = new.get(right) {
            done.insert(name);
            merged.extend(merge(node.item(), held.get(name).copied().flatten(), Some(*item)));
            right += 1;
            if next_shared == Some(name) {
                next_shared = shared.next();
            }
        }
    }
    merged
}

/// The value without these fields; null where a map or list has nothing left.
pub(super) fn remove(node: Node<'_>, value: &Value, fields: &Set) -> Value {
    match (node.shape(Some(value)), value) {
        (Shape::Scalar, _) => value.clone(),
        (Shape::Map, Value::Object(members)) if !node.schema.atomic_map => {
            let kept = members.iter().filter_map(|(key, value)| {
                let element = Element::Field(key.clone());
                if fields.has(&element) {
                    return None;
                }
                let kept = match (node.member(key), fields.below(&element)) {
                    (Some(member), Some(below)) => remove(member, value, below),
                    _ => value.clone(),
                };
                Some((key.clone(), kept))
            });
            let kept: Map<String, Value> = kept.collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (Shape::List, Value::Array(list)) if node.items() != Items::Atomic => {
            let items = node.items();
            let kept = list.iter().filter_map(|item| match element(node, &items, item) {
                Ok(element) if fields.has(&element) => None,
                Ok(element) => {
                    Some(fields.below(&element).map_or_else(|| item.clone(), |below| remove(node.item(), item, below)))
                }
                Err(_) => Some(item.clone()),
            });
            let kept: Vec<Value> = kept.collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (Shape::Map | Shape::List, _) => Value::Null,
    }
}
