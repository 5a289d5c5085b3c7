//! Reading and writing the metadata of an object that is a JSON tree.

use serde_json::{Map, Value};

/// A text of `metadata`; empty if it is not there.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|meta| meta.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// Sets a field of `metadata`, which is made if need be; null removes it.
pub(crate) fn set_meta(object: &mut Value, field: &str, value: impl Into<Value>) {
    let value = value.into();
    let Some(object) = object.as_object_mut() else { return };
    let meta = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !meta.is_object() {
        *meta = Value::Object(Map::new());
    }
    let Some(meta) = meta.as_object_mut() else { return };
    if value.is_null() {
        meta.remove(field);
    } else {
        meta.insert(field.to_owned(), value);
    }
}

/// A field of `metadata`, null if it is not there.
pub(crate) fn get_meta(object: &Value, field: &str) -> Value {
    object.get("metadata").and_then(|meta| meta.get(field)).cloned().unwrap_or_default()
}

/// Whether the object has finalizers.
pub(crate) fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

/// Whether the object is being deleted.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

/// A time as Kubernetes writes it: whole seconds, UTC.
pub(crate) fn time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A random uid, version 4.
pub(crate) fn uid() -> String {
    let bits = fastrand::u128(..) & !(0xf000 << 64) & !(0xc000 << 48) | (0x4000 << 64) | (0x8000 << 48);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The five random characters that `generateName` adds: without vowels and look-alikes, as Kubernetes has them.
pub(crate) fn name_suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).map(|_| char::from(LETTERS[fastrand::usize(..LETTERS.len())])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_a_version_4_uuid() {
        for _ in 0..100 {
            let uid = uid();
            assert_eq!(uid.len(), 36);
            assert_eq!(&uid[14..15], "4", "{uid}");
            assert!("89ab".contains(&uid[19..20]), "{uid}");
        }
    }
}
