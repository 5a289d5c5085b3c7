//! JSON patch (RFC 6902), by the crate json-patch.
//!
//! As in kube-apiserver, `replace` of a missing member adds it.

use http::StatusCode;
use json_patch::{AddOperation, PatchOperation};
use serde_json::Value;

use super::{read, rejected};
use crate::status::Failure;

/// The most operations one patch may have.
const MAX_OPERATIONS: usize = 10_000;
/// How many bytes of JSON the `copy` operations of one patch may add together (3 MiB, the limit of a request body).
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// Applies the patch document to the object.
pub fn patch(object: &Value, document: &[u8]) -> Result<Value, Failure> {
    let Value::Array(operations) = read(document)? else {
        return Err(Failure::bad_request("error decoding patch: a JSON patch is a list of operations"));
    };
    if operations.len() > MAX_OPERATIONS {
        let message = format!("a JSON patch has at most {MAX_OPERATIONS} operations, not {}", operations.len());
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message));
    }
    let mut object = object.clone();
    let mut copied = 0;
    for operation in operations {
        let operation = match serde_json::from_value(operation).map_err(rejected)? {
            PatchOperation::Replace(replace) if object.pointer(replace.path.as_str()).is_none() => {
                PatchOperation::Add(AddOperation { path: replace.path, value: replace.value })
            }
            PatchOperation::Copy(copy) => {
                copied += object.pointer(copy.from.as_str()).map_or(0, |source| source.to_string().len());
                PatchOperation::Copy(copy)
            }
            other @ (PatchOperation::Add(_)
            | PatchOperation::Remove(_)
            | PatchOperation::Replace(_)
            | PatchOperation::Move(_)
            | PatchOperation::Test(_)) => other,
        };
        if copied > MAX_COPIED {
            return Err(rejected("its copy operations exceed the size limit"));
        }
        json_patch::patch(&mut object, &[operation]).map_err(rejected)?;
    }
    if object.is_object() { Ok(object) } else { Err(rejected("the result is not an object")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(document: &Value) -> Result<Value, Failure> {
        let config = json!({ "data": { "k": "v", "n": "1" }, "metadata": { "name": "c", "finalizers": ["a/b"] } });
        patch(&config, document.to_string().as_bytes())
    }

    #[test]
    fn a_misfit_is_rejected() {
        for document in [
            json!([{}]),
            json!([null]),
            json!([{ "op": "frob", "path": "/data/x" }]),
            json!([{ "op": "add", "path": "/nope/x", "value": "y" }]),
            json!([{ "op": "add", "path": "", "value": 3 }]),
            json!([{ "op": "remove", "path": "/data/none" }]),
            json!([{ "op": "replace", "path": "/none/new", "value": "1" }]),
            json!([{ "op": "test", "path": "/data/k", "value": "w" }]),
            json!([{ "op": "remove", "path": "/metadata/finalizers/7" }]),
        ] {
            assert_eq!(run(&document).unwrap_err().code.as_u16(), 422, "{document}");
        }
        assert_eq!(run(&json!({ "op": "remove" })).unwrap_err().code.as_u16(), 400);
    }

    #[test]
    fn replacing_what_an_object_lacks_puts_it_in() {
        let patched = run(&json!([{ "op": "replace", "path": "/data/new", "value": "1" }])).unwrap();
        assert_eq!(patched["data"], json!({ "k": "v", "n": "1", "new": "1" }));
    }

    #[test]
    fn copies_cannot_grow_without_bound() {
        let many: Vec<Value> =
            (0..40).map(|n| json!({ "op": "copy", "from": "/data", "path": format!("/data/{n}") })).collect();
        assert_eq!(run(&json!(many)).unwrap_err().code.as_u16(), 422);
        let most = vec![json!({ "op": "test", "path": "/data/k", "value": "v" }); MAX_OPERATIONS + 1];
        assert_eq!(run(&json!(most)).unwrap_err().code.as_u16(), 413);
    }
}
