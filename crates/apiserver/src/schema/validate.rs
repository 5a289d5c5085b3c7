//! Validation of values against a schema, with the messages, paths and leniency of Kubernetes.
//!
//! Faults come in the order of the checks; fields of one object are visited by name (Kubernetes visits them in
//! random order). On update, what equals its old self is let through.

use serde_json::Value;

use super::cel::Rules;
use super::fault::{self, child, invalid, or_no_path, quote, too_long, too_many, type_invalid};
use super::{Junctors, Schema, Type, embedded, formats, lists, pattern};
use crate::status::Cause;

const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; \
    correct the existing errors to complete validation";

/// What breaks the schema in `new`; with `old`, an update is judged.
pub fn validate(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut found = values(schema, new, old, "");
    found.extend(embedded::faults(schema, new));
    if old.is_none_or(|old| lists::duplicates(schema, old).is_empty()) {
        found.extend(lists::duplicates(schema, new));
    }
    found
}

/// `validate`, then the rules in CEL when they can be trusted with the object; `others` are faults found elsewhere.
pub fn validate_with_rules(
    schema: &Schema,
    rules: &Rules,
    new: &Value,
    old: Option<&Value>,
    others: Vec<Cause>,
) -> Vec<Cause> {
    let mut found = validate(schema, new, old);
    found.extend(others);
    add_rules(schema, rules, new, old, &mut found);
    found
}

/// An update of the `status` subresource: only `status` is held against the schema, and messages name fields from
/// there.
pub fn validate_status(schema: &Schema, rules: &Rules, new: &Value, old: &Value, others: Vec<Cause>) -> Vec<Cause> {
    let mut found = match (schema.properties.get("status"), new.get("status")) {
        (Some(schema), Some(status)) => values(schema, status, old.get("status"), "status"),
        _ => Vec::new(),
    };
    if lists::duplicates(schema, old).is_empty() {
        found.extend(lists::duplicates(schema, new));
    }
    found.extend(others);
    add_rules(schema, rules, new, Some(old), &mut found);
    found
}

/// The value rules alone. `base` is the path of `new`; messages name fields from there.
pub(crate) fn values(schema: &Schema, new: &Value, old: Option<&Value>, base: &str) -> Vec<Cause> {
    let mut outcome = Outcome::default();
    let check = Check { base, root: true };
    check.node(Node { schema, spine: schema, value: new, old, path: "" }, &mut outcome);
    outcome.faults.into_iter().map(|fault| fault.cause).collect()
}

fn add_rules(schema: &Schema, rules: &Rules, new: &Value, old: Option<&Value>, found: &mut Vec<Cause>) {
    if rules.is_empty() {
        return;
    }
    if found.iter().any(fault::blocks_rules) {
        found.push(invalid(fault::NO_PATH, &Value::Null, UNCHECKED));
    } else {
        found.extend(rules.check(schema, new, old, ""));
    }
}

struct Fault {
    /// Faults of one text are told once.
    text: String,
    cause: Cause,
}

/// What was found, and how many checks went well: the best branch of `anyOf` is the one with most.
#[derive(Default)]
struct Outcome {
    faults: Vec<Fault>,
    matches: usize,
}

impl Outcome {
    fn add(&mut self, text: String, cause: Cause) {
        if !self.faults.iter().any(|fault| fault.text == text) {
            self.faults.push(Fault { text, cause });
        }
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        for fault in other.faults {
            self.add(fault.text, fault.cause);
        }
    }
}

#[derive(Clone, Copy)]
struct Node<'a> {
    schema: &'a Schema,
    /// The structural schema at this place; differs from `schema` inside of `allOf` and its kin.
    spine: &'a Schema,
    value: &'a Value,
    /// The old value at this place, when it can be told.
    old: Option<&'a Value>,
    /// From the value that is validated.
    path: &'a str,
}

struct Check<'a> {
    base: &'a str,
    root: bool,
}

impl Check<'_> {
    fn node(&self, node: Node<'_>, outcome: &mut Outcome) {
        if node.old == Some(node.value) {
            return;
        }
        let mut own = Outcome::default();
        self.all(node, &mut own);
        outcome.merge(own);
    }

    fn all(&self, node: Node<'_>, out: &mut Outcome) {
        let types = types(node.schema);
        let format = format(node.schema);
        if !types.is_empty() || !format.is_empty() {
            self.type_(node, &types, format, out);
        }
        if node.value.is_null() {
            self.enum_(node, out);
            return;
        }
        out.matches += usize::from(!types.is_empty() || !format.is_empty());
        self.junctors(node, out);
        out.matches += 1;
        match node.value {
            Value::String(text) => {
                self.string(node, text, out);
                out.matches += 1;
                if !format.is_empty() && formats::is_known(format) {
                    if !formats::fits(format, text) {
                        self.type_fault(node.path, format, text, out);
                    }
                    out.matches += 1;
                }
            }
            Value::Number(number) => {
                self.number(node, number, &types, format, out);
                out.matches += 2;
            }
            Value::Array(items) => {
                self.array(node, items, out);
                out.matches += 2;
            }
            Value::Null | Value::Bool(_) | Value::Object(_) => {}
        }
        self.enum_(node, out);
        out.matches += 1;
        if let Value::Object(fields) = node.value {
            self.object(node, fields, out);
            out.matches += 1;
        }
        out.matches += 1;
    }

    /// A fault with a place.
    fn at(&self, path: &str, text: String, cause: impl FnOnce(String) -> Cause, out: &mut Outcome) {
        let path = path.trim_start_matches('.');
        let field = match (self.base, path) {
            ("", path) => or_no_path(path),
            (base, "") => base.to_owned(),
            (base, path) => format!("{base}.{path}"),
        };
        out.add(text, cause(field));
    }

    /// A fault whose place is only in its text.
    fn placeless(&self, text: String, out: &mut Outcome) {
        let cause = invalid(or_no_path(self.base), &"".into(), &text);
        out.add(text, cause);
    }

    fn type_fault(&self, path: &str, expected: &str, found: &str, out: &mut Outcome) {
        let text = format!("{path} in body must be of type {expected}: {}", quote(found));
        self.at(path, text.clone(), |field| type_invalid(field, found, &text), out);
    }

    fn type_(&self, node: Node<'_>, types: &[&str], format: &str, out: &mut Outcome) {
        let (found, found_format) = match node.value {
            Value::Null if types.is_empty() || node.schema.nullable => return out.matches += 1,
            Value::Null => return self.type_fault(node.path, &types.join(","), "null", out),
            Value::Bool(_) => ("boolean", ""),
            Value::String(_) => ("string", ""),
            Value::Array(_) => ("array", ""),
            Value::Object(_) => ("object", ""),
            Value::Number(number) if number.is_i64() => ("integer", "int64"),
            Value::Number(_) => ("number", "float64"),
        };
        let has = |name: &str| types.contains(&name);
        let whole = found == "number" && has("integer") && node.value.as_f64().is_some_and(is_json_integer);
        let fits = has(found) || whole || (found == "integer" && has("number"));
        let textual = matches!(node.value, Value::String(_) | Value::Array(_));
        if !textual && !format.is_empty() && !fits && found_format != format {
            self.type_fault(node.path, format, found_format, out);
        } else if fits || (textual && !format.is_empty() && !has("number") && !has("integer")) {
            out.matches += 1;
        } else {
            self.type_fault(node.path, &types.join(","), found, out);
        }
    }

    fn junctors(&self, node: Node<'_>, out: &mut Outcome) {
        out.matches += 1;
        let Some(junctors) = node.schema.junctors.as_deref() else { return };
        let Junctors { all_of, any_of, one_of, not } = junctors;
        let judge = |schema: &Schema| {
            let mut own = Outcome::default();
            self.all(Node { schema, ..node }, &mut own);
            own
        };
        let name = quote(node.path);
        if !any_of.is_empty() {
            self.any_of(any_of.iter().map(judge), &name, out);
        }
        if !one_of.is_empty() {
            self.one_of(one_of.iter().map(judge), &name, out);
        }
        if !all_of.is_empty() {
            let mut valid = 0;
            for schema in all_of {
                let own = judge(schema);
                valid += usize::from(own.faults.is_empty());
                out.merge(own);
            }
            if valid < all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                self.placeless(format!("{name} must validate all the schemas (allOf){none}"), out);
            }
        }
        if let Some(not) = not.as_ref().filter(|_| !node.schema.is_nothing())
            && judge(not).faults.is_empty()
        {
            self.placeless(format!("{name} must not validate the schema (not)"), out);
        }
    }

    fn any_of(&self, outcomes: impl Iterator<Item = Outcome>, name: &str, out: &mut Outcome) {
        let mut best: Option<Outcome> = None;
        for own in outcomes {
            if own.faults.is_empty() {
                return out.merge(own);
            }
            if best.as_ref().is_none_or(|best| own.matches > best.matches) {
                best = Some(own);
            }
        }
        self.placeless(format!("{name} must validate at least one schema (anyOf)"), out);
        out.merge(best.unwrap_or_default());
    }

    fn one_of(&self, outcomes: impl Iterator<Item = Outcome>, name: &str, out: &mut Outcome) {
        let (mut best, mut first, mut valid) = (None::<Outcome>, None, 0);
        for own in outcomes {
            if own.faults.is_empty() {
                valid += 1;
                best = None;
                first = first.or(Some(own));
            } else if valid == 0 && best.as_ref().is_none_or(|best| own.matches > best.matches) {
                best = Some(own);
            }
        }
        let found = match valid {
            1 => return out.merge(first.unwrap_or_default()),
            0 => "Found none valid".to_owned(),
            many => format!("Found {many} valid alternatives"),
        };
        self.placeless(format!("{name} must validate one and only one schema (oneOf). {found}"), out);
        out.merge(best.unwrap_or_default());
    }

    fn string(&self, node: Node<'_>, text: &str, out: &mut Outcome) {
        let path = node.path;
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        let rule = node.schema.text("pattern");
        if let Some(max) = node.schema.limit("maxLength").filter(|max| length > *max) {
            let fault = format!("{path} in body should be at most {max} chars long");
            self.at(path, fault, |field| too_long(field, max), out);
        } else if let Some(min) = node.schema.limit("minLength").filter(|min| length < *min) {
            self.plain(node, &format!("{path} in body should be at least {min} chars long"), out);
        } else if !rule.is_empty() {
            let fault = match pattern::matches(rule, text) {
                Ok(true) => return,
                Ok(false) => format!("{path} in body should match '{rule}'"),
                Err(why) => format!("{path} in body should match '{rule}, but pattern is invalid: {why}'"),
            };
            self.plain(node, &fault, out);
        }
    }

    /// A fault that shows the value.
    fn plain(&self, node: Node<'_>, text: &str, out: &mut Outcome) {
        self.at(node.path, text.to_owned(), |field| invalid(field, node.value, text), out);
    }

    fn number(&self, node: Node<'_>, number: &serde_json::Number, types: &[&str], format: &str, out: &mut Outcome) {
        let path = node.path;
        let type_ = if let [one] = types { *one } else { "" };
        let value = number.as_f64().unwrap_or(f64::NAN);
        let int = number.as_i64();
        let in_range = |float: f64, int: Option<i64>, what: &str, out: &mut Outcome| {
            let fits = fits_range(float, int, type_, format);
            if !fits {
                let form =
                    if format.is_empty() { "(default format)".to_owned() } else { format!("with format {format}") };
                self.placeless(format!("{what} value must be of type {type_} {form} in {path}"), out);
            }
            fits
        };
        in_range(value, int, "Checked", out);
        let bound = |name: &str| node.schema.raw.get(name).and_then(Value::as_f64);
        // whole numbers are held against the whole part of a bound that fits their type
        let mut judge = |bound: f64, what: &str, test: &dyn Fn(f64, f64) -> bool, words: &str| {
            let native = in_range(bound, None, what, out).then_some(int).flatten();
            #[expect(clippy::cast_precision_loss, reason = "bounds are floats in Kubernetes too")]
            let (value, bound) = native.map_or((value, bound), |int| (int as f64, bound.trunc()));
            if test(value, bound) {
                self.plain(node, &format!("{path} in body should be {words} {}", fault::float(bound)), out);
            }
        };
        if let Some(factor) = bound("multipleOf") {
            let misses = |value: f64, factor: f64| {
                factor > 0.0 && !is_json_integer(if factor < 1.0 { 1.0 / factor * value } else { value / factor })
            };
            judge(factor, "MultipleOf", &misses, "a multiple of");
        }
        if let Some(min) = bound("minimum") {
            let (open, words) = (node.schema.is_set("exclusiveMinimum"), "greater than");
            judge(min, "Minimum boundary", &|value, min| value < min || (open && value <= min), &bounded(words, open));
        }
        if let Some(max) = bound("maximum") {
            let (open, words) = (node.schema.is_set("exclusiveMaximum"), "less than");
            judge(max, "Maximum boundary", &|value, max| value > max || (open && value >= max), &bounded(words, open));
        }
    }

    fn array(&self, node: Node<'_>, items: &[Value], out: &mut Outcome) {
        let path = node.path;
        if let Some(schema) = &node.schema.items {
            let old = node.old.and_then(Value::as_array);
            for (index, value) in items.iter().enumerate() {
                let old = old.and_then(|old| lists::correlated(node.spine, old, value));
                let path = format!("{path}[{index}]");
                let spine = node.spine.items.as_deref().unwrap_or(schema);
                Check { root: false, ..*self }.node(Node { schema, spine, value, old, path: &path }, out);
            }
        }
        let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
        if let Some(min) = node.schema.limit("minItems").filter(|min| size < *min) {
            let text = format!("{path} in body should have at least {min} items");
            self.at(path, text.clone(), |field| invalid(field, &size.into(), &text), out);
        }
        if let Some(max) = node.schema.limit("maxItems").filter(|max| size > *max) {
            let text = format!("{path} in body should have at most {max} items");
            self.at(path, text, |field| too_many(field, items.len(), max), out);
        }
        let twice = || items.iter().enumerate().any(|(index, item)| items[..index].contains(item));
        if node.schema.is_set("uniqueItems") && twice() {
            let text = format!("{path} in body shouldn't contain duplicates");
            self.at(path, text.clone(), |field| invalid(field, &"".into(), &text), out);
        }
    }

    fn enum_(&self, node: Node<'_>, out: &mut Outcome) {
        let supported = node.schema.list("enum");
        let equal = |one: &Value| match (one, node.value) {
            (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
            (Value::Null, _) => false,
            (one, other) => one == other,
        };
        if supported.is_empty() || supported.iter().any(equal) {
            return;
        }
        let shown: Vec<String> =
            supported.iter().map(|value| value.as_str().map_or_else(|| fault::go_json(value), str::to_owned)).collect();
        let text = format!("{} in body should be one of [{}]", node.path, shown.join(" "));
        self.at(node.path, text, |field| fault::not_supported(field, node.value, &shown), out);
    }

    fn object(&self, node: Node<'_>, fields: &serde_json::Map<String, Value>, out: &mut Outcome) {
        let Node { schema, path, .. } = node;
        let size = i64::try_from(fields.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.limit("minProperties").filter(|min| size < *min) {
            let text = format!("{path} in body should have at least {min} properties");
            self.at(path, text.clone(), |field| invalid(field, &size.into(), &text), out);
        }
        if let Some(max) = schema.limit("maxProperties").filter(|max| size > *max) {
            let text = format!("{path} in body should have at most {max} properties");
            self.at(path, text, |field| too_many(field, fields.len(), max), out);
        }
        if let Some(additional) = &schema.additional {
            for (name, value) in fields.iter().filter(|(name, _)| !schema.properties.contains_key(*name)) {
                if additional.is_nothing() {
                    let text = format!("{path}.{name} in body is a forbidden property");
                    self.at(path, text.clone(), |field| invalid(field, &name.as_str().into(), &text), out);
                } else {
                    self.field(node, additional, name, value, &format!("{path}.{name}"), out);
                }
            }
        }
        for (name, schema) in &schema.properties {
            if let Some(value) = fields.get(name) {
                self.field(node, schema, name, value, &child(path, name), out);
            }
        }
        for name in schema.list("required").iter().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                let path = format!("{path}.{name}");
                let text = format!("{path} in body is required");
                self.at(&path, text, |field| fault::required(field, ""), out);
            }
        }
    }

    fn field(&self, node: Node<'_>, schema: &Schema, name: &str, value: &Value, path: &str, out: &mut Outcome) {
        // apiVersion and kind of an object always equal the old ones here
        let ratchets = !(self.root && self.base.is_empty() && (name == "apiVersion" || name == "kind"));
        let old = node.old.filter(|_| ratchets).and_then(|old| old.get(name));
        let spine = node.spine.field(name).unwrap_or(schema);
        Check { root: false, ..*self }.node(Node { schema, spine, value, old, path }, out);
    }
}

fn bounded(words: &str, open: bool) -> String {
    if open { words.to_owned() } else { format!("{words} or equal to") }
}

fn types(schema: &Schema) -> Vec<&'static str> {
    if schema.int_or_string { vec!["integer", "string"] } else { schema.type_.map(Type::name).into_iter().collect() }
}

/// The format, when it counts for the type.
fn format(schema: &Schema) -> &str {
    let format = schema.text("format");
    let counts = match schema.type_ {
        _ if schema.int_or_string => false,
        None | Some(Type::String) => formats::is_known(format),
        Some(Type::Integer) => ["int32", "int64"].contains(&format),
        Some(Type::Number) => ["float", "double"].contains(&format),
        Some(Type::Object | Type::Array | Type::Boolean) => false,
    };
    if counts { format } else { "" }
}

fn fits_range(float: f64, int: Option<i64>, type_: &str, format: &str) -> bool {
    // 2^63 itself does not fit
    let whole = int.is_some()
        || (float.fract() == 0.0 && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float));
    match (type_, format) {
        ("integer", "int32") => whole && (-2_147_483_648.0..=2_147_483_647.0).contains(&float),
        ("integer", _) => whole,
        ("number", "float") => float.abs() <= f64::from(f32::MAX),
        _ => true,
    }
}

/// Whether JavaScript would take the float for an integer.
fn is_json_integer(float: f64) -> bool {
    const MAX: f64 = 9_007_199_254_740_991.0;
    let error = (float - float.round()).abs();
    (-MAX..=MAX).contains(&float) && (error == 0.0 || error / (float.abs() + float.round().abs()) < 1e-9)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_update_names_fields_from_status_on_as_recorded() {
        let schema = Schema::parse(&json!({ "type": "object", "properties": {
            "spec": { "type": "object", "required": ["desk"], "x-kubernetes-validations": [{ "rule": "true" }] },
            "status": { "type": "object", "properties": { "num": { "type": "integer" } } },
        } }));
        let (old, new) = (json!({ "spec": {} }), json!({ "spec": {}, "status": { "num": "x" } }));
        let found = validate_status(&schema, &Rules::compile(&schema), &new, &old, Vec::new());
        let told: Vec<_> =
            found.iter().map(|cause| (cause.field.as_str(), cause.reason, cause.message.as_str())).collect();
        assert_eq!(
            told[0],
            (
                "status.num",
                "FieldValueTypeInvalid",
                "Invalid value: \"string\": num in body must be of type integer: \"string\""
            )
        );
        assert_eq!((told.len(), told[1].0), (2, "<nil>"));
    }
}
