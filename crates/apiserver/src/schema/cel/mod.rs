//! `x-kubernetes-validations`: rules in CEL, compiled once per schema.
//!
//! A rule is refused when it cannot be parsed; types and costs are not checked beforehand. A rule that cannot be
//! evaluated does not hold.

mod parse;
mod values;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::Value;

use self::parse::parse;
use self::values::{context, to_cel};
use super::fault::{self, forbidden, invalid, not_supported, required};
use super::{ListType, Path, Schema, Type, lists};
use crate::status::Cause;

/// Bytes; all that `is_too_deep` lets through fits.
const COMPILE_STACK: usize = 64 << 20;
const REASONS: [&str; 4] = [fault::DUPLICATE, fault::FORBIDDEN, fault::INVALID, fault::REQUIRED];

/// All rules of a schema, ready to run.
#[derive(Debug, Default)]
pub struct Rules {
    root: Option<Node>,
}

#[derive(Debug)]
struct Node {
    rules: Vec<Rule>,
    properties: BTreeMap<String, Node>,
    additional: Option<Box<Node>>,
    items: Option<Box<Node>>,
}

#[derive(Debug)]
struct Rule {
    text: String,
    program: Program,
    message: String,
    message_program: Option<Program>,
    reason: String,
    /// Below the node, such as `b` or `kv[x]`.
    field_path: String,
    optional_old_self: bool,
    uses_old_self: bool,
}

impl Rules {
    /// Compiles the rules; those that do not compile are left out, for such a definition is never accepted.
    pub fn compile(schema: &Schema) -> Self {
        Self::compile_checked(schema, "").0
    }

    /// Compiles the rules, and returns the errors of those that do not compile; `path` is that of the schema.
    ///
    /// The parser needs much stack for little nesting, so it gets a thread with plenty.
    pub(crate) fn compile_checked(schema: &Schema, path: &str) -> (Self, Vec<Cause>) {
        if !schema.has_rules() {
            return Default::default();
        }
        let compile = || {
            let mut found = Vec::new();
            (Self { root: Node::compile(schema, path, true, &mut found) }, found)
        };
        let compiled = std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("cel".to_owned()).stack_size(COMPILE_STACK);
            builder.spawn_scoped(scope, compile).ok()?.join().ok()
        });
        compiled.unwrap_or_else(|| (Self::default(), vec![invalid(path, &Value::Null, "the rules cannot be compiled")]))
    }

    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The rules that a value breaks; `schema` is the one they were compiled from, `path` that of the value.
    pub(crate) fn check(&self, schema: &Schema, value: &Value, old: Option<&Value>, path: Path<'_>) -> Vec<Cause> {
        let mut found = Vec::new();
        if let Some(root) = &self.root {
            root.run(Location { schema, value, old, unchanged: false, path }, &mut found);
        }
        found
    }
}

/// A path such as `.spec.x` or `.map['key']` as Kubernetes prints it, if it leads somewhere.
fn field_path(path: &str, schema: &Schema) -> Option<String> {
    let (mut rest, mut schema, mut out) = (path, schema, String::new());
    while !rest.is_empty() {
        let (name, tail) = if let Some(quoted) = rest.strip_prefix("['") {
            quoted.split_once("']")?
        } else {
            let plain = rest.strip_prefix('.')?;
            plain.split_at(plain.find(['.', '[']).unwrap_or(plain.len()))
        };
        rest = tail;
        if let Some(property) = schema.properties.get(name) {
            schema = property;
            out = format!("{out}.{name}");
        } else {
            schema = schema.additional.as_deref()?;
            out = format!("{out}[{name}]");
        }
    }
    Some(out.trim_start_matches('.').to_owned())
}

impl Node {
    /// `correlated` is false where values cannot be matched with their old values.
    fn compile(schema: &Schema, path: &str, correlated: bool, found: &mut Vec<Cause>) -> Option<Self> {
        let mut rules = Vec::new();
        for (index, rule) in schema.rules().iter().enumerate() {
            match Rule::compile(schema, rule, correlated, &format!("{path}.x-kubernetes-validations[{index}]")) {
                Ok(rule) => rules.push(rule),
                Err(cause) => found.push(cause),
            }
        }
        let items_correlated = correlated && matches!(schema.list_type, ListType::Map(_));
        let mut below = |schema: &Schema, name: &str, correlated: bool| {
            Self::compile(schema, &format!("{path}.{name}"), correlated, found)
        };
        let mut properties = BTreeMap::new();
        for (name, schema) in &schema.properties {
            if let Some(node) = below(schema, &format!("properties[{name}]"), correlated) {
                properties.insert(name.clone(), node);
            }
        }
        let additional =
            schema.additional.as_ref().and_then(|schema| below(schema, "additionalProperties", correlated));
        let items = schema.items.as_ref().and_then(|schema| below(schema, "items", items_correlated));
        let any = !rules.is_empty() || !properties.is_empty() || additional.is_some() || items.is_some();
        any.then(|| Self { rules, properties, additional: additional.map(Box::new), items: items.map(Box::new) })
    }

    fn run(&self, place: Location<'_>, found: &mut Vec<Cause>) {
        if place.value.is_null() {
            return;
        }
        let place = Location { unchanged: place.unchanged || place.old == Some(place.value), ..place };
        self.run_rules(place, found);
        match place.value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let old = place.old.and_then(|old| old.get(name));
                    let property = place.schema.properties.get(name);
                    let (node, schema, path) = match (property, &place.schema.additional) {
                        (Some(schema), _) => (self.properties.get(name), schema, Path::Field(&place.path, name)),
                        (None, Some(schema)) => (self.additional.as_deref(), &**schema, Path::Key(&place.path, name)),
                        (None, None) => continue,
                    };
                    if let Some(node) = node {
                        node.run(Location { schema, value, old, path, ..place }, found);
                    }
                }
            }
            Value::Array(items) => {
                let (Some(node), Some(schema)) = (&self.items, &place.schema.items) else { return };
                let old = place.old.and_then(Value::as_array);
                for (index, value) in items.iter().enumerate() {
                    let old = old.and_then(|old| lists::correlated(place.schema, old, value));
                    node.run(Location { schema, value, old, path: Path::Item(&place.path, index), ..place }, found);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn run_rules(&self, place: Location<'_>, found: &mut Vec<Cause>) {
        let has_old = place.old.is_some_and(|old| !old.is_null());
        let is_due = |rule: &&Rule| {
            if rule.uses_old_self { has_old || rule.optional_old_self } else { !place.unchanged }
        };
        let due: Vec<&Rule> = self.rules.iter().filter(is_due).collect();
        if due.is_empty() {
            return;
        }
        let this = to_cel(Some(place.schema), place.value);
        let needs_old = has_old && due.iter().any(|rule| rule.uses_old_self);
        let old = place.old.filter(|_| needs_old).map(|old| to_cel(Some(place.schema), old));
        for rule in due {
            if let Err(detail) = rule.run(&this, old.as_ref()) {
                found.push(rule.cause(&place, &detail));
            }
        }
    }
}

/// Where rules run.
#[derive(Clone, Copy)]
struct Location<'a> {
    schema: &'a Schema,
    value: &'a Value,
    old: Option<&'a Value>,
    /// Whether this or a parent is unchanged; then only transition rules run.
    unchanged: bool,
    path: Path<'a>,
}

impl Rule {
    /// `path` is that of the rule.
    fn compile(schema: &Schema, rule: &Value, correlated: bool, path: &str) -> Result<Self, Cause> {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default().trim();
        let wrong = |name: &str, detail: &str| invalid(format!("{path}.{name}"), &rule[name], detail);
        if text("rule").is_empty() {
            return Err(required(format!("{path}.rule"), "rule is not specified"));
        }
        if !text("reason").is_empty() && !REASONS.contains(&text("reason")) {
            return Err(not_supported(format!("{path}.reason"), &rule["reason"], &REASONS));
        }
        let program = parse(text("rule")).map_err(|why| wrong("rule", &why))?;
        let message_program = match text("messageExpression") {
            "" => None,
            expression => Some(parse(expression).map_err(|why| wrong("messageExpression", &why))?),
        };
        let Some(field_path) = field_path(text("fieldPath"), schema) else {
            return Err(wrong("fieldPath", "must be a valid path"));
        };
        let uses_old_self = program.references().has_variable("oldSelf");
        if uses_old_self && !correlated {
            return Err(wrong("rule", "oldSelf cannot be used below a list that is not of type map"));
        }
        Ok(Self {
            text: text("rule").to_owned(),
            message: text("message").to_owned(),
            reason: text("reason").to_owned(),
            program,
            message_program,
            field_path,
            optional_old_self: rule.get("optionalOldSelf") == Some(&Value::Bool(true)),
            uses_old_self,
        })
    }

    /// The error says why the rule does not hold.
    fn run(&self, this: &Cel, old: Option<&Cel>) -> Result<(), String> {
        thread_local! {
            static CONTEXT: RefCell<Context<'static>> = RefCell::new(context());
        }
        CONTEXT.with_borrow(|context| {
            let mut scope = context.new_inner_scope();
            scope.add_variable_from_value("self", this.clone());
            if self.uses_old_self && self.optional_old_self {
                let old = old.map_or_else(OptionalValue::none, |old| OptionalValue::of(old.clone()));
                scope.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
            } else if let Some(old) = old {
                scope.add_variable_from_value("oldSelf", old.clone());
            }
            match execute(&self.program, &scope) {
                Ok(Cel::Bool(true)) => Ok(()),
                Ok(_) => Err(self.message(&scope)),
                Err(why) => Err(format!("{why} evaluating rule: {}", self.text)),
            }
        })
    }

    fn message(&self, scope: &Context<'_>) -> String {
        match self.message_program.as_ref().map(|program| execute(program, scope)) {
            Some(Ok(Cel::String(text))) if !text.trim().is_empty() => text.trim().to_owned(),
            _ if self.message.is_empty() => format!("failed rule: {}", self.text),
            _ => self.message.clone(),
        }
    }

    fn cause(&self, place: &Location<'_>, detail: &str) -> Cause {
        let path = match self.field_path.as_str() {
            "" => place.path.field(),
            below => Path::Field(&place.path, below).field(),
        };
        let shown = match place.schema.type_ {
            Some(type_ @ (Type::Object | Type::Array)) => type_.name().into(),
            _ => place.value.clone(),
        };
        match self.reason.as_str() {
            fault::FORBIDDEN => forbidden(path, detail),
            fault::REQUIRED => required(path, detail),
            fault::DUPLICATE => Cause { reason: fault::DUPLICATE, ..invalid(path, &shown, detail) },
            _ => invalid(path, &shown, detail),
        }
    }
}

fn execute(program: &Program, scope: &Context<'_>) -> Result<Cel, String> {
    let result = catch_unwind(AssertUnwindSafe(|| program.execute(scope)));
    result.map_err(|_| "the engine failed".to_owned())?.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn broken(schema: &Value, new: &Value, old: Option<&Value>) -> Vec<String> {
        let schema = Schema::parse(schema);
        let causes = Rules::compile(&schema).check(&schema, new, old, Path::Root);
        causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    #[test]
    fn a_rule_can_ask_for_the_type_of_a_value() {
        let schema = json!({ "x-kubernetes-int-or-string": true, "x-kubernetes-validations": [
            { "rule": "type(self) == int ? self < 10 : self.matches('^[a-z]+$')", "message": "no port" },
            { "rule": "type(self) in [int, string] && int('1') == 1" },
        ] });
        for (value, broken_rules) in [(json!(3), 0), (json!(30), 1), (json!("web"), 0), (json!("3,"), 1)] {
            assert_eq!(broken(&schema, &value, None).len(), broken_rules, "{value}");
        }
    }

    #[test]
    fn times_bytes_and_numbers_have_their_types_in_rules() {
        let schema = json!({ "type": "object", "properties": {
            "at": { "type": "string", "format": "date-time" }, "day": { "type": "string", "format": "date" },
            "wait": { "type": "string", "format": "duration" }, "raw": { "type": "string", "format": "byte" }, "n": { "type": "number" },
        }, "x-kubernetes-validations": [
            { "rule": "self.at > timestamp('2020-01-01T00:00:00Z') && self.day < self.at" },
            { "rule": "self.wait == duration('90s') && size(self.raw) == 2 && self.n / 2.0 == 1.5" },
        ] });
        let value =
            json!({ "at": "2021-01-01T00:00:00Z", "day": "2020-12-31", "wait": "1m30s", "raw": "aGk=", "n": 3 });
        assert_eq!(broken(&schema, &value, None), Vec::<String>::new());
    }

    #[test]
    fn fields_with_odd_names_have_their_spelling_in_rules() {
        let schema = json!({ "type": "object", "properties": {
            "n-m": { "type": "string" }, "for": { "type": "string" }, "a_b": { "type": "string" }, "c__d": { "type": "string" },
        }, "x-kubernetes-validations": [
            { "rule": "self.n__dash__m == 'x' && self.__for__ == 'y' && self.a_b == 'z' && self.c__underscores__d == 'w'" },
        ] });
        let value = json!({ "n-m": "x", "for": "y", "a_b": "z", "c__d": "w" });
        assert_eq!(broken(&schema, &value, None), Vec::<String>::new());
    }

    #[test]
    fn rules_that_cannot_be_evaluated_say_why() {
        let schema = json!({ "type": "object", "properties": { "l": { "type": "array", "items": { "type": "integer" } } },
            "x-kubernetes-validations": [{ "rule": "self.l[5] == 1" }, { "rule": "1 / self.l[0] == 1" }, { "rule": "self.none > 1" }] });
        let told = broken(&schema, &json!({ "l": [0] }), None);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[2].contains("none") && told[2].ends_with("evaluating rule: self.none > 1"), "{}", told[2]);
    }

    #[test]
    fn the_deepest_rules_that_are_taken_fit_the_stack() {
        let nested = |open: &str, middle: &str, close: &str, times: usize| {
            format!("{}{middle}{}", open.repeat(times), close.repeat(times))
        };
        for rule in [
            nested("(", "true", ")", 64),
            nested("!", "true", "", 990),
            nested("- ", "1", " < 2", 200),
            nested("true && ", "true", "", 250),
            nested("1 + ", "1 > 0", "", 990),
            nested("[1].all(x, ", "true", ")", 12),
            nested("true ? ", "true", " : false", 40),
            nested("false ? true : ", "true", "", 300),
            nested("size([", "1", "]) + 1", 20),
            nested("self.", "x", "", 400),
        ] {
            assert!(!parse::is_too_deep(&rule), "{rule:.20}");
            let schema = Schema::parse(&json!({ "type": "object", "x-kubernetes-validations": [{ "rule": rule }] }));
            assert!(Rules::compile(&schema).check(&schema, &json!({}), None, Path::Root).len() <= 1);
        }
    }

    #[test]
    fn odd_expressions_never_panic() {
        let deep = ["(", "!", "-", "[", "self.", "{1:", "true ? ", "1 + ", "true && ", "1 == ", "size(", "x.all(y, "]
            .map(|part| part.repeat(5000));
        let odd = ["((((", "self[", "'", "a.b.c.d(", "self.all(", "1 +", "\u{0}", "has(self)", "{}{}", "x ? y"];
        for rule in odd.into_iter().chain(deep.iter().map(String::as_str)) {
            let schema = Schema::parse(&json!({ "type": "object", "x-kubernetes-validations": [{ "rule": rule }] }));
            let (_, found) = Rules::compile_checked(&schema, "schema");
            assert_eq!(found.len(), 1, "{rule:.20}");
            assert_eq!(found[0].field, "schema.x-kubernetes-validations[0].rule");
        }
    }
}
