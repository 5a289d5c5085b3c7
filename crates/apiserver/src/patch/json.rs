//! JSON patch (RFC 6902) as the real server does it.
//!
//! It departs from the RFC, and clients rely on it: `replace` and `copy` take missing members of an object for null,
//! `test` finds a missing member equal to null, and a negative index counts from the end. That is why the operations
//! are written out here; the crate json-patch follows the RFC.

use http::StatusCode;
use serde_json::{Map, Value};

use super::decode::{self, json_type};
use super::{FieldValidation, Patched, rejected};
use crate::status::Failure;

/// The most operations one patch may have.
const MAX_OPERATIONS: usize = 10_000;
/// How many bytes of JSON the `copy` operations of one patch may add together (3 MiB, the limit of a request body).
const MAX_COPIED: usize = 3 * 1024 * 1024;
const FIELDS: [&str; 4] = ["op", "path", "from", "value"];

type Operation = Map<String, Value>;

/// Applies the patch document to the object.
pub fn patch(object: &Value, document: &[u8], validation: FieldValidation) -> Result<Patched, Failure> {
    let (operations, faults) = operations(document, validation)?;
    if operations.len() > MAX_OPERATIONS {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        );
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message));
    }
    let mut object = object.clone();
    let mut copied = 0;
    for operation in &operations {
        // every misfit has the same answer
        step(&mut object, operation, &mut copied).ok_or_else(rejected)?;
    }
    Ok(Patched { object, faults })
}

fn operations(document: &[u8], validation: FieldValidation) -> Result<(Vec<Operation>, Vec<String>), Failure> {
    let lenient = validation == FieldValidation::Ignore;
    let prefix = if lenient { "" } else { "error decoding patch: " };
    let refuse = |why: &str| Failure::bad_request(format!("{prefix}{why}"));
    let misfit = |value: &Value, target: &str| {
        refuse(&format!("json: cannot unmarshal {} into Go value of type {target}", json_type(value)))
    };
    let (list_type, item_type) = if lenient {
        ("jsonpatch.Patch", "jsonpatch.Operation")
    } else {
        ("[]handlers.jsonPatchOp", "handlers.jsonPatchOp")
    };
    let document = decode::document(document).map_err(|why| refuse(&why))?;
    if !document.value.is_null() && !document.value.is_array() {
        return Err(misfit(&document.value, list_type));
    }
    let list = if let Value::Array(list) = document.value { list } else { Vec::new() };
    let mut operations = Vec::with_capacity(list.len());
    let mut faults = Vec::new();
    for (index, item) in list.into_iter().enumerate() {
        if !item.is_null() && !item.is_object() {
            return Err(misfit(&item, item_type));
        }
        let operation = if let Value::Object(fields) = item { fields } else { Map::new() };
        if !lenient {
            for name in FIELDS.into_iter().take(3) {
                if let Some(value) = operation.get(name).filter(|v| !v.is_string() && !v.is_null()) {
                    let what = json_type(value);
                    let target = format!("json: cannot unmarshal {what} into Go struct field jsonPatchOp.{name}");
                    return Err(refuse(&format!("{target} of type string")));
                }
            }
            let unknown = operation.keys().filter(|name| !FIELDS.contains(&name.as_str()));
            faults.extend(unknown.map(|name| format!("json patch unknown field \"[{index}].{name}\"")));
        }
        operations.push(operation);
    }
    if !lenient {
        faults.extend(document.duplicates.iter().map(|path| format!("json patch duplicate field {path:?}")));
    }
    Ok((operations, faults))
}

/// One operation; none when it does not fit.
fn step(object: &mut Value, operation: &Operation, copied: &mut usize) -> Option<()> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match text("op")? {
        "add" => add(object, text("path")?, value()),
        "remove" => remove(object, text("path")?).map(|_| ()),
        "replace" => replace(object, text("path")?, value()),
        "test" => test(object, text("path")?, &value()),
        "move" => {
            let taken = remove(object, text("from")?)?;
            add(object, text("path")?, taken)
        }
        "copy" => {
            let found = get(object, text("from")?)?.clone();
            *copied += if found.is_null() { 0 } else { found.to_string().len() };
            if *copied > MAX_COPIED {
                return None;
            }
            add(object, text("path")?, found)
        }
        _ => None,
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    let (parent, key) = find(object, path)?;
    if let Value::Object(fields) = parent {
        fields.insert(key, value);
        return Some(());
    }
    let items = parent.as_array_mut()?;
    let at = if key == "-" { items.len() } else { index(&key, items.len() + 1)? };
    items.insert(at, value);
    Some(())
}

fn remove(object: &mut Value, path: &str) -> Option<Value> {
    let (parent, key) = find(object, path)?;
    if let Value::Object(fields) = parent {
        return fields.remove(&key);
    }
    let items = parent.as_array_mut()?;
    let at = index(&key, items.len())?;
    Some(items.remove(at))
}

fn replace(object: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *object = Some(value).filter(|v| v.is_object() || v.is_array())?;
        return Some(());
    }
    let (parent, key) = find(object, path)?;
    if let Value::Object(fields) = parent {
        fields.insert(key, value);
        return Some(());
    }
    let items = parent.as_array_mut()?;
    let at = index(&key, items.len())?;
    *items.get_mut(at)? = value;
    Some(())
}

fn test(object: &mut Value, path: &str, value: &Value) -> Option<()> {
    if path.is_empty() {
        return (object == value).then_some(());
    }
    (get(object, path)? == value).then_some(())
}

/// The container that holds the path's last step, and that step.
fn find<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let mut steps: Vec<String> =
        path.strip_prefix('/')?.split('/').map(|s| s.replace("~1", "/").replace("~0", "~")).collect();
    let last = steps.pop()?;
    let mut at = object;
    for step in steps {
        if at.is_object() {
            at = at.get_mut(&step)?;
        } else {
            let items = at.as_array_mut()?;
            let place = index(&step, items.len())?;
            at = items.get_mut(place)?;
        }
    }
    (at.is_object() || at.is_array()).then_some((at, last))
}

/// What is at the path: null for a member that an object lacks, none for a place that a list lacks.
fn get<'a>(object: &'a mut Value, path: &str) -> Option<&'a Value> {
    let (parent, key) = find(object, path)?;
    if let Value::Object(fields) = parent {
        return Some(fields.get(&key).unwrap_or(&Value::Null));
    }
    let items = parent.as_array()?;
    items.get(index(&key, items.len())?)
}

/// A place in a list of so many; negative ones count from the end.
fn index(key: &str, length: usize) -> Option<usize> {
    let at: i64 = key.parse().ok()?;
    let at = if at < 0 { at.checked_add(i64::try_from(length).ok()?)? } else { at };
    usize::try_from(at).ok().filter(|at| *at < length)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config() -> Value {
        json!({ "data": { "k": "v", "n": "1" }, "metadata": { "name": "c", "finalizers": ["a/b"] } })
    }

    fn run(document: &Value) -> Result<Value, Failure> {
        patch(&config(), document.to_string().as_bytes(), FieldValidation::Warn).map(|patched| patched.object)
    }

    #[test]
    fn a_misfit_is_rejected_without_a_reason_as_the_real_server_does() {
        let f = "/metadata/finalizers";
        for document in [
            json!([{}]),
            json!([null]),
            json!([{ "op": "add" }]),
            json!([{ "op": "frob", "path": "/data/x" }]),
            json!([{ "op": "add", "path": "/nope/x", "value": "y" }]),
            json!([{ "op": "add", "path": "", "value": {} }]),
            json!([{ "op": "add", "path": "data", "value": {} }]),
            json!([{ "op": "add", "path": "/data/k/z", "value": "1" }]),
            json!([{ "op": "remove", "path": "/data/none" }]),
            json!([{ "op": "remove", "path": "" }]),
            json!([{ "op": "replace", "path": "/none/new", "value": "1" }]),
            json!([{ "op": "replace", "path": "", "value": 3 }]),
            json!([{ "op": "move", "from": "/data/none", "path": "/data/x" }]),
            json!([{ "op": "move", "path": "/data/x" }]),
            json!([{ "op": "copy", "from": "/data/k", "path": "/q/x" }]),
            json!([{ "op": "copy", "from": "/data/k" }]),
            json!([{ "op": "test", "path": "/data/k", "value": "w" }]),
            json!([{ "op": "test", "path": "/data/none", "value": "w" }]),
            json!([{ "op": "test", "path": "/q/none", "value": "w" }]),
            json!([{ "op": "test", "path": "", "value": {} }]),
            json!([{ "op": "add", "path": format!("{f}/5"), "value": "c/d" }]),
            json!([{ "op": "add", "path": format!("{f}/x"), "value": "c/d" }]),
            json!([{ "op": "add", "path": format!("{f}/-9"), "value": "c/d" }]),
            json!([{ "op": "remove", "path": format!("{f}/7") }]),
            json!([{ "op": "replace", "path": format!("{f}/7"), "value": "x" }]),
            json!([{ "op": "test", "path": format!("{f}/7"), "value": "x" }]),
        ] {
            let failure = run(&document).unwrap_err().to_json();
            let message = "the server rejected our request due to an error in our request";
            assert_eq!(
                failure,
                json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 422,
                    "reason": "Invalid", "details": {}, "message": message,
                }),
                "{document}"
            );
        }
    }

    #[test]
    fn missing_members_are_null() {
        for (document, path, value) in [
            (json!([{ "op": "add", "path": "/data/z" }]), "/data/z", Value::Null),
            (json!([{ "op": "replace", "path": "/data/new", "value": "1" }]), "/data/new", json!("1")),
            (json!([{ "op": "copy", "from": "/data/none", "path": "/data/x" }]), "/data/x", Value::Null),
            (json!([{ "op": "test", "path": "/data/none" }]), "/data", json!({ "k": "v", "n": "1" })),
            (json!([{ "op": "test", "path": "/data/none", "value": null }]), "/data/k", json!("v")),
            (json!([{ "op": "add", "path": "/data/a~1b~0", "value": 1 }]), "/data/a~1b~0", json!(1)),
        ] {
            assert_eq!(run(&document).unwrap().pointer(path), Some(&value), "{document}");
        }
    }

    #[test]
    fn a_negative_index_counts_from_the_end() {
        let document = json!([
            { "op": "add", "path": "/metadata/finalizers/-1", "value": "c/d" },
            { "op": "test", "path": "/metadata/finalizers", "value": ["a/b", "c/d"] },
        ]);
        assert_eq!(run(&document).unwrap()["metadata"]["finalizers"], json!(["a/b", "c/d"]));
    }

    #[test]
    fn a_bad_document_is_told_apart_by_field_validation() {
        let told = |text: &str, validation| {
            let failure = patch(&config(), text.as_bytes(), validation).unwrap_err();
            assert_eq!((failure.code.as_u16(), &*failure.reason), (400, "BadRequest"));
            failure.message
        };
        for (text, warned, ignored) in [
            ("", "unexpected end of JSON input", "unexpected end of JSON input"),
            (
                "{}",
                "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
                "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
            ),
            (
                "[1]",
                "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
                "json: cannot unmarshal number into Go value of type jsonpatch.Operation",
            ),
        ] {
            assert_eq!(told(text, FieldValidation::Warn), format!("error decoding patch: {warned}"));
            assert_eq!(told(text, FieldValidation::Ignore), ignored);
        }
        let number = r#"[{"op":1,"path":"/data/x"}]"#;
        let sentence = "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string";
        assert_eq!(told(number, FieldValidation::Strict), format!("error decoding patch: {sentence}"));
        assert_eq!(patch(&config(), number.as_bytes(), FieldValidation::Ignore).unwrap_err().code.as_u16(), 422);
        assert_eq!(patch(&config(), b"null", FieldValidation::Warn).unwrap().object, config());
    }

    #[test]
    fn unknown_and_repeated_fields_of_an_operation_are_faults() {
        let document = br#"[{"op":"add","path":"/data/x","value":"y","value":"z","foo":1}]"#;
        let patched = patch(&config(), document, FieldValidation::Warn).unwrap();
        let faults = ["json patch unknown field \"[0].foo\"", "json patch duplicate field \"[0].value\""];
        assert_eq!(patched.faults, faults);
        assert_eq!(patched.object["data"]["x"], "z");
        assert!(patch(&config(), document, FieldValidation::Ignore).unwrap().faults.is_empty());
    }

    #[test]
    fn operations_and_copies_are_limited() {
        let test = json!({ "op": "test", "path": "/data/k", "value": "v" });
        let failure = run(&Value::Array(vec![test; 10_001])).unwrap_err();
        assert_eq!((failure.code.as_u16(), &*failure.reason), (413, "RequestEntityTooLarge"));
        assert_eq!(
            failure.message,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
        let mut grow = vec![json!({ "op": "add", "path": "/data/big", "value": "x".repeat(1_000_000) })];
        grow.extend((0..4).map(|i| json!({ "op": "copy", "from": "/data/big", "path": format!("/data/b{i}") })));
        assert_eq!(run(&Value::Array(grow.clone())).unwrap_err(), rejected());
        assert!(run(&Value::Array(grow[..4].to_vec())).is_ok());
    }
}
