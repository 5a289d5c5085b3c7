//! Rules for the metadata of every kind, and the rules of built-in kinds that clients and controllers rely on: values
//! that `markers.txt` demands, and in `bodies` rules between fields. What nothing here reads (volumes,
//! probes, resources and the like) is stored as it was written.

mod bodies;
mod metadata;
mod names;

use serde_json::Value;

use super::Kind;
use super::strategy::Strategy;
use crate::schema::Schema;
use crate::status::Cause;

/// ErrorList found so far, in the order in which they are reported.
#[derive(Debug, Default)]
pub(super) struct ErrorList(pub(super) Vec<Cause>);

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

impl ErrorList {
    fn push(&mut self, reason: &'static str, field: &str, message: String) {
        self.0.push(Cause { reason, message, field: field.to_owned() });
    }

    pub(super) fn invalid(&mut self, field: &str, value: &Value, message: &str) {
        self.push("FieldValueInvalid", field, format!("Invalid value: {value}: {message}"));
    }

    /// A text that should have a form.
    fn form(&mut self, field: &str, text: &str, form: &str) {
        if let Some(message) = names::wrong(form, text) {
            self.invalid(field, &text.into(), message);
        }
    }

    fn required(&mut self, field: &str, what: &str) {
        self.push("FieldValueRequired", field, format!("Required value: {what}"));
    }

    fn forbidden(&mut self, field: &str, why: &str) {
        self.push("FieldValueForbidden", field, format!("Forbidden: {why}"));
    }

    fn duplicate(&mut self, field: &str, value: &Value) {
        self.push("FieldValueDuplicate", field, format!("Duplicate value: {value}"));
    }

    fn too_long(&mut self, field: &str, most: usize) {
        self.push("FieldValueTooLong", field, format!("Too long: may not be more than {most} bytes"));
    }

    fn not_supported(&mut self, field: &str, value: &Value, supported: &[Value]) {
        let supported: Vec<String> = supported.iter().map(Value::to_string).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        self.push("FieldValueNotSupported", field, message);
    }
}

#[cfg(test)]
mod tests;
