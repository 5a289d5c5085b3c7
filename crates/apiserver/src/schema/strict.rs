//! Strict reading of a JSON body: fields that come twice, and fields that a built-in kind does not have.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Path, Schema};

/// Kubernetes stops counting here.
const MAX_FAULTS: usize = 100;

/// The faults of a body in its own order: `duplicate field "a.b"` and, with a schema, `unknown field "a.c"`.
///
/// Custom resources are read without a schema: theirs are found by pruning. A body that is no JSON has none.
pub fn faults(schema: Option<&Schema>, body: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let walk = Walk { schema, bare: schema.is_none(), path: Path::Root, found: &mut found };
    // a body that ends early has the faults up to there; the reader of the object refuses it
    if walk.deserialize(&mut reader).is_err() {
        tracing::trace!("strict reading stopped early");
    }
    found
}

/// `strict decoding error: ...`, as the answer to `fieldValidation=Strict` has it.
pub fn message(faults: &[String]) -> String {
    format!("strict decoding error: {}", faults.join(", "))
}

/// What pruning removed, in the words of `faults`.
pub fn unknown_fields(paths: &[String]) -> impl Iterator<Item = String> {
    paths.iter().map(|path| format!("unknown field \"{path}\""))
}

fn add(found: &mut Vec<String>, fault: String) {
    if found.len() < MAX_FAULTS && !found.contains(&fault) {
        found.push(fault);
    }
}

struct Walk<'a> {
    schema: Option<&'a Schema>,
    /// No schema anywhere: duplicates only.
    bare: bool,
    path: Path<'a>,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.bare || self.schema.is_some_and(|schema| !schema.preserve_unknown_fields) {
            deserializer.deserialize_any(self)
        } else {
            deserializer.deserialize_ignored_any(IgnoredAny).map(drop)
        }
    }
}

/// Scalars have no fields.
macro_rules! ignore {
    ($($visit:ident($type:ty)),*) => { $(fn $visit<E>(self, _: $type) -> Result<(), E> { Ok(()) })* };
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Walk { schema, bare, path, found } = self;
        let mut seen = BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let child = schema.and_then(|schema| schema.field(&name));
            let typed_meta = matches!(path, Path::Root) && (name == "apiVersion" || name == "kind");
            let path = Path::Field(&path, &name);
            if !bare && child.is_none() && !typed_meta {
                add(found, format!("unknown field \"{path}\""));
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if seen.contains(&name) {
                add(found, format!("duplicate field \"{path}\""));
            }
            map.next_value_seed(Walk { schema: child, bare, path, found })?;
            seen.insert(name);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Walk { schema, bare, path, found } = self;
        let schema = schema.and_then(|schema| schema.items.as_deref());
        let mut index = 0;
        while seq.next_element_seed(Walk { schema, bare, path: Path::Item(&path, index), found })?.is_some() {
            index += 1;
        }
        Ok(())
    }

    ignore!(visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_f64(f64), visit_str(&str));

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_custom_resource_tells_its_duplicates_in_order() {
        let body = br#"{"metadata":{"name":"x","name":"x"},"spec":{"desk":"d","desk":"e","kv":{"x":"y","x":"y"},
            "list":[{"num":1,"num":2}],"x":{"y":1,"y":2}},"kind":"Boat","kind":"Boat"}"#;
        let expected = ["metadata.name", "spec.desk", "spec.kv.x", "spec.list[0].num", "spec.x.y", "kind"];
        assert_eq!(faults(None, body), expected.map(|path| format!("duplicate field \"{path}\"")));
    }

    #[test]
    fn a_built_in_kind_tells_unknown_and_duplicate_fields_in_order() {
        let schema = Schema::parse(&json!({ "type": "object", "properties": {
            "metadata": { "type": "object", "properties": { "name": { "type": "string" },
                "labels": { "type": "object", "additionalProperties": { "type": "string" } } } },
            "data": { "type": "object", "additionalProperties": { "type": "string" } },
        } }));
        let body = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","zz":1,"labels":{"a":"b","a":"c"}},
            "data":{"a":"b","a":"c"},"foo":1,"bar":{"x":1},"foo":2}"#;
        assert_eq!(
            faults(Some(&schema), body),
            [
                "unknown field \"metadata.zz\"",
                "duplicate field \"metadata.labels.a\"",
                "duplicate field \"data.a\"",
                "unknown field \"foo\"",
                "unknown field \"bar\"",
            ]
        );
    }

    #[test]
    fn only_a_hundred_faults_are_told() {
        let fields: Vec<String> = (0..120).map(|index| format!("\"k{index}\":1")).collect();
        let body = format!("{{{}}}", fields.join(","));
        assert_eq!(faults(Some(&Schema::default()), body.as_bytes()).len(), 100);
    }
}
