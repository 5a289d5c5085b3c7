//! Strategic merge patch of built-in kinds: lists merge by key where the schema says so, and directives in the patch
//! (`$patch`, `$retainKeys`, `$setElementOrder/x`, `$deleteFromPrimitiveList/x`) say the rest.

mod items;

use serde_json::{Map, Value};

use self::items::{element_type, identity, in_order, partition};
use super::decode::{self, json_type};
use super::node::Node;
use super::{FieldValidation, Patched, go, unclassified};
use crate::schema::Schema;
use crate::status::Failure;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

type Fields = Map<String, Value>;

/// Applies the patch document to the object.
pub fn patch(
    schema: &Schema,
    object: &Value,
    document: &[u8],
    validation: FieldValidation,
) -> Result<Patched, Failure> {
    let (patch, faults) = read(document, validation)?;
    let object = object.as_object().cloned().unwrap_or_default();
    let object = Value::Object(merge_map(Some(Node::built_in(schema)), object, patch)?);
    Ok(Patched { object, faults })
}

/// The patch document as the real server shows it when the result is no object of the kind (see `super::invalid`).
pub fn shown(document: &[u8]) -> Value {
    decode::document(document).map_or(Value::Null, |document| document.value)
}

fn read(document: &[u8], validation: FieldValidation) -> Result<(Fields, Vec<String>), Failure> {
    let document = decode::document(document).map_err(Failure::bad_request)?;
    let patch = match document.value {
        Value::Object(patch) => patch,
        Value::Null => Map::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            let what = json_type(&other);
            let why = format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}");
            return Err(Failure::bad_request(why));
        }
    };
    let told = document.duplicates.iter().filter(|_| validation != FieldValidation::Ignore);
    Ok((patch, told.map(|path| format!("duplicate field {path:?}")).collect()))
}

fn merge_map(node: Option<Node<'_>>, mut object: Fields, mut patch: Fields) -> Result<Fields, Failure> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(bad_directive(directive, &patch)),
        };
    }
    retain_keys(&mut object, &mut patch)?;
    set_orders(node, &mut object, &mut patch)?;
    for (key, value) in patch {
        let (key, deletes) = if key.starts_with(DELETE_FROM) {
            (list_of(&key, DELETE_FROM, "invalid patch format of primitive list")?.to_owned(), true)
        } else {
            (key, false)
        };
        let below = node.and_then(|node| node.member(&key));
        match (object.get_mut(&key), value) {
            (_, Value::Null) => {
                object.remove(&key);
            }
            (Some(Value::Object(held)), Value::Object(patch)) => {
                let merged = merge_map(below, std::mem::take(held), patch)?;
                object.insert(key, Value::Object(merged));
            }
            (Some(Value::Array(held)), Value::Array(patch)) => {
                let held = std::mem::take(held);
                let merged = if deletes { delete_from(held, &patch)? } else { merge_field(below, held, patch)? };
                object.insert(key, Value::Array(merged));
            }
            (_, mut value) if !deletes => {
                discard_nulls(&mut value);
                match without_directives(value) {
                    Some(value) => object.insert(key, value),
                    None => object.remove(&key),
                };
            }
            _ => {}
        }
    }
    Ok(object)
}

/// `$retainKeys` names all keys that may stay; the patch may bring no others.
fn retain_keys(object: &mut Fields, patch: &mut Fields) -> Result<(), Failure> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let refuse = || Failure::bad_request("invalid patch format of retainKeys");
    let retained = retained.as_array().ok_or_else(refuse)?;
    let stays = |key: &str| retained.iter().any(|retained| retained.as_str() == Some(key));
    let odd = patch.iter().any(|(key, value)| {
        !value.is_null() && !key.starts_with(DELETE_FROM) && !key.starts_with(SET_ORDER) && !stays(key)
    });
    if odd {
        return Err(refuse());
    }
    object.retain(|key, _| stays(key));
    Ok(())
}

/// Each `$setElementOrder/x` merges its list and orders it; the list is taken out of the patch.
fn set_orders(node: Option<Node<'_>>, object: &mut Fields, patch: &mut Fields) -> Result<(), Failure> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else { continue };
        // the name is looked at after the list
        let order = list(&order)?.clone();
        let key = list_of(&directive, SET_ORDER, "invalid patch format of setElementOrder list")?;
        let held = object.get(key).map(list).transpose()?.cloned();
        let given = patch.get(key).map(list).transpose()?.cloned();
        let below = node.and_then(|node| node.member(key));
        let merge_key = below.and_then(|below| below.schema.patch.merge_key.as_deref());
        check_order(given.as_deref().unwrap_or_default(), &order, merge_key)?;
        let merged = match (&held, &given) {
            (None, None) => continue,
            (Some(held), None) => held.clone(),
            (None, Some(given)) => given.iter().cloned().filter_map(without_directives).collect(),
            (Some(held), Some(given)) => merge_field(below, held.clone(), given.clone())?,
        };
        let held = held.unwrap_or_default();
        let maps = element_type(&[&held, given.as_deref().unwrap_or_default()])?;
        let (first, second) = partition(merged, &order, merge_key)?;
        let merge_key = if maps { merge_key } else { None };
        object.insert(key.to_owned(), Value::Array(in_order(first, second, &order, &held, merge_key)));
        patch.remove(key);
    }
    Ok(())
}

/// The list of the patch must be in the order that `$setElementOrder` gives, with no other items.
fn check_order(given: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), Failure> {
    if given.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut wanted = order.iter();
    for item in given.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let own = identity(item, merge_key)?;
        loop {
            let Some(next) = wanted.next() else {
                let (given, order) = (go::plain_list(given), go::plain_list(order));
                let message = format!("The order in patch list:\n{given}\n doesn't match {SET_ORDER} list:\n{order}\n");
                return Err(unclassified(message));
            };
            if identity(next, merge_key)? == own {
                break;
            }
        }
    }
    Ok(())
}

/// A list field: merged if its strategy says so, else replaced.
fn merge_field(node: Option<Node<'_>>, held: Vec<Value>, patch: Vec<Value>) -> Result<Vec<Value>, Failure> {
    match node {
        Some(node) if node.schema.patch.merge => merge_list(node, held, patch),
        _ => Ok(patch),
    }
}

fn merge_list(node: Node<'_>, held: Vec<Value>, patch: Vec<Value>) -> Result<Vec<Value>, Failure> {
    if held.is_empty() && patch.is_empty() {
        return Ok(held);
    }
    let maps = element_type(&[&held, &patch])?;
    if !maps {
        let mut merged: Vec<Value> = Vec::with_capacity(held.len() + patch.len());
        let mut seen = std::collections::BTreeSet::new();
        merged.extend(held.iter().chain(&patch).filter(|item| seen.insert(item.to_string())).cloned());
        let (first, second) = partition(merged, &patch, None)?;
        return Ok(in_order(first, second, &patch, &held, None));
    }
    let Some(merge_key) = node.schema.patch.merge_key.as_deref() else {
        return Err(unclassified("cannot merge lists without merge key for struct"));
    };
    let (held, patch) = directives_in_list(held, patch, merge_key)?;
    let mut merged = held.clone();
    for item in &patch {
        let Value::Object(fields) = item else { continue };
        let own = identity(item, Some(merge_key))?;
        match merged.iter_mut().find(|held| held.get(merge_key) == Some(own)) {
            Some(Value::Object(held)) => {
                *held = merge_map(Some(node.item()), std::mem::take(held), fields.clone())?;
            }
            _ => merged.push(item.clone()),
        }
    }
    let (first, second) = partition(merged, &patch, Some(merge_key))?;
    Ok(in_order(first, second, &patch, &held, Some(merge_key)))
}

/// Carries out `$patch: delete` and `$patch: replace` of list items; what is left of the patch is to be merged.
fn directives_in_list(
    mut held: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Failure> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replace = false;
    for item in patch {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let own = identity(&item, Some(merge_key))?;
                held.retain(|held| held.get(merge_key) != Some(own));
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(unclassified("merging lists cannot yet be specified in the patch")),
            _ => return Err(bad_directive(directive, item.as_object().unwrap_or(&Map::new()))),
        }
    }
    Ok(if replace { (plain, Vec::new()) } else { (held, plain) })
}

fn delete_from(held: Vec<Value>, gone: &[Value]) -> Result<Vec<Value>, Failure> {
    if held.is_empty() && gone.is_empty() {
        return Ok(held);
    }
    if element_type(&[&held, gone])? {
        return Err(unclassified("cannot merge lists without merge key for struct"));
    }
    Ok(held.into_iter().filter(|item| !gone.contains(item)).collect())
}

/// A value that is new: maps with a directive are not in it.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let fields = fields.into_iter().filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(Value::Object(fields.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => Some(other),
    }
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The field that a directive such as `$setElementOrder/finalizers` is about.
fn list_of<'a>(directive: &'a str, prefix: &str, refusal: &str) -> Result<&'a str, Failure> {
    directive.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')).ok_or_else(|| Failure::bad_request(refusal))
}

fn list(value: &Value) -> Result<&Vec<Value>, Failure> {
    value
        .as_array()
        .ok_or_else(|| unclassified(format!("expected a []interface {{}}, but received a {}", go::type_name(value))))
}

fn bad_directive(directive: &Value, patch: &Fields) -> Failure {
    let patch = go::plain(&Value::Object(patch.clone()));
    unclassified(format!("unknown patch type: {} in map: {patch}", go::plain(directive)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::recorded::{deployment, kind, schema_of};
    use super::*;

    /// A deployment of the parts that the recorded cases look at.
    fn of_parts(parts: &Value) -> Value {
        let pods = json!({ "containers": parts["containers"], "volumes": parts["volumes"] });
        let template = json!({ "metadata": { "labels": parts["labels"] }, "spec": pods });
        let mut object = json!({
            "metadata": { "finalizers": parts["finalizers"], "annotations": parts["annotations"] },
            "spec": { "strategy": parts["strategy"], "template": template },
        });
        super::super::settle_nulls(&kind("Deployment"), &mut object);
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
        let cases: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).unwrap();
        let schema = schema_of(&deployment());
        assert!(cases.len() > 20);
        for case in &cases {
            let (about, document) = (&case["about"], case["patch"].to_string());
            let patched = patch(&schema, &of_parts(&case["before"]), document.as_bytes(), FieldValidation::Warn);
            match (case["status"].as_u64().unwrap(), patched) {
                (200, Ok(patched)) => assert_eq!(parts(&patched.object), case["after"], "{about}"),
                // the patch is fine, the result is not
                (422, Ok(patched)) => assert_eq!(parts(&patched.object)["containers"], Value::Null, "{about}"),
                (_, Err(failure)) => assert_eq!(failure.to_json(), case["answer"], "{about}"),
                (status, Ok(patched)) => panic!("{about}: {status}, and {patched:?}"),
            }
        }
    }

    #[test]
    fn bad_documents_are_told_as_the_real_server_tells_them() {
        let schema = schema_of(&deployment());
        let told = |document: &str| {
            let object = json!({ "metadata": { "labels": { "a": "b" }, "finalizers": ["a/b"] } });
            let failure = patch(&schema, &object, document.as_bytes(), FieldValidation::Warn).unwrap_err();
            (failure.code.as_u16(), failure.message)
        };
        for (document, code, message) in [
            ("", 400, "unexpected end of JSON input"),
            ("[]", 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
            (r#"{"$patch":"merge"}"#, 500, "unknown patch type: merge in map: map[$patch:merge]"),
            (r#"{"metadata":{"labels":{"$patch":"frob"}}}"#, 500, "unknown patch type: frob in map: map[$patch:frob]"),
            (r#"{"metadata":{"finalizers":[["a"]]}}"#, 500, "list element types are not identical: [[a/b] [[a]]]"),
            (
                r#"{"metadata":{"$setElementOrder/finalizers":"x"}}"#,
                500,
                "expected a []interface {}, but received a string",
            ),
            (r#"{"metadata":{"$setElementOrder":["a"]}}"#, 400, "invalid patch format of setElementOrder list"),
            (r#"{"metadata":{"$deleteFromPrimitiveList":["a"]}}"#, 400, "invalid patch format of primitive list"),
            (r#"{"metadata":{"$retainKeys":"x"}}"#, 400, "invalid patch format of retainKeys"),
        ] {
            assert_eq!(told(document), (code, message.to_owned()), "{document}");
        }
        assert!(patch(&schema, &json!({}), b"null", FieldValidation::Warn).is_ok());
    }
}
