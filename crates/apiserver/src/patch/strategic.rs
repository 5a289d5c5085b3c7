//! Strategic merge patch of built-in kinds: lists merge by key where the schema says so, and directives in the patch
//! (`$patch`, `$retainKeys`, `$setElementOrder/x`, `$deleteFromPrimitiveList/x`) decide the rest.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::node::Node;
use super::read;
use crate::schema::Schema;
use crate::status::Failure;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

type Fields = Map<String, Value>;

/// Applies the patch document to the object.
pub fn patch(schema: &Schema, object: &Value, document: &[u8]) -> Result<Value, Failure> {
    let patch = match read(document)? {
        Value::Object(patch) => patch,
        Value::Null => Map::new(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(Failure::bad_request("error decoding patch: a strategic merge patch is an object"));
        }
    };
    let object = object.as_object().cloned().unwrap_or_default();
    Ok(Value::Object(merge_map(Some(Node::built_in(schema)), object, patch)?))
}

fn merge_map(node: Option<Node<'_>>, mut object: Fields, mut patch: Fields) -> Result<Fields, Failure> {
    match patch.remove(DIRECTIVE) {
        None => {}
        Some(directive) if directive == "replace" => return Ok(patch),
        Some(directive) if directive == "delete" => return Ok(Map::new()),
        Some(directive) => return Err(unclassified(&format!("unknown {DIRECTIVE}: {directive}"))),
    }
    if let Some(retained) = patch.remove(RETAIN_KEYS) {
        let retained = retained.as_array().ok_or_else(|| Failure::bad_request(format!("{RETAIN_KEYS} is no list")))?;
        object.retain(|key, _| retained.iter().any(|retained| retained == key));
    }
    set_orders(node, &mut object, &mut patch)?;
    for (key, value) in patch {
        if let Some(key) = key.strip_prefix(DELETE_FROM) {
            if let (Some(Value::Array(held)), Value::Array(gone)) = (object.get_mut(key), value) {
                held.retain(|item| !gone.contains(item));
            }
            continue;
        }
        let below = node.and_then(|node| node.member(&key));
        match (object.get_mut(&key), value) {
            (_, Value::Null) => drop(object.remove(&key)),
            (Some(Value::Object(held)), Value::Object(patch)) => {
                *held = merge_map(below, std::mem::take(held), patch)?;
            }
            (Some(Value::Array(held)), Value::Array(patch)) => {
                *held = merge_list(below, std::mem::take(held), patch)?;
            }
            (_, value) => match fresh(value) {
                Some(value) => drop(object.insert(key, value)),
                None => drop(object.remove(&key)),
            },
        }
    }
    Ok(object)
}

/// Each `$setElementOrder/x` merges its list and orders it; the list is taken out of the patch.
fn set_orders(node: Option<Node<'_>>, object: &mut Fields, patch: &mut Fields) -> Result<(), Failure> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let key = directive.trim_start_matches(SET_ORDER);
        let list = |fields: &mut Fields, key: &str| match fields.remove(key) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(_) => Err(unclassified(&format!("{directive} and what it orders must be lists"))),
        };
        let order = list(patch, &directive)?.unwrap_or_default();
        let (held, given) = (list(object, key)?, list(patch, key)?);
        if held.is_none() && given.is_none() {
            continue;
        }
        let (held, given) = (held.unwrap_or_default(), given.unwrap_or_default());
        let below = node.and_then(|node| node.member(key));
        let merge_key = below.and_then(|below| below.schema.patch.merge_key.as_deref());
        let merged = if given.is_empty() { held.clone() } else { merge_list(below, held.clone(), given)? };
        object.insert(key.to_owned(), Value::Array(in_order(merged, &order, &held, merge_key)?));
    }
    Ok(())
}

/// A list field: merged if its strategy says so, else replaced.
fn merge_list(node: Option<Node<'_>>, mut held: Vec<Value>, patch: Vec<Value>) -> Result<Vec<Value>, Failure> {
    let Some(node) = node.filter(|node| node.schema.patch.merge) else { return Ok(patch) };
    let Some(merge_key) = node.schema.patch.merge_key.as_deref() else {
        let mut merged = held.clone();
        merged.extend(patch.iter().filter(|item| !held.contains(item)).cloned());
        return in_order(merged, &patch, &held, None);
    };
    let (directed, mut patch): (Vec<Value>, Vec<Value>) =
        patch.into_iter().partition(|item| item.get(DIRECTIVE).is_some());
    for item in directed {
        match item[DIRECTIVE].as_str() {
            Some("delete") => {
                let own = identity(&item, Some(merge_key))?;
                held.retain(|held| held.get(merge_key) != Some(own));
            }
            Some("replace") => held = std::mem::take(&mut patch),
            _ => return Err(unclassified(&format!("unknown {DIRECTIVE} in a list: {}", item[DIRECTIVE]))),
        }
    }
    let mut merged = held.clone();
    for item in &patch {
        let own = identity(item, Some(merge_key))?;
        match (merged.iter_mut().find(|held| held.get(merge_key) == Some(own)), item) {
            (Some(Value::Object(held)), Value::Object(fields)) => {
                *held = merge_map(Some(node.item()), std::mem::take(held), fields.clone())?;
            }
            _ => merged.push(item.clone()),
        }
    }
    in_order(merged, &patch, &held, Some(merge_key))
}

/// The items that `order` names in its order, the others in the order they were held in; the latter are put before the
/// first item of the former that they stood before.
fn in_order(items: Vec<Value>, order: &[Value], held: &[Value], key: Option<&str>) -> Result<Vec<Value>, Failure> {
    let (ordered, kept) = (places(order, key)?, places(held, key)?);
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in items {
        let own = identity(&item, key)?.to_string();
        let was = kept.get(&own).copied();
        match ordered.get(&own) {
            Some(place) => named.push((*place, was, item)),
            None => others.push((was, item)),
        }
    }
    named.sort_by_key(|(place, ..)| *place);
    others.sort_by_key(|(was, _)| *was);
    let mut others = others.into_iter().peekable();
    let mut sorted = Vec::new();
    for (_, was, item) in named {
        while let Some((_, other)) = others.next_if(|(other, _)| was.is_some() && *other < was) {
            sorted.push(other);
        }
        sorted.push(item);
    }
    sorted.extend(others.map(|(_, item)| item));
    Ok(sorted)
}

/// Where each item stands first.
fn places(items: &[Value], merge_key: Option<&str>) -> Result<BTreeMap<String, usize>, Failure> {
    let mut places = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        places.entry(identity(item, merge_key)?.to_string()).or_insert(at);
    }
    Ok(places)
}

/// The identity of an item: its merge key, or the item itself.
fn identity<'a>(item: &'a Value, merge_key: Option<&str>) -> Result<&'a Value, Failure> {
    let Some(merge_key) = merge_key else { return Ok(item) };
    item.get(merge_key)
        .ok_or_else(|| unclassified(&format!("an item of a list lacks its merge key `{merge_key}`: {item}")))
}

/// A new value without nulls and without maps that have a directive.
fn fresh(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            Some(fields.into_iter().filter_map(|(key, value)| Some((key, fresh(value)?))).collect())
        }
        Value::Array(items) => Some(items.into_iter().filter_map(fresh).collect()),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_)) => Some(other),
    }
}

/// The failure of a patch that does not fit the object; kube-apiserver responds with 500.
fn unclassified(why: &str) -> Failure {
    Failure::unclassified(why)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::recorded::{deployment, kind};
    use super::*;

    /// A deployment of the parts that the recorded cases look at.
    fn of_parts(parts: &Value) -> Value {
        let pods = json!({ "containers": parts["containers"], "volumes": parts["volumes"] });
        let template = json!({ "metadata": { "labels": parts["labels"] }, "spec": pods });
        let mut object = json!({
            "metadata": { "finalizers": parts["finalizers"], "annotations": parts["annotations"] },
            "spec": { "strategy": parts["strategy"], "template": template },
        });
        super::super::remove_nulls(&kind("Deployment"), &mut object);
        object
    }

    fn parts(object: &Value) -> Value {
        let full = |path: &str| {
            let value = object.pointer(path).cloned().unwrap_or_default();
            if value == json!({}) || value == json!([]) { Value::Null } else { value }
        };
        json!({
            "containers": full("/spec/template/spec/containers"), "volumes": full("/spec/template/spec/volumes"),
            "labels": full("/spec/template/metadata/labels"), "finalizers": full("/metadata/finalizers"),
            "annotations": full("/metadata/annotations"), "strategy": full("/spec/strategy"),
        })
    }

    #[test]
    fn patches_of_a_deployment_end_as_on_the_real_server() {
        let cases: Vec<Value> = serde_json::from_str(include_str!("strategic.json")).unwrap();
        let schema = Schema::parse(&deployment());
        assert!(cases.len() > 20);
        for case in &cases {
            let (about, document) = (&case["about"], case["patch"].to_string());
            let patched = patch(&schema, &of_parts(&case["before"]), document.as_bytes());
            match (case["status"].as_u64().unwrap(), patched) {
                (200, Ok(patched)) => assert_eq!(parts(&patched), case["after"], "{about}"),
                // the patch is fine, the result is not
                (422, Ok(patched)) => assert_eq!(parts(&patched)["containers"], Value::Null, "{about}"),
                (status, Err(failure)) => assert_eq!(u64::from(failure.code.as_u16()), status, "{about}"),
                (status, Ok(patched)) => panic!("{about}: {status}, and {patched:?}"),
            }
        }
    }
}
