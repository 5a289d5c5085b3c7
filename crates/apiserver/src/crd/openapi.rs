//! Rules for the schema of a definition beyond being structural: keywords, list and map types, defaults, rules in CEL.

use serde_json::{Value, json};

use super::structural::{self, children};
use super::{internal, list, text};
use crate::schema::cel::{self, Rules};
use crate::schema::fault::{forbidden, invalid, invalid_as, not_supported, required};
use crate::schema::{Schema, prune, validate};
use crate::status::Cause;

/// What breaks the rules in an `openAPIV3Schema`; `path` ends with that word.
pub(super) fn faults(schema: &Value, path: &str) -> Vec<Cause> {
    let mut found = Vec::new();
    let mut structural = structural::is_convertible(schema);
    if structural {
        found = structural::faults(schema, path);
        if found.is_empty() {
            default_faults(&Schema::parse(schema), path, &mut found);
        }
        structural = found.is_empty();
    }
    let place = Place { root: true, rules: structural, ..Place::default() };
    let own = node(schema, path, &place);
    found.extend(own.schema);
    found.extend(own.rules);
    found
}

#[derive(Default)]
struct Faults {
    schema: Vec<Cause>,
    rules: Vec<Cause>,
}

impl Faults {
    fn append(&mut self, other: Self) {
        self.schema.extend(other.schema);
        self.rules.extend(other.rules);
    }
}

/// Where a node stands.
#[derive(Clone, Default)]
struct Place {
    root: bool,
    inside_meta: bool,
    no_defaults: Option<String>,
    /// The nearest list above whose items cannot be told apart.
    uncorrelatable: Option<String>,
    /// Whether rules in CEL are judged.
    rules: bool,
}

fn node(schema: &Value, path: &str, place: &Place) -> Faults {
    let mut found = Faults::default();
    keywords(schema, path, place, &mut found.schema);
    let embedded = schema.get("x-kubernetes-embedded-resource") == Some(&json!(true));
    for (name, child) in children(schema) {
        let at = format!("{path}.{name}");
        let mut below = Place { root: false, ..place.clone() };
        if let Some(property) = name.strip_prefix("properties[").and_then(|rest| rest.strip_suffix(']')) {
            if (place.root || embedded) && ["metadata", "kind", "apiVersion"].contains(&property) {
                below.inside_meta = true;
                if place.root {
                    below.no_defaults = Some(format!("in top-level {property}"));
                }
            }
        } else if name == "items" {
            if text(schema, "/x-kubernetes-list-type") != "map" {
                below.uncorrelatable.get_or_insert_with(|| path.to_owned());
            }
        } else if name == "additionalProperties" {
            if place.inside_meta {
                below.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
            }
        } else {
            below.rules = false;
        }
        found.append(node(child, &at, &below));
    }
    extensions(schema, path, &mut found.schema);
    rule_texts(schema, path, &mut found.schema);
    if found.schema.is_empty() && place.rules {
        rules(schema, path, place, &mut found.rules);
    }
    found
}

fn keywords(schema: &Value, path: &str, place: &Place, found: &mut Vec<Cause>) {
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    let at = |name: &str| format!("{path}.{name}");
    let type_ = text(schema, "/type");
    if !type_.is_empty() && !TYPES.contains(&type_) {
        found.push(not_supported(at("type"), &type_.into(), &TYPES));
    }
    if let (Some(reason), Some(_)) = (&place.no_defaults, schema.get("default")) {
        found.push(forbidden(at("default"), &format!("must not be set {reason}")));
    }
    for name in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if schema.get(name).is_some() {
            found.push(forbidden(at(name), &format!("{name} is not supported")));
        }
    }
    if type_ == "null" {
        found.push(forbidden(at("type"), "type cannot be set to null, use nullable as an alternative"));
    }
    if schema.get("items").is_some_and(Value::is_array) {
        found.push(forbidden(at("items"), "items must be a schema object and not an array"));
    }
    if place.inside_meta && schema.get("x-kubernetes-embedded-resource") == Some(&json!(true)) {
        found.push(forbidden(at("x-kubernetes-embedded-resource"), "must not be used inside of resource meta"));
    }
    if schema.get("uniqueItems") == Some(&json!(true)) {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.push(forbidden(at("uniqueItems"), detail));
    }
    let has_properties =
        schema.get("properties").and_then(Value::as_object).is_some_and(|properties| !properties.is_empty());
    if has_properties && schema.get("additionalProperties").is_some_and(|additional| *additional != json!(true)) {
        found.push(forbidden(at("additionalProperties"), "additionalProperties and properties are mutual exclusive"));
    }
}

fn extensions(schema: &Value, path: &str, found: &mut Vec<Cause>) {
    let at = |name: &str| format!("{path}.{name}");
    let type_ = text(schema, "/type");
    let mut needs_type = |wanted: &str, extension: &str| {
        let detail = format!("must be {wanted} if {extension} is specified");
        found.push(if type_.is_empty() {
            required(at("type"), &detail)
        } else {
            invalid(at("type"), &type_.into(), &detail)
        });
    };
    let map_type = schema.get("x-kubernetes-map-type").and_then(Value::as_str);
    let list_type = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
    if map_type.is_some() && type_ != "object" {
        needs_type("object", "x-kubernetes-map-type");
    }
    let list_misplaced = list_type.is_some() && type_ != "array";
    if list_misplaced {
        needs_type("array", "x-kubernetes-list-type");
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(false)) {
        found.push(invalid(at("x-kubernetes-preserve-unknown-fields"), &json!(false), "must be true or undefined"));
    }
    if let Some(other) = map_type.filter(|type_| !["atomic", "granular"].contains(type_)) {
        found.push(not_supported(at("x-kubernetes-map-type"), &other.into(), &["atomic", "granular"]));
    }
    let items = schema.get("items").filter(|items| items.is_object());
    if let (Some("set"), Some(items), false) = (list_type, items, list_misplaced) {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let own = items.get("x-kubernetes-list-type").unwrap_or(&Value::Null);
        match text(items, "/type") {
            "array" if !own.is_null() && *own != json!("atomic") => {
                found.push(invalid(at("items.x-kubernetes-list-type"), own, detail));
            }
            "object" if text(items, "/x-kubernetes-map-type") != "atomic" => {
                found.push(invalid(at("items.x-kubernetes-map-type"), own, detail));
            }
            _ => {}
        }
    }
    if let Some(other) = list_type.filter(|type_| !["atomic", "set", "map"].contains(type_)) {
        found.push(not_supported(at("x-kubernetes-list-type"), &other.into(), &["atomic", "set", "map"]));
    }
    let keys = list(schema, "/x-kubernetes-list-map-keys");
    if !keys.is_empty() && list_type != Some("map") {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        let at = at("x-kubernetes-list-type");
        found.push(
            list_type.map_or_else(|| required(at.clone(), detail), |type_| invalid(at.clone(), &type_.into(), detail)),
        );
    }
    if list_type == Some("map") {
        map_list(keys, items, path, found);
    }
    if let (Some(type_ @ ("map" | "set")), Some(items)) = (list_type, items) {
        identity(type_, keys, items, path, found);
    }
}

/// Lists of type map need keys that are scalar fields of their items.
fn map_list(keys: &[Value], items: Option<&Value>, path: &str, found: &mut Vec<Cause>) {
    let at = |name: &str| format!("{path}.{name}");
    if keys.is_empty() {
        found.push(required(at("x-kubernetes-list-map-keys"), "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = items else {
        found.push(required(at("items"), "must have a schema if x-kubernetes-list-type is map"));
        return;
    };
    let type_ = text(items, "/type");
    if type_ != "object" {
        found.push(invalid(
            at("items.type"),
            &type_.into(),
            "must be object if parent array's x-kubernetes-list-type is map",
        ));
        return;
    }
    let all = Value::Array(keys.to_vec());
    for (index, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        match items.get("properties").and_then(|properties| properties.get(name)) {
            Some(property) if ["array", "object"].contains(&text(property, "/type")) => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                found.push(invalid(at(&format!("items.properties[{name}].type")), &type_.into(), detail));
            }
            Some(_) => {}
            None => found.push(invalid(
                at("x-kubernetes-list-map-keys"),
                &all,
                "entries must all be names of item properties",
            )),
        }
        if keys[..index].contains(key) {
            found.push(invalid(at("x-kubernetes-list-map-keys"), &all, "must not contain duplicate entries"));
        }
    }
}

/// Items that are told apart may not be null, nor may what tells them apart be missing.
fn identity(list_type: &str, keys: &[Value], items: &Value, path: &str, found: &mut Vec<Cause>) {
    if items.get("nullable") == Some(&json!(true)) {
        found.push(forbidden(
            format!("{path}.items.nullable"),
            &format!("cannot be nullable when x-kubernetes-list-type is {list_type}"),
        ));
    }
    for key in keys.iter().filter(|_| list_type == "map") {
        let name = key.as_str().unwrap_or_default();
        let Some(property) = items.get("properties").and_then(|properties| properties.get(name)) else { continue };
        let at = |field: &str| format!("{path}.items.properties[{name}].{field}");
        if !list(items, "/required").contains(key) && property.get("default").is_none() {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            found.push(required(at("default"), detail));
        }
        if property.get("nullable") == Some(&json!(true)) {
            found.push(forbidden(
                at("nullable"),
                "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            ));
        }
    }
}

fn rule_texts(schema: &Value, path: &str, found: &mut Vec<Cause>) {
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let has_newline = |text: &str| text.contains(['\n', '\r']);
    for (index, rule) in list(schema, "/x-kubernetes-validations").iter().enumerate() {
        let at = |name: &str| format!("{path}.x-kubernetes-validations[{index}].{name}");
        let (expression, message, field_path) = (text(rule, "/rule"), text(rule, "/message"), text(rule, "/fieldPath"));
        if expression.trim().is_empty() {
            found.push(required(at("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            found.push(invalid(at("message"), &message.into(), "must be non-empty if specified"));
        } else if has_newline(message.trim()) {
            found.push(invalid(at("message"), &message.into(), "must not contain line breaks"));
        } else if has_newline(expression.trim()) && message.trim().is_empty() {
            found.push(required(at("message"), "message must be specified if rule contains line breaks"));
        }
        let expression = text(rule, "/messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            found.push(required(at("messageExpression"), "messageExpression must be non-empty if specified"));
        }
        if let Some(reason) = rule.get("reason").filter(|reason| !REASONS.iter().any(|known| *reason == known)) {
            found.push(not_supported(at("reason"), reason, &REASONS));
        }
        if field_path.is_empty() {
            continue;
        }
        let fault = |detail: &str| invalid(at("fieldPath"), &field_path.into(), detail);
        if field_path.trim().is_empty() {
            found.push(fault("must be non-empty if specified"));
        }
        if has_newline(field_path) {
            found.push(fault("must not contain line breaks"));
        }
        if cel::field_path(field_path, &Schema::parse(schema), true).is_err() {
            found.push(fault("must be a valid path"));
        }
    }
}

fn rules(schema: &Value, path: &str, place: &Place, found: &mut Vec<Cause>) {
    let own = list(schema, "/x-kubernetes-validations");
    if own.is_empty() {
        return;
    }
    let parsed = Schema::parse(schema);
    for (index, rule) in own.iter().enumerate() {
        let at = |name: &str| format!("{path}.x-kubernetes-validations[{index}].{name}");
        let compiled = cel::compile(&parsed, rule, place.root || parsed.embedded_resource);
        let uses_old = match &compiled {
            Ok(compiled) => compiled.as_ref().is_some_and(|rule| rule.uses_old_self),
            Err(fault) => {
                found.push(invalid_as(at(fault.part), &internal::rule(rule), &fault.detail));
                false
            }
        };
        if let (true, Some(within)) = (uses_old, &place.uncorrelatable) {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
            found.push(invalid(at("rule"), &rule["rule"], &detail));
        } else if let (false, Some(optional)) = (uses_old, rule.get("optionalOldSelf")) {
            found.push(invalid(at("optionalOldSelf"), optional, "may not be set if oldSelf is not used in rule"));
        }
    }
}

/// Defaults must be pruned and valid themselves.
fn default_faults(schema: &Schema, path: &str, found: &mut Vec<Cause>) {
    if let Some(default) = &schema.default {
        let at = format!("{path}.default");
        let mut pruned = default.clone();
        prune::prune_below(schema, &mut pruned);
        if pruned != *default {
            found.push(invalid(at.clone(), default, "must not have unknown fields"));
        }
        let own = validate::values(schema, default, None, &at);
        if own.is_empty() {
            let rules = Rules::compile(schema);
            let mut broken = rules.check(schema, default, Some(default), &at);
            // what is unchanged is let through on update, so a default is judged as new too
            broken.extend(rules.check(schema, default, None, &at));
            broken.dedup();
            found.extend(broken);
        } else {
            found.extend(own);
        }
    }
    if let Some(items) = &schema.items {
        default_faults(items, &format!("{path}.items"), found);
    }
    for (name, child) in &schema.properties {
        default_faults(child, &format!("{path}.properties[{name}]"), found);
    }
}
