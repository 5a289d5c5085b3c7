//! The entries of `metadata.managedFields`: who owns what, read and written.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fields::Set;

/// One owner: two entries of `managedFields` never have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub manager: String,
    pub operation: Operation,
    /// Empty for those who apply: they are one owner in all versions.
    pub version: String,
    pub subresource: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// What an owner has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub fields: Set,
    pub version: String,
    pub time: Option<String>,
}

/// All owners of an object.
pub(super) type Managed = BTreeMap<Owner, Held>;

/// Reads `managedFields`; the error is the real server's sentence.
pub(super) fn load(entries: &Value) -> Result<Managed, String> {
    let mut managed = Managed::new();
    for (index, entry) in entries.as_array().into_iter().flatten().enumerate() {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let operation = match text("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        let version = text("apiVersion");
        if version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType").as_str() {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
            other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {index}")),
        }
        let none = json!({});
        let fields = Set::from_json(entry.get("fieldsV1").filter(|fields| !fields.is_null()).unwrap_or(&none))
            .map_err(|why| format!("error decoding set: {why}"))?;
        let owner = Owner {
            manager: text("manager"),
            operation,
            version: if operation == Operation::Apply { String::new() } else { version.clone() },
            subresource: text("subresource"),
        };
        let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
        managed.insert(owner, Held { fields, version, time });
    }
    Ok(managed)
}

/// Writes `managedFields`: those who apply first, then by time and name; nothing if nobody owns anything.
pub(super) fn store(object: &mut Value, managed: &Managed) {
    let Some(fields) = object.as_object_mut() else { return };
    let meta = fields.entry("metadata").or_insert_with(|| json!({}));
    let Some(meta) = meta.as_object_mut() else { return };
    if managed.is_empty() {
        meta.remove("managedFields");
        return;
    }
    let mut entries: Vec<(&Owner, &Held)> = managed.iter().collect();
    entries.sort_by_key(|(owner, held)| {
        (owner.operation, held.time.clone(), owner.manager.clone(), held.version.clone(), owner.subresource.clone())
    });
    meta.insert("managedFields".to_owned(), entries.into_iter().map(|(owner, held)| entry(owner, held)).collect());
}

fn entry(owner: &Owner, held: &Held) -> Value {
    let operation = match owner.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut entry = Map::new();
    for (name, value) in [
        ("manager", owner.manager.as_str()),
        ("operation", operation),
        ("apiVersion", &held.version),
        ("time", held.time.as_deref().unwrap_or_default()),
        ("fieldsType", "FieldsV1"),
        ("subresource", &owner.subresource),
    ] {
        if !value.is_empty() {
            entry.insert(name.to_owned(), value.into());
        }
    }
    entry.insert("fieldsV1".to_owned(), held.fields.to_json());
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_entries_are_told_as_the_real_server_tells_them() {
        for (entry, told) in [
            (json!({ "operation": "Frob" }), "operation must be `Apply` or `Update`"),
            (json!({ "operation": "Apply" }), "apiVersion must not be empty"),
            (json!({ "operation": "Apply", "apiVersion": "v1" }), "missing fieldsType in managed fields entry 0"),
            (
                json!({ "operation": "Apply", "apiVersion": "v1", "fieldsType": "x" }),
                "invalid fieldsType \"x\" in managed fields entry 0",
            ),
        ] {
            assert_eq!(load(&json!([entry])), Err(told.to_owned()));
        }
    }
}
