//! Validation of values against a schema with ratcheting, as in Kubernetes: on update, unchanged values are
//! accepted.

use serde_json::{Map, Number, Value};

use super::cel::Rules;
use super::fault::{self, invalid, not_supported, required, too_long, too_many, type_invalid};
use super::{Junctors, Path, Schema, Size, Type, formats, lists};
use crate::status::Cause;

const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; \
    correct the existing errors to complete validation";

/// The errors under the schema and its CEL rules; with `old`, of an update. `others` are errors found elsewhere.
///
/// The rules are not evaluated when the object has errors that they do not expect.
pub fn validate_with_rules(
    schema: &Schema,
    rules: &Rules,
    new: &Value,
    old: Option<&Value>,
    others: Vec<Cause>,
) -> Vec<Cause> {
    let mut found = values(schema, new, old, Path::Root);
    found.extend(others);
    add_rules(schema, rules, new, old, &mut found);
    found
}

/// An update of the `status` subresource: only `status` is held against the schema.
pub fn validate_status(schema: &Schema, rules: &Rules, new: &Value, old: &Value, others: Vec<Cause>) -> Vec<Cause> {
    let mut found = match (schema.properties.get("status"), new.get("status")) {
        (Some(schema), Some(status)) => values(schema, status, old.get("status"), Path::Field(&Path::Root, "status")),
        _ => Vec::new(),
    };
    found.extend(others);
    add_rules(schema, rules, new, Some(old), &mut found);
    found
}

/// What breaks the schema, without the rules in CEL; `path` is that of the value.
pub(crate) fn values(schema: &Schema, value: &Value, old: Option<&Value>, path: Path<'_>) -> Vec<Cause> {
    let mut found = Vec::new();
    check(Node { schema, value, old, path }, &mut found);
    found
}

fn add_rules(schema: &Schema, rules: &Rules, new: &Value, old: Option<&Value>, found: &mut Vec<Cause>) {
    if rules.is_empty() {
        return;
    }
    if found.iter().any(fault::blocks_rules) {
        found.push(invalid(fault::NO_PATH, &Value::Null, UNCHECKED));
    } else {
        found.extend(rules.check(schema, new, old, Path::Root));
    }
}

#[derive(Clone, Copy)]
struct Node<'a> {
    schema: &'a Schema,
    value: &'a Value,
    /// The old value at this path, when it can be correlated.
    old: Option<&'a Value>,
    path: Path<'a>,
}

impl Node<'_> {
    fn invalid(&self, detail: &str) -> Cause {
        invalid(self.path.field(), self.value, &format!("{} in body {detail}", self.path))
    }

    /// An error whose path Kubernetes names in the message only.
    fn placeless(&self, detail: &str) -> Cause {
        invalid(fault::NO_PATH, &"".into(), &format!("{} {detail}", self.path))
    }
}

fn check(node: Node<'_>, found: &mut Vec<Cause>) {
    if node.old == Some(node.value) {
        return;
    }
    type_of(node, found);
    if node.value.is_null() {
        return;
    }
    if let Some(junctors) = &node.schema.junctors {
        branches(node, junctors, found);
    }
    match node.value {
        Value::String(text) => string(node, text, found),
        Value::Number(value) => number(node, value, found),
        Value::Array(items) => array(node, items, found),
        Value::Object(fields) => object(node, fields, found),
        Value::Null | Value::Bool(_) => {}
    }
    choices(node, found);
}

fn type_of(node: Node<'_>, found: &mut Vec<Cause>) {
    let Schema { type_, int_or_string, nullable, .. } = node.schema;
    let actual = match node.value {
        Value::Null if *nullable => return,
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Number(number) if is_whole(number) => "integer",
        Value::Number(_) => "number",
    };
    let (fits, wanted) = match type_ {
        None if *int_or_string => (["integer", "string"].contains(&actual), "integer or string"),
        None => (true, ""),
        Some(Type::Number) => (["integer", "number"].contains(&actual), "number"),
        Some(type_) => (type_.name() == actual, type_.name()),
    };
    if !fits {
        found.push(type_invalid(node.path.field(), actual, &format!("must be of type {wanted}")));
    }
}

fn is_whole(number: &Number) -> bool {
    // floats from 2^53 on may have lost their fraction
    number.is_i64()
        || number.as_f64().is_some_and(|float| float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0)
}

/// `allOf`, `anyOf`, `oneOf` and `not`. If all branches fail, the one with the fewest errors is reported.
fn branches(node: Node<'_>, junctors: &Junctors, found: &mut Vec<Cause>) {
    let judge = |schema: &Schema| {
        let mut own = Vec::new();
        check(Node { schema, ..node }, &mut own);
        own
    };
    let mut tell = |detail: &str, causes: Vec<Cause>| {
        for cause in std::iter::once(node.placeless(detail)).chain(causes) {
            if !found.contains(&cause) {
                found.push(cause);
            }
        }
    };
    let Junctors { all_of, any_of, one_of, not } = junctors;
    for (schemas, most, wanted) in
        [(any_of, usize::MAX, "at least one schema (anyOf)"), (one_of, 1, "one schema (oneOf)")]
    {
        let outcomes: Vec<Vec<Cause>> = schemas.iter().map(judge).collect();
        let valid = outcomes.iter().filter(|causes| causes.is_empty()).count();
        if !schemas.is_empty() && !(1..=most).contains(&valid) {
            let nearest = outcomes.into_iter().min_by_key(Vec::len).unwrap_or_default();
            tell(&format!("must validate {wanted}"), nearest);
        }
    }
    let causes: Vec<Cause> = all_of.iter().flat_map(judge).collect();
    if !causes.is_empty() {
        tell("must validate all the schemas (allOf)", causes);
    }
    if not.as_ref().is_some_and(|not| judge(not).is_empty()) {
        tell("must not validate the schema (not)", Vec::new());
    }
}

fn string(node: Node<'_>, text: &str, found: &mut Vec<Cause>) {
    let checks = &node.schema.checks;
    let length = text.chars().count();
    if let Some(max) = checks.length.max.filter(|max| length > *max) {
        found.push(too_long(node.path.field(), max));
    } else if let Some(min) = checks.length.min.filter(|min| length < *min) {
        found.push(node.invalid(&format!("should be at least {min} chars long")));
    } else if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        found.push(node.invalid(&format!("should match '{pattern}'")));
    }
    if !formats::fits(&checks.format, text) {
        found.push(type_invalid(node.path.field(), text, &format!("must be of type {}", checks.format)));
    }
}

fn number(node: Node<'_>, number: &Number, found: &mut Vec<Cause>) {
    let checks = &node.schema.checks;
    let value = number.as_f64().unwrap_or(f64::NAN);
    let int32 = f64::from(i32::MIN)..=f64::from(i32::MAX);
    let fits = is_whole(number) && (checks.format != "int32" || int32.contains(&value));
    if node.schema.type_ == Some(Type::Integer) && !fits {
        found.push(node.placeless("must be a whole number that fits its format"));
    }
    if let Some(factor) = checks.multiple_of
        && (value / factor - (value / factor).round()).abs() > 1e-9
    {
        found.push(node.invalid(&format!("should be a multiple of {factor}")));
    }
    let below = |(min, exclusive): &(f64, bool)| value < *min || (*exclusive && value <= *min);
    if let Some((min, exclusive)) = checks.minimum.filter(below) {
        let words = if exclusive { "greater than" } else { "greater than or equal to" };
        found.push(node.invalid(&format!("should be {words} {min}")));
    }
    let above = |(max, exclusive): &(f64, bool)| value > *max || (*exclusive && value >= *max);
    if let Some((max, exclusive)) = checks.maximum.filter(above) {
        let words = if exclusive { "less than" } else { "less than or equal to" };
        found.push(node.invalid(&format!("should be {words} {max}")));
    }
}

fn array(node: Node<'_>, items: &[Value], found: &mut Vec<Cause>) {
    if let Some(schema) = &node.schema.items {
        let old = node.old.and_then(Value::as_array);
        for (index, value) in items.iter().enumerate() {
            let old = old.and_then(|old| lists::correlated(node.schema, old, value));
            check(Node { schema, value, old, path: Path::Item(&node.path, index) }, found);
        }
    }
    size(node, items.len(), node.schema.checks.items, found);
    lists::duplicates(node.schema, items, &node.path, found);
}

fn object(node: Node<'_>, fields: &Map<String, Value>, found: &mut Vec<Cause>) {
    let Node { schema, path, .. } = node;
    size(node, fields.len(), schema.checks.properties, found);
    for (name, value) in fields {
        if let Some(schema) = schema.field(name) {
            let old = node.old.and_then(|old| old.get(name));
            check(Node { schema, value, old, path: Path::Field(&path, name) }, found);
        }
    }
    let resource: &[&str] = if schema.embedded_resource { &["apiVersion", "kind"] } else { &[] };
    for name in schema.checks.required.iter().map(String::as_str).chain(resource.iter().copied()) {
        if !fields.contains_key(name) {
            found.push(required(Path::Field(&path, name).field(), ""));
        }
    }
    for name in resource {
        if let Some(value) = fields.get(*name).filter(|value| value.as_str().is_none_or(str::is_empty)) {
            found.push(invalid(Path::Field(&path, name).field(), value, "must be a string that is not empty"));
        }
    }
}

fn size(node: Node<'_>, count: usize, size: Size, found: &mut Vec<Cause>) {
    if let Some(min) = size.min.filter(|min| count < *min) {
        found.push(invalid(node.path.field(), &count.into(), &format!("should have at least {min}")));
    }
    if let Some(max) = size.max.filter(|max| count > *max) {
        found.push(too_many(node.path.field(), count, max));
    }
}

fn choices(node: Node<'_>, found: &mut Vec<Cause>) {
    let supported = &node.schema.checks.choices;
    let equal = |one: &Value| match (one, node.value) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (one, other) => one == other,
    };
    if !supported.is_empty() && !supported.iter().any(equal) {
        found.push(not_supported(node.path.field(), node.value, supported));
    }
}
