//! Strict reading of a JSON body: fields that come twice, and fields that a built-in kind does not have.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Schema;

/// Kubernetes stops counting here.
const MAX_FAULTS: usize = 100;

/// The faults of a body in its own order: `duplicate field "a.b"` and, with a schema, `unknown field "a.c"`.
///
/// Custom resources are read without a schema: theirs are found by pruning. A body that is no JSON has none.
pub fn faults(schema: Option<&Schema>, body: &[u8]) -> Vec<String> {
    let mut found = Found::default();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let walk = Walk { schema, bare: schema.is_none(), path: String::new(), found: &mut found };
    // a body that ends early has the faults up to there; the reader of the object refuses it
    if walk.deserialize(&mut reader).is_err() {
        tracing::trace!("strict reading stopped early");
    }
    found.list
}

/// `strict decoding error: ...`, as the answer to `fieldValidation=Strict` has it.
pub fn message(faults: &[String]) -> String {
    format!("strict decoding error: {}", faults.join(", "))
}

/// What pruning removed, in the words of `faults`.
pub fn unknown_fields(paths: &[String]) -> impl Iterator<Item = String> {
    paths.iter().map(|path| format!("unknown field \"{path}\""))
}

#[derive(Default)]
struct Found {
    list: Vec<String>,
    seen: BTreeSet<String>,
}

impl Found {
    fn add(&mut self, fault: String) {
        if self.list.len() < MAX_FAULTS && self.seen.insert(fault.clone()) {
            self.list.push(fault);
        }
    }
}

struct Walk<'a> {
    schema: Option<&'a Schema>,
    /// No schema anywhere: duplicates only.
    bare: bool,
    path: String,
    found: &'a mut Found,
}

impl Walk<'_> {
    fn child<'c>(&'c mut self, schema: Option<&'c Schema>, path: String) -> Walk<'c> {
        Walk { schema, bare: self.bare, path, found: self.found }
    }
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

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let path = if self.path.is_empty() { name.clone() } else { format!("{}.{name}", self.path) };
            let child = self.schema.and_then(|schema| schema.field(&name));
            let typed_meta = self.path.is_empty() && (name == "apiVersion" || name == "kind");
            if !self.bare && child.is_none() && !typed_meta {
                self.found.add(format!("unknown field \"{path}\""));
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if !seen.insert(name) {
                self.found.add(format!("duplicate field \"{path}\""));
            }
            map.next_value_seed(self.child(child, path))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0;
        let items = self.schema.and_then(|schema| schema.items.as_deref());
        loop {
            let path = format!("{}[{index}]", self.path);
            if seq.next_element_seed(self.child(items, path))?.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
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
