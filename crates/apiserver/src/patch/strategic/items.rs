//! Items of lists: what tells them apart, and the order of a merged list.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::{go, rejected, unclassified};
use crate::status::Failure;

/// Items that the other list names too, and those that it does not.
pub(super) fn partition(
    items: Vec<Value>,
    by: &[Value],
    merge_key: Option<&str>,
) -> Result<(Vec<Value>, Vec<Value>), Failure> {
    let named = places(by, merge_key);
    let mut parts = (Vec::new(), Vec::new());
    for item in items {
        if named.contains_key(&identity(&item, merge_key)?.to_string()) {
            parts.0.push(item);
        } else {
            parts.1.push(item);
        }
    }
    Ok(parts)
}

/// The items of the patch in the order of the patch, those of the object only in the order of the object; the latter
/// are put before the first item of the patch that they stood before.
pub(super) fn in_order(
    mut patched: Vec<Value>,
    mut others: Vec<Value>,
    patch: &[Value],
    held: &[Value],
    merge_key: Option<&str>,
) -> Vec<Value> {
    let place = |places: &BTreeMap<String, usize>, item: &Value| {
        identity(item, merge_key).ok().and_then(|own| places.get(&own.to_string()).copied())
    };
    let (in_patch, in_held) = (places(patch, merge_key), places(held, merge_key));
    patched.sort_by_key(|item| place(&in_patch, item));
    others.sort_by_key(|item| place(&in_held, item));
    let mut ordered = Vec::with_capacity(patched.len() + others.len());
    let (mut patched, mut others) = (patched.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (others.peek(), patched.peek()) {
            (None, None) => return ordered,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(item)) => match (place(&in_held, other), place(&in_held, item)) {
                (Some(other), Some(item)) => other < item,
                _ => false,
            },
        };
        ordered.extend(if other_first { others.next() } else { patched.next() });
    }
}

/// Where each item stands first.
fn places(items: &[Value], merge_key: Option<&str>) -> BTreeMap<String, usize> {
    let mut places = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        if let Ok(own) = identity(item, merge_key) {
            places.entry(own.to_string()).or_insert(at);
        }
    }
    places
}

/// What tells an item apart: its merge key, or itself.
pub(super) fn identity<'a>(item: &'a Value, merge_key: Option<&str>) -> Result<&'a Value, Failure> {
    let Some(merge_key) = merge_key else { return Ok(item) };
    let Value::Object(fields) = item else {
        let what = go::type_name(item);
        return Err(unclassified(format!("expected a map[string]interface {{}}, but received a {what}")));
    };
    fields.get(merge_key).ok_or_else(|| {
        unclassified(format!("map: {} does not contain declared merge key: {merge_key}", go::plain(item)))
    })
}

/// Whether the items are maps; they must all be of one type, and no lists.
pub(super) fn element_type(lists: &[&[Value]]) -> Result<bool, Failure> {
    let mut items = lists.iter().copied().flatten();
    let Some(first) = items.next() else { return Err(unclassified("no elements in any of the given slices")) };
    if first.is_array() {
        return Err(rejected());
    }
    if items.any(|item| go::type_name(item) != go::type_name(first)) {
        let shown: Vec<String> = lists.iter().map(|list| go::plain_list(list)).collect();
        return Err(unclassified(format!("list element types are not identical: [{}]", shown.join(" "))));
    }
    Ok(first.is_object())
}
