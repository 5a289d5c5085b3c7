//! JSON merge patch (RFC 7386), by the crate json-patch.

use serde_json::Value;

use super::read;
use crate::status::Failure;

/// Applies the patch document to the object.
pub fn patch(object: &Value, document: &[u8]) -> Result<Value, Failure> {
    let patch = read(document)?;
    if !patch.is_object() {
        return Err(Failure::bad_request("error decoding patch: a merge patch is an object"));
    }
    let mut object = object.clone();
    json_patch::merge(&mut object, &patch);
    Ok(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_put_in_replaced_and_taken_out() {
        let object = json!({ "a": { "b": "c", "d": [1] }, "e": 1 });
        let patched = patch(&object, br#"{"a":{"b":null,"d":[2.0],"f":{"g":null}},"e":"x"}"#).unwrap();
        assert_eq!(patched, json!({ "a": { "d": [2], "f": {} }, "e": "x" }));
        for bad in ["", "{", "[]", "null", "5"] {
            assert_eq!(patch(&object, bad.as_bytes()).unwrap_err().code.as_u16(), 400, "{bad}");
        }
    }
}
