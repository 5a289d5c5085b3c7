//! Rules for the metadata of every kind, and the rules of built-in kinds that clients and controllers rely on: values
//! that `markers.txt` demands, and in `bodies` rules between fields. What nothing here reads (volumes,
//! probes, resources and the like) is stored as it was written.

mod bodies;
mod metadata;

use serde_json::Value;

use super::Kind;
use super::error_list::ErrorList;
use super::strategy::Strategy;
use crate::schema::Schema;
use crate::status::Cause;

/// All errors of an object about to be created (`old` is none) or updated; of a custom one those of its metadata.
pub fn validate(kind: &Kind, new: &Value, old: Option<&Value>, strategy: Strategy) -> Vec<Cause> {
    let mut errors = ErrorList::default();
    metadata::metadata(kind, new, old, &mut errors);
    if !kind.custom && strategy == Strategy::Main {
        values(&kind.schema, new, old, "", &mut errors);
        bodies::body(kind, new, old, &mut errors);
    }
    errors.0
}

/// Checks the values of an object against the schema of its built-in kind, recursively.
fn values(schema: &Schema, new: &Value, old: Option<&Value>, path: &str, errors: &mut ErrorList) {
    for (at, item) in new.as_array().into_iter().flatten().enumerate() {
        if let Some(schema) = &schema.items {
            values(schema, item, None, &format!("{path}[{at}]"), errors);
        }
    }
    let asked = |name: &str, schema: &Schema| new.get(name).is_some() || schema.raw.contains_key("x-portolan-needed");
    for (name, schema) in schema.properties.iter().filter(|(name, schema)| new.is_object() && asked(name, schema)) {
        let field = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let (new, old) = (&new[name], old.map(|old| &old[name]));
        value(schema, new, old, &field, errors);
        values(schema, new, old, &field, errors);
    }
}

fn value(schema: &Schema, new: &Value, old: Option<&Value>, field: &str, errors: &mut ErrorList) {
    let rules = &schema.raw;
    if rules.contains_key("x-portolan-fixed") && old.is_some_and(|old| old != new) {
        errors.invalid(field, new, "field is immutable");
    }
    if *new == Value::Null || *new == "" || new.as_array().is_some_and(Vec::is_empty) {
        if rules.contains_key("x-portolan-needed") {
            errors.required(field, "must not be empty");
        }
        return;
    }
    if let Some(Value::Array(known)) = rules.get("enum")
        && !known.contains(new)
    {
        errors.not_supported(field, new, known);
    }
    let bound = |name: &str| rules.get(name).and_then(Value::as_i64);
    let (least, most) = (bound("minimum").unwrap_or(i64::MIN), bound("maximum").unwrap_or(i64::MAX));
    if new.as_i64().is_some_and(|number| !(least..=most).contains(&number)) {
        errors.invalid(field, new, &format!("must be from {least} to {most}"));
    }
    if let (Some(Value::String(form)), Value::String(text)) = (rules.get("x-portolan-form"), new) {
        errors.form(field, text, form);
    }
}

#[cfg(test)]
mod tests;
