//! What the schema of a definition must be: structural (every field has its type outside of `allOf` and the like), with
//! valid lists, patterns, defaults and rules.

use serde_json::{Value, json};

use crate::json::{list, text};
use crate::schema::cel::Rules;
use crate::schema::fault::{forbidden, invalid, not_supported, required};
use crate::schema::{Path, Schema, prune, validate};
use crate::status::Cause;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const LIST_TYPES: [&str; 3] = ["atomic", "map", "set"];
const UNSUPPORTED: &str = "$ref additionalItems definitions dependencies id patternProperties uniqueItems";
/// Keywords of the schema itself that a branch of `allOf` and the like cannot have.
const OUTSIDE: &str = "additionalProperties default description nullable title type x-kubernetes-embedded-resource \
    x-kubernetes-int-or-string x-kubernetes-list-type x-kubernetes-map-type x-kubernetes-preserve-unknown-fields \
    x-kubernetes-validations";

/// The errors of an `openAPIV3Schema`; `path` ends with that word.
pub(super) fn faults(schema: &Value, path: &str) -> Vec<Cause> {
    let mut found = Vec::new();
    if !["", "object"].contains(&text(schema, "/type")) {
        found.push(invalid(format!("{path}.type"), &schema["type"], "must be object at the root"));
    }
    refuse(schema, "additionalProperties nullable", path, &mut found);
    node(schema, path, &mut found);
    if found.is_empty() {
        let schema = Schema::parse(schema);
        defaults(&schema, path, &mut found);
        found.extend(Rules::compile_checked(&schema, path).1);
    }
    found.sort_by(|one, other| one.field.cmp(&other.field));
    found
}

fn node(schema: &Value, path: &str, found: &mut Vec<Cause>) {
    let at = |name: &str| format!("{path}.{name}");
    refuse(schema, UNSUPPORTED, path, found);
    type_of(schema, path, found);
    let properties = schema.get("properties").and_then(Value::as_object);
    match (properties, schema.get("additionalProperties")) {
        (Some(fields), Some(additional)) if !fields.is_empty() && *additional != json!(true) => {
            found.push(forbidden(at("additionalProperties"), "and properties are mutually exclusive"));
        }
        (_, Some(additional)) if additional.is_object() => node(additional, &at("additionalProperties"), found),
        _ => {}
    }
    for (name, property) in properties.into_iter().flatten() {
        node(property, &at(&format!("properties[{name}]")), found);
    }
    match schema.get("items") {
        None if text(schema, "/type") == "array" => found.push(required(at("items"), "must be specified")),
        None => {}
        Some(items) if items.is_object() => node(items, &at("items"), found),
        Some(_) => found.push(forbidden(at("items"), "items must be a schema object and not an array")),
    }
    lists(schema, path, found);
    value_rules(schema, path, found);
}

fn refuse(schema: &Value, keywords: &str, path: &str, found: &mut Vec<Cause>) {
    for name in keywords.split(' ').filter(|name| schema.get(*name).is_some_and(|value| *value != json!(false))) {
        found.push(forbidden(format!("{path}.{name}"), "must not be used here"));
    }
}

fn type_of(schema: &Value, path: &str, found: &mut Vec<Cause>) {
    let at = format!("{path}.type");
    let type_ = text(schema, "/type");
    let embedded = is_set(schema, "x-kubernetes-embedded-resource");
    let free = is_set(schema, "x-kubernetes-int-or-string") || is_set(schema, "x-kubernetes-preserve-unknown-fields");
    if type_.is_empty() && (embedded || !free) {
        found.push(required(at, "must not be empty"));
    } else if !type_.is_empty() && !TYPES.contains(&type_) {
        found.push(not_supported(at, &type_.into(), &TYPES));
    } else if embedded && type_ != "object" {
        found.push(invalid(at, &type_.into(), "must be object if x-kubernetes-embedded-resource is true"));
    }
}

/// Patterns, and the branches of `allOf` and the like, which may have value validations only.
fn value_rules(schema: &Value, path: &str, found: &mut Vec<Cause>) {
    let pattern = text(schema, "/pattern");
    if !pattern.is_empty()
        && let Err(why) = crate::schema::pattern(pattern)
    {
        found.push(invalid(format!("{path}.pattern"), &pattern.into(), &why.to_string()));
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        let branches = list(schema, &format!("/{name}"));
        // int-or-string may say so with types
        let either = branches == [json!({ "type": "integer" }), json!({ "type": "string" })];
        for (index, branch) in branches.iter().enumerate().filter(|_| !either) {
            self::branch(branch, &format!("{path}.{name}[{index}]"), found);
        }
    }
    if let Some(not) = schema.get("not") {
        branch(not, &format!("{path}.not"), found);
    }
}

fn branch(schema: &Value, path: &str, found: &mut Vec<Cause>) {
    value_rules(schema, path, found);
    if let Some(items) = schema.get("items") {
        branch(items, &format!("{path}.items"), found);
    }
    for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        branch(child, &format!("{path}.properties[{name}]"), found);
    }
    refuse(schema, OUTSIDE, path, found);
}

/// The keys of a list of type map must exist and be scalar.
fn lists(schema: &Value, path: &str, found: &mut Vec<Cause>) {
    let at = |name: &str| format!("{path}.{name}");
    let list_type = text(schema, "/x-kubernetes-list-type");
    if list_type.is_empty() {
        return;
    }
    if !LIST_TYPES.contains(&list_type) {
        found.push(not_supported(at("x-kubernetes-list-type"), &list_type.into(), &LIST_TYPES));
    }
    let items = schema.get("items").unwrap_or(&Value::Null);
    let keys = list(schema, "/x-kubernetes-list-map-keys");
    if list_type == "map" && keys.is_empty() {
        found.push(required(at("x-kubernetes-list-map-keys"), "must not be empty if x-kubernetes-list-type is map"));
    }
    for key in keys.iter().filter_map(Value::as_str) {
        let Some(property) = items.get("properties").and_then(|properties| properties.get(key)) else {
            let detail = "entries must all be names of item properties";
            found.push(invalid(at("x-kubernetes-list-map-keys"), &key.into(), detail));
            continue;
        };
        let at = |name: &str| at(&format!("items.properties[{key}].{name}"));
        if ["array", "object"].contains(&text(property, "/type")) {
            found.push(invalid(at("type"), &property["type"], "must be a scalar type: it is a list map key"));
        }
        if !list(items, "/required").contains(&key.into()) && property.get("default").is_none() {
            found.push(required(at("default"), "a list map key must have a default or be required"));
        }
    }
}

/// Defaults must be pruned and valid themselves.
fn defaults(schema: &Schema, path: &str, found: &mut Vec<Cause>) {
    if let Some(default) = &schema.default {
        let at = format!("{path}.default");
        if !prune::prune_below(schema, &mut default.clone()).is_empty() {
            found.push(invalid(at.clone(), default, "must not have unknown fields"));
        }
        let path = Path::Field(&Path::Root, &at);
        found.extend(validate::values(schema, default, None, path));
        found.extend(Rules::compile(schema).check(schema, default, None, path));
    }
    if let Some(items) = &schema.items {
        defaults(items, &format!("{path}.items"), found);
    }
    for (name, child) in &schema.properties {
        defaults(child, &format!("{path}.properties[{name}]"), found);
    }
}

fn is_set(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&json!(true))
}
