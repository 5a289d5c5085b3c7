//! What makes a schema structural: every field has its type outside of `allOf` and its kin.

use serde_json::{Value, json};

use super::text;
use crate::schema::fault::{forbidden, invalid, required};
use crate::schema::pattern;
use crate::status::Cause;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Whether the schema can be judged at all; what cannot is refused by the other rules.
pub(super) fn is_convertible(schema: &Value) -> bool {
    const UNSUPPORTED: [&str; 7] =
        ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];
    let Some(node) = schema.as_object() else { return true };
    let odd = UNSUPPORTED.iter().any(|name| node.contains_key(*name))
        || node.get("items").is_some_and(Value::is_array)
        || node.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(false))
        || node.get("type").is_some_and(|type_| {
            !["array", "boolean", "integer", "number", "object", "string"].iter().any(|known| type_ == known)
        });
    !odd && children(schema).iter().all(|(_, child)| is_convertible(child))
}

/// What keeps `schema` from being structural, sorted by message as Kubernetes does.
pub(super) fn faults(schema: &Value, path: &str) -> Vec<Cause> {
    let mut found = Vec::new();
    invariants(schema, Level::Root, path, &mut found);
    completeness(schema, schema, path, path, &mut found);
    found.sort_by_key(|cause| format!("{}: {}", cause.field, cause.message));
    found
}

/// All schemas directly below, with their paths.
pub(super) fn children(schema: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for name in ["additionalProperties", "items", "not"] {
        if let Some(child) = schema.get(name).filter(|child| child.is_object()) {
            found.push((name.to_owned(), child));
        }
    }
    for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        found.push((format!("properties[{name}]"), child));
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for (index, child) in schema.get(name).and_then(Value::as_array).into_iter().flatten().enumerate() {
            found.push((format!("{name}[{index}]"), child));
        }
    }
    found
}

fn is_set(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&json!(true))
}

fn invariants(schema: &Value, level: Level, path: &str, found: &mut Vec<Cause>) {
    let type_ = text(schema, "/type");
    let embedded = is_set(schema, "x-kubernetes-embedded-resource");
    let int_or_string = is_set(schema, "x-kubernetes-int-or-string");
    let open = is_set(schema, "x-kubernetes-preserve-unknown-fields");
    let at = |name: &str| format!("{path}.{name}");
    match schema.get("items") {
        None if type_ == "array" => found.push(required(at("items"), "must be specified")),
        None => {}
        Some(items) => invariants(items, Level::Item, &at("items"), found),
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, child) in properties.into_iter().flatten() {
        invariants(child, Level::Field, &at(&format!("properties[{name}]")), found);
    }
    if let Some(additional) = schema.get("additionalProperties") {
        if level == Level::Root {
            found.push(forbidden(at("additionalProperties"), "must not be used at the root"));
        }
        if additional.is_object() {
            invariants(additional, Level::Field, &at("additionalProperties"), found);
        }
        if embedded {
            found.push(forbidden(
                at("additionalProperties"),
                "must not be used if x-kubernetes-embedded-resource is set",
            ));
        }
    }
    for (set, name) in [(open, "x-kubernetes-preserve-unknown-fields"), (embedded, "x-kubernetes-embedded-resource")] {
        if int_or_string && set {
            found.push(invalid(at(name), &json!(true), "must be false if x-kubernetes-int-or-string is true"));
        }
    }
    value_rules(schema, path, found, either_type(schema), schema.pointer("/allOf/0").is_some_and(either_type));
    if embedded && type_ != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        found.push(if type_.is_empty() {
            required(at("type"), detail)
        } else {
            invalid(at("type"), &type_.into(), detail)
        });
    } else if type_.is_empty() && !int_or_string && !open {
        found.push(required(
            at("type"),
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ));
    }
    if level == Level::Root && !type_.is_empty() && type_ != "object" {
        found.push(invalid(at("type"), &type_.into(), "must be object at the root"));
    }
    if level == Level::Root || embedded {
        for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
            let Some(child) = properties.and_then(|properties| properties.get(name)) else { continue };
            let type_ = text(child, "/type");
            if type_ != wanted {
                found.push(invalid(
                    at(&format!("properties[{name}].type")),
                    &type_.into(),
                    &format!("must be {wanted}"),
                ));
            }
        }
    }
    if let Some(metadata) = properties.and_then(|properties| properties.get("metadata"))
        && level == Level::Root
        && !is_plain_metadata(metadata)
    {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        found.push(forbidden(at("properties[metadata]"), detail));
    }
    if embedded && !open && properties.is_none_or(serde_json::Map::is_empty) {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        found.push(required(at("properties"), detail));
    }
}

fn is_plain_metadata(metadata: &Value) -> bool {
    metadata.as_object().into_iter().flatten().all(|(name, value)| match name.as_str() {
        "type" | "default" => true,
        "properties" => {
            value.as_object().into_iter().flatten().all(|(name, _)| name == "name" || name == "generateName")
        }
        _ => false,
    })
}

/// `anyOf: [{type: integer}, {type: string}]`, as int-or-string may have it.
fn either_type(schema: &Value) -> bool {
    schema.get("anyOf") == Some(&json!([{ "type": "integer" }, { "type": "string" }]))
}

fn value_rules(schema: &Value, path: &str, found: &mut Vec<Cause>, skip_any_of: bool, skip_first_all_of: bool) {
    for name in ["anyOf", "allOf", "oneOf"] {
        if name == "anyOf" && skip_any_of {
            continue;
        }
        for (index, branch) in schema.get(name).and_then(Value::as_array).into_iter().flatten().enumerate() {
            let skip = name == "allOf" && index == 0 && skip_first_all_of;
            nested(branch, &format!("{path}.{name}[{index}]"), found, skip);
        }
    }
    if let Some(not) = schema.get("not") {
        nested(not, &format!("{path}.not"), found, false);
    }
    let rule = text(schema, "/pattern");
    if !rule.is_empty()
        && let Err(why) = pattern::matches(rule, "")
    {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        found.push(invalid(format!("{path}.pattern"), &rule.into(), &detail));
    }
}

fn nested(schema: &Value, path: &str, found: &mut Vec<Cause>, skip_any_of: bool) {
    const EMPTY: &str = "must be empty to be structural";
    const UNDEFINED: &str = "must be undefined to be structural";
    const FALSE: &str = "must be false to be structural";
    value_rules(schema, path, found, skip_any_of, false);
    if let Some(items) = schema.get("items") {
        nested(items, &format!("{path}.items"), found, false);
    }
    for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let at = format!("{path}.properties[{name}]");
        nested(child, &at, found, false);
        if name == "metadata" {
            found.push(forbidden(at, "must not be specified in a nested context"));
        }
    }
    for (name, detail) in [
        ("type", EMPTY),
        ("additionalProperties", UNDEFINED),
        ("default", UNDEFINED),
        ("title", EMPTY),
        ("description", EMPTY),
        ("nullable", FALSE),
        ("x-kubernetes-preserve-unknown-fields", FALSE),
        ("x-kubernetes-embedded-resource", FALSE),
        ("x-kubernetes-int-or-string", FALSE),
        ("x-kubernetes-list-map-keys", EMPTY),
        ("x-kubernetes-list-type", UNDEFINED),
        ("x-kubernetes-map-type", UNDEFINED),
        ("x-kubernetes-validations", EMPTY),
    ] {
        if schema.get(name).is_some_and(|value| *value != json!(false)) {
            found.push(forbidden(format!("{path}.{name}"), detail));
        }
    }
}

/// Rules about fields need the fields.
fn completeness(rules: &Value, schema: &Value, schema_path: &str, rules_path: &str, found: &mut Vec<Cause>) {
    if let Some(not) = rules.get("not") {
        complete_branch(not, schema, schema_path, &format!("{rules_path}.not"), found);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for (index, branch) in rules.get(name).and_then(Value::as_array).into_iter().flatten().enumerate() {
            complete_branch(branch, schema, schema_path, &format!("{rules_path}.{name}[{index}]"), found);
        }
    }
}

fn complete_branch(branch: &Value, schema: &Value, schema_path: &str, branch_path: &str, found: &mut Vec<Cause>) {
    completeness(branch, schema, schema_path, branch_path, found);
    let mut descend = |child: &Value, name: String, there: Option<&Value>| {
        let (at, from) = (format!("{schema_path}.{name}"), format!("{branch_path}.{name}"));
        match there {
            Some(schema) => complete_branch(child, schema, &at, &from, found),
            None => found.push(required(at, &format!("because it is defined in {from}"))),
        }
    };
    if let Some(items) = branch.get("items") {
        descend(items, "items".to_owned(), schema.get("items"));
    }
    for (name, child) in branch.get("properties").and_then(Value::as_object).into_iter().flatten() {
        descend(
            child,
            format!("properties[{name}]"),
            schema.get("properties").and_then(|properties| properties.get(name)),
        );
    }
}
