//! Stored objects as items of lists: the same text without `apiVersion` and `kind`.

use serde::de::IgnoredAny;

/// Appends an object, whose fields are in order, without its type; none if it has no type in the first place.
///
/// Only what stands before `kind` is parsed. The rest, which is nearly everything but for objects with `data`, is copied.
pub(super) fn push(text: &mut Vec<u8>, object: &[u8]) -> Option<()> {
    let rest = object.strip_prefix(b"{\"apiVersion\":")?;
    let rest = rest.get(value_length(rest)?..)?.strip_prefix(b",")?;
    let mut kind_at = 0;
    let kind_and_rest = loop {
        let field = rest.get(kind_at..)?;
        if let Some(kind) = field.strip_prefix(b"\"kind\":") {
            break kind;
        }
        let name = value_length(field)?;
        // the colon before its value, and the comma behind
        let value = value_length(field.get(name + 1..)?)?;
        kind_at += name + 1 + value + 1;
    };
    text.push(b'{');
    let behind = kind_and_rest.get(value_length(kind_and_rest)?..)?;
    match (&rest[..kind_at], behind.strip_prefix(b",")) {
        (before, Some(behind)) => {
            text.extend_from_slice(before);
            text.extend_from_slice(behind);
        }
        // it is the last field: the comma before it goes, too
        (before, None) => {
            text.extend_from_slice(before.strip_suffix(b",").unwrap_or(before));
            text.extend_from_slice(behind);
        }
    }
    Some(())
}

/// How long the JSON value is that a text begins with.
fn value_length(text: &[u8]) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(object: &str) -> Option<String> {
        let mut text = Vec::new();
        push(&mut text, object.as_bytes())?;
        Some(String::from_utf8(text).unwrap())
    }

    #[test]
    fn the_type_is_left_out_wherever_it_stands() {
        for (object, item) in [
            (r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#, r#"{"metadata":{"name":"a"}}"#),
            (r#"{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap"}"#, r#"{"data":{"k":"v"}}"#),
            (r#"{"apiVersion":"v1","kind":"ConfigMap"}"#, "{}"),
            (
                r#"{"apiVersion":"v1","count":3,"involvedObject":{"kind":"Pod"},"kind":"Event","message":"m"}"#,
                r#"{"count":3,"involvedObject":{"kind":"Pod"},"message":"m"}"#,
            ),
        ] {
            assert_eq!(pushed(object).as_deref(), Some(item), "{object}");
        }
    }

    #[test]
    fn a_text_that_looks_like_the_type_stays() {
        let object =
            r#"{"apiVersion":"v1","data":{"a":"\",\"kind\":\"x\"","kind":"y"},"kind":"ConfigMap","metadata":{}}"#;
        assert_eq!(pushed(object).unwrap(), r#"{"data":{"a":"\",\"kind\":\"x\"","kind":"y"},"metadata":{}}"#);
    }

    #[test]
    fn an_object_without_a_type_is_not_taken() {
        for object in [r#"{"metadata":{}}"#, r#"{"apiVersion":"v1"}"#, r#"{"apiVersion":"v1","metadata":{}}"#, "{"] {
            assert_eq!(pushed(object), None, "{object}");
        }
    }

    #[test]
    fn an_item_is_what_decoding_and_leaving_out_gives() {
        proptest::proptest!(|(data in proptest::collection::btree_map(".*", ".*", 0..4), name in ".*")| {
            let object = serde_json::json!({
                "apiVersion": "v1", "data": data, "kind": "ConfigMap", "metadata": { "name": name },
            });
            let mut untyped = object.clone();
            untyped.as_object_mut().unwrap().retain(|field, _| field != "apiVersion" && field != "kind");
            proptest::prop_assert_eq!(pushed(&object.to_string()).unwrap(), untyped.to_string());
        });
    }
}
