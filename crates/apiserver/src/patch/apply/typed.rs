//! An object under its schema: what is wrong with it, which fields it sets, how items of lists are named.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::go;
use super::super::node::{Items, Node, Shape};
use super::element::Element;
use super::fields::Set;
use crate::schema::Type;

/// The faults of a value, each with its path, such as `.spec.tags: expected list, got &{t}`.
pub(super) fn faults(node: Node<'_>, value: &Value, twins_allowed: bool) -> Vec<String> {
    let mut faults = Vec::new();
    check(node, value, twins_allowed, &mut String::new(), &mut faults);
    faults
}

/// The set of fields that a value sets.
pub(super) fn field_set(node: Node<'_>, value: &Value) -> Set {
    let mut set = Set::default();
    collect(node, value, &mut Vec::new(), &mut set);
    set
}

/// How an item of a list is named in paths.
pub(super) fn element(list: Node<'_>, items: &Items<'_>, item: &Value) -> Result<Element, String> {
    match items {
        Items::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        Items::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Element::Value(item.clone())),
        },
        Items::Keyed(keys) => {
            let fields = match item {
                Value::Object(fields) => fields,
                Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    return Err("associative list with keys may not have non-map elements".to_owned());
                }
            };
            let defaults = list.item();
            let mut found: Vec<(String, Value)> = Vec::with_capacity(keys.len());
            for key in keys.iter() {
                let value = match fields.get(key) {
                    Some(value) => Some(value.clone()),
                    None => defaults.key_default(key),
                };
                found.extend(value.map(|value| (key.clone(), value)));
            }
            if found.is_empty() {
                let names: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    names.join(" ")
                ));
            }
            found.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(Element::Key(found))
        }
    }
}

/// The items of a list by name; a name may have several. Items without a name are left out.
pub(super) fn by_element<'v>(
    list: Node<'_>,
    items: &Items<'_>,
    values: Option<&'v Vec<Value>>,
) -> BTreeMap<Element, Vec<&'v Value>> {
    let mut named: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for value in values.into_iter().flatten() {
        if let Ok(element) = element(list, items, value) {
            named.entry(element).or_default().push(value);
        }
    }
    named
}

fn collect(node: Node<'_>, value: &Value, path: &mut Vec<Element>, set: &mut Set) {
    match (node.shape(Some(value)), value) {
        (Shape::Scalar, _) => set.insert(path),
        (Shape::Map, _) if node.schema.atomic_map => set.insert(path),
        (Shape::List, _) if node.items() == Items::Atomic => set.insert(path),
        (Shape::Map, Value::Object(fields)) => {
            for (key, value) in fields {
                let Some(member) = node.member(key) else { continue };
                path.push(Element::Field(key.clone()));
                collect(member, value, path, set);
                let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                if empty || node.named(key).is_none() {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Shape::List, Value::Array(list)) => {
            let items = node.items();
            for (element, twins) in by_element(node, &items, Some(list)) {
                path.push(element);
                if let [only] = twins.as_slice() {
                    collect(node.item(), only, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        (Shape::Map | Shape::List, _) => {}
    }
}

fn check(node: Node<'_>, value: &Value, twins_allowed: bool, path: &mut String, faults: &mut Vec<String>) {
    let length = path.len();
    match (node.shape(Some(value)), value) {
        (_, Value::Null) => {}
        (Shape::Scalar, _) => faults.extend(scalar_fault(node, value).map(|fault| told(path, &fault))),
        (Shape::Map, Value::Object(fields)) => {
            for (key, value) in fields {
                path.push('.');
                path.push_str(key);
                match node.member(key) {
                    Some(member) => check(member, value, twins_allowed, path, faults),
                    None => faults.push(told(path, "field not declared in schema")),
                }
                let declared = node.member(key).is_some();
                path.truncate(length);
                if !declared {
                    return;
                }
            }
        }
        (Shape::List, Value::Array(list)) => {
            let items = node.items();
            let mut seen: Vec<Element> = Vec::new();
            for (at, item) in list.iter().enumerate() {
                let name = match &items {
                    Items::Atomic => Element::Index(i64::try_from(at).unwrap_or(i64::MAX)),
                    Items::Set | Items::Keyed(_) => match element(node, &items, item) {
                        Ok(name) => name,
                        Err(why) => return faults.push(told(path, &format!("element {at}: {why}"))),
                    },
                };
                if items != Items::Atomic && !twins_allowed {
                    match seen.binary_search(&name) {
                        Ok(_) => faults.push(told(path, &format!("duplicate entries for key {name}"))),
                        Err(place) => seen.insert(place, name.clone()),
                    }
                }
                path.push_str(&name.to_string());
                check(node.item(), item, twins_allowed, path, faults);
                path.truncate(length);
            }
        }
        (Shape::Map, _) => faults.push(told(path, &format!("expected map, got &{{{}}}", go::plain(value)))),
        (Shape::List, _) => faults.push(told(path, &format!("expected list, got &{{{}}}", go::plain(value)))),
    }
}

fn told(path: &str, fault: &str) -> String {
    if path.is_empty() { fault.to_owned() } else { format!("{path}: {fault}") }
}

fn scalar_fault(node: Node<'_>, value: &Value) -> Option<String> {
    match node.schema.type_ {
        Some(Type::Integer | Type::Number) if !value.is_number() => {
            Some(format!("expected numeric (int or float), got {}", go::type_name(value)))
        }
        Some(Type::String) if node.plain_text() && !value.is_string() => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go::source(value)))
        }
        Some(Type::Boolean) if !value.is_boolean() => Some(format!("expected boolean, got &{{{}}}", go::plain(value))),
        _ if value.is_object() || value.is_array() => {
            Some(format!("expected any scalar, got &{{{}}}", go::plain(value)))
        }
        _ => None,
    }
}
