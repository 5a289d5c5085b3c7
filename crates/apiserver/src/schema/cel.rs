//! `x-kubernetes-validations`: rules in CEL, compiled once per schema.
//!
//! There is no metering in the CEL engine. A rule whose loops could take too long over a value, judged by the sizes of
//! its lists and maps, is refused as if it had run out of budget.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use base64::Engine;
use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, Program, Value as Cel, functions};
use serde_json::Value;

use super::check::{self, Scope};
use super::fault::{self, child, forbidden, invalid, invalid_as, invalid_unseen, required};
use super::{Schema, Type, lists};
use crate::status::Cause;

/// Steps that one rule may take, by estimate.
const RULE_BUDGET: f64 = 1e7;
/// Steps that all rules of an object may take, by estimate.
const OBJECT_BUDGET: f64 = 1e8;
/// Levels of an expression: each takes some kilobytes of stack to evaluate.
const MAX_DEPTH: usize = 48;
/// Bytes; all that `check::is_too_deep` lets through fits.
const COMPILE_STACK: usize = 64 << 20;
/// Bytes of an evaluated message.
const MAX_MESSAGE: usize = 5 * 1024;

/// All rules of a schema, ready to run.
#[derive(Debug, Default)]
pub struct Rules {
    root: Option<Node>,
}

/// Why a rule does not compile, with its place: the schema's path and the index of the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFault {
    /// `rule` or `messageExpression`.
    pub part: &'static str,
    pub detail: String,
}

#[derive(Debug, Default)]
struct Node {
    rules: Vec<Rule>,
    properties: BTreeMap<String, Node>,
    additional: Option<Box<Node>>,
    items: Option<Box<Node>>,
}

/// One compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    text: String,
    program: Program,
    message: String,
    message_program: Option<Program>,
    reason: String,
    /// Below the node, such as `b` or `kv[x]`.
    field_path: String,
    optional_old_self: bool,
    pub(crate) uses_old_self: bool,
    /// Steps of the rule without its loops, and how deep these nest.
    size: f64,
    nesting: i32,
}

impl Rules {
    /// Compiles the rules; those that do not compile are left out, for such a definition is never accepted.
    pub fn compile(schema: &Schema) -> Self {
        Self { root: Node::compile(schema, true) }
    }

    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The rules that `new` breaks; `schema` is the one they were compiled from.
    pub fn check(&self, schema: &Schema, new: &Value, old: Option<&Value>, path: &str) -> Vec<Cause> {
        let Some(root) = &self.root else { return Vec::new() };
        let mut run = Run { found: Vec::new(), budget: OBJECT_BUDGET };
        let place = Place { schema, value: new, old, parent: None, path, root: true };
        root.run(place, &mut run);
        run.found
    }
}

/// Compiles one rule for values of `schema`; `root` for those with apiVersion, kind and metadata.
///
/// The parser needs much stack for little nesting, so it gets a thread with plenty. A panic in there, which odd input
/// may cause, is a rule that does not compile.
pub(crate) fn compile(schema: &Schema, rule: &Value, root: bool) -> Result<Option<Rule>, RuleFault> {
    let failed = || RuleFault { part: "rule", detail: "compilation failed: the expression cannot be read".to_owned() };
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("cel".to_owned()).stack_size(COMPILE_STACK);
        let thread = builder.spawn_scoped(scope, || compile_here(schema, rule, root));
        thread.map_or_else(|_| Err(failed()), |thread| thread.join().unwrap_or_else(|_| Err(failed())))
    })
}

fn compile_here(schema: &Schema, rule: &Value, root: bool) -> Result<Option<Rule>, RuleFault> {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("rule").trim().is_empty() {
        return Ok(None);
    }
    let optional_old_self = rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false);
    let scope = Scope { schema, root, optional_old_self };
    let fault = |part, prefix: &str, detail: String| RuleFault { part, detail: format!("{prefix}{detail}") };
    let program = parse(text("rule")).map_err(|why| fault("rule", "compilation failed: ", why))?;
    let checked = check::check(program.expression(), text("rule"), &scope);
    checked.issues.map_err(|why| fault("rule", "compilation failed: ", why))?;
    if !checked.kind.may_be("bool") {
        return Err(fault("rule", "", "cel expression must evaluate to a bool".to_owned()));
    }
    let message_program = match text("messageExpression") {
        "" => None,
        expression => {
            let part = "messageExpression";
            let program =
                parse(expression).map_err(|why| fault(part, "messageExpression compilation failed: ", why))?;
            let checked = check::check(program.expression(), expression, &scope);
            checked.issues.map_err(|why| fault(part, "messageExpression compilation failed: ", why))?;
            if !checked.kind.may_be("string") {
                return Err(fault(part, "", "messageExpression must evaluate to a string".to_owned()));
            }
            Some(program)
        }
    };
    let field_path = field_path(text("fieldPath"), schema, true).map_or_else(|_| String::new(), |(path, _)| path);
    let uses_old_self = program.references().has_variable("oldSelf");
    let (size, nesting) = check::cost(program.expression());
    Ok(Some(Rule {
        text: text("rule").trim().to_owned(),
        message: text("message").trim().to_owned(),
        reason: text("reason").to_owned(),
        program,
        message_program,
        field_path,
        optional_old_self,
        uses_old_self,
        size,
        nesting,
    }))
}

/// Follows a path such as `.spec.x` or `.map['key']`: as Kubernetes prints it, and where it leads.
pub(crate) fn field_path<'s>(path: &str, schema: &'s Schema, brackets: bool) -> Result<(String, &'s Schema), String> {
    let (mut rest, mut schema, mut out) = (path, schema, String::new());
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            if after.is_empty() {
                return Err("unexpected end of JSON path".to_owned());
            }
            (name, rest) = (after[..end.max(1)].to_owned(), &after[end.max(1)..]);
        } else if let Some(after) = rest.strip_prefix('[') {
            if !brackets {
                return Err("array notation is not allowed".to_owned());
            }
            let quoted = after.strip_prefix('\'').and_then(|text| text.split_once("']"));
            let Some((inner, tail)) = quoted else {
                let token = after.split(['.', '[', ']']).next().unwrap_or_default();
                return Err(format!("expected single quoted string but got {token}"));
            };
            (name, rest) = (inner.replace("\\'", "'").replace("\\\\", "\\"), tail);
        } else {
            let token = rest.split(['.', '[', ']']).next().unwrap_or_default();
            return Err(format!("expected [ or . but got: {}", if token.is_empty() { "]" } else { token }));
        }
        let lost = || "does not refer to a valid field".to_owned();
        if schema.properties.is_empty() && schema.additional.is_some() {
            schema = schema.additional.as_deref().ok_or_else(lost)?;
            out = format!("{out}[{name}]");
        } else {
            schema = schema.properties.get(&name).ok_or_else(lost)?;
            out = child(&out, &name);
        }
    }
    Ok((out, schema))
}

fn parse(source: &str) -> Result<Program, String> {
    let too_deep = || "ERROR: <input>:-1:0: expression recursion limit exceeded: 250".to_owned();
    if check::is_too_deep(source) {
        return Err(too_deep());
    }
    let program = Program::compile(source).map_err(|errors| check::syntax(source, &errors))?;
    if check::depth(program.expression()) > MAX_DEPTH { Err(too_deep()) } else { Ok(program) }
}

impl Node {
    fn compile(schema: &Schema, root: bool) -> Option<Self> {
        let below = |schema: &Schema| Self::compile(schema, schema.embedded_resource);
        let rules = schema.list("x-kubernetes-validations").iter();
        let node = Self {
            rules: rules.filter_map(|rule| compile(schema, rule, root).ok().flatten()).collect(),
            properties: schema
                .properties
                .iter()
                .filter_map(|(name, schema)| Some((name.clone(), below(schema)?)))
                .collect(),
            additional: schema.additional.as_deref().and_then(below).map(Box::new),
            items: schema.items.as_deref().and_then(below).map(Box::new),
        };
        let empty =
            node.rules.is_empty() && node.properties.is_empty() && node.additional.is_none() && node.items.is_none();
        (!empty).then_some(node)
    }

    fn run(&self, place: Place<'_>, run: &mut Run) {
        if place.value.is_null() || run.budget < 0.0 {
            return;
        }
        self.run_rules(place, run);
        match place.value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let old = place.old.and_then(|old| old.get(name));
                    let (node, schema, path) =
                        match (&self.additional, &place.schema.additional, self.properties.get(name)) {
                            (_, _, Some(node)) => (node, place.schema.properties.get(name), child(place.path, name)),
                            (Some(node), Some(schema), None) if !place.schema.properties.contains_key(name) => {
                                (node.as_ref(), Some(schema.as_ref()), format!("{}[{name}]", place.path))
                            }
                            _ => continue,
                        };
                    let Some(schema) = schema else { continue };
                    let mut below = place.below(schema, value, old, &path);
                    if place.root && (name == "apiVersion" || name == "kind") {
                        below.parent = None;
                    }
                    node.run(below, run);
                }
            }
            Value::Array(items) => {
                let (Some(node), Some(schema)) = (&self.items, &place.schema.items) else { return };
                let old = place.old.and_then(Value::as_array);
                for (index, value) in items.iter().enumerate() {
                    let old = old.and_then(|old| lists::correlated(place.schema, old, value));
                    let path = format!("{}[{index}]", place.path);
                    node.run(place.below(schema, value, old, &path), run);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn run_rules(&self, place: Place<'_>, run: &mut Run) {
        if self.rules.is_empty() {
            return;
        }
        let this = to_cel(Some(place.schema), place.value);
        let old = place.old.filter(|old| !old.is_null()).map(|old| to_cel(Some(place.schema), old));
        let longest = longest(place.value);
        for rule in &self.rules {
            if rule.uses_old_self && old.is_none() && !rule.optional_old_self {
                continue;
            }
            let cost = rule.size * longest.powi(rule.nesting);
            run.budget -= cost;
            let type_ = place.schema.type_.map_or("", Type::name);
            if run.budget < 0.0 || cost > RULE_BUDGET {
                run.budget = -1.0;
                let detail =
                    "validation failed due to running out of cost budget, no further validation rules will be run";
                run.found.push(invalid(place.path(), &type_.into(), detail));
                return;
            }
            match rule.run(&this, old.as_ref()) {
                Outcome::Holds => {}
                Outcome::Fails(detail) => {
                    if rule.uses_old_self || !place.is_unchanged() {
                        run.found.push(rule.cause(place, &detail));
                    }
                }
                Outcome::Breaks(detail) => run.found.push(invalid(place.path(), &type_.into(), &detail)),
            }
        }
    }
}

/// Where rules run.
#[derive(Clone, Copy)]
struct Place<'a> {
    schema: &'a Schema,
    value: &'a Value,
    old: Option<&'a Value>,
    /// The nearest value above whose old self is known, with that.
    parent: Option<(&'a Value, &'a Value)>,
    path: &'a str,
    root: bool,
}

impl<'a> Place<'a> {
    fn below<'b>(&self, schema: &'b Schema, value: &'b Value, old: Option<&'b Value>, path: &'b str) -> Place<'b>
    where
        'a: 'b,
    {
        let parent = self.old.map_or(self.parent, |old| Some((self.value, old)));
        Place { schema, value, old, parent, path, root: false }
    }

    fn is_unchanged(&self) -> bool {
        self.old.map_or_else(|| self.parent.is_some_and(|(new, old)| new == old), |old| old == self.value)
    }

    fn path(&self) -> String {
        fault::or_no_path(self.path)
    }
}

struct Run {
    found: Vec<Cause>,
    budget: f64,
}

enum Outcome {
    Holds,
    Fails(String),
    Breaks(String),
}

impl Rule {
    fn run(&self, this: &Cel, old: Option<&Cel>) -> Outcome {
        thread_local! {
            static CONTEXT: RefCell<Context<'static>> = RefCell::new(Context::default().with_all());
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
            let told = if self.message.is_empty() { &self.text } else { &self.message };
            match execute(&self.program, &scope) {
                Ok(Cel::Bool(true)) => Outcome::Holds,
                Ok(_) => Outcome::Fails(self.message(&scope)),
                Err(error) => Outcome::Breaks(explain(&error, told)),
            }
        })
    }

    fn message(&self, scope: &Context<'_>) -> String {
        if let Some(program) = &self.message_program
            && let Ok(Cel::String(text)) = execute(program, scope)
        {
            let text = text.trim();
            if !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n') {
                return text.to_owned();
            }
        }
        if self.message.is_empty() { format!("failed rule: {}", self.text) } else { self.message.clone() }
    }

    fn cause(&self, place: Place<'_>, detail: &str) -> Cause {
        let path = match (place.path, self.field_path.as_str()) {
            (_, "") => place.path(),
            ("", path) => path.to_owned(),
            (base, path) => format!("{base}.{path}"),
        };
        let composite = matches!(place.schema.type_, Some(Type::Object | Type::Array));
        match self.reason.as_str() {
            fault::FORBIDDEN => forbidden(path, detail),
            fault::REQUIRED => required(path, detail),
            fault::DUPLICATE if composite => {
                Cause { reason: fault::DUPLICATE, message: "Duplicate value".to_owned(), field: path }
            }
            fault::DUPLICATE => fault::duplicate(path, place.value),
            _ if composite => invalid_unseen(path, detail),
            _ => invalid_as(path, &fault::show(place.value), detail),
        }
    }
}

fn execute(program: &Program, scope: &Context<'_>) -> Result<Cel, ExecutionError> {
    let result = catch_unwind(AssertUnwindSafe(|| program.execute(scope)));
    result.unwrap_or_else(|_| Err(ExecutionError::function_error("rule", "the engine failed")))
}

/// Errors in the words of cel-go.
fn explain(error: &ExecutionError, rule: &str) -> String {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest are all about types")]
    let text = match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
        _ => {
            return format!(
                "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {rule}"
            );
        }
    };
    format!("{text} evaluating rule: {rule}")
}

/// The length of the longest list or map, at least 1.
fn longest(value: &Value) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    match value {
        Value::Array(items) => items.iter().map(longest).fold((items.len() as f64).max(1.0), f64::max),
        Value::Object(fields) => fields.values().map(longest).fold((fields.len() as f64).max(1.0), f64::max),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1.0,
    }
}

/// A value as CEL sees it: fields by their escaped names, times and bytes by their formats.
fn to_cel(schema: Option<&Schema>, value: &Value) -> Cel {
    let text = |text: &str| Cel::String(Arc::new(text.to_owned()));
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => {
            let float = number.as_f64().unwrap_or(f64::NAN);
            let type_ = schema.and_then(|schema| schema.type_);
            #[expect(clippy::cast_possible_truncation, reason = "whole numbers below 2^53 only")]
            match number.as_i64() {
                _ if type_ == Some(Type::Number) => Cel::Float(float),
                Some(int) => Cel::Int(int),
                None if type_ == Some(Type::Integer) && float.fract() == 0.0 && float.abs() < 9e15 => {
                    Cel::Int(float as i64)
                }
                None => Cel::Float(float),
            }
        }
        Value::String(string) => {
            let typed = match schema.map(|schema| schema.text("format")).unwrap_or_default() {
                "date-time" => functions::timestamp(Arc::new(string.to_uppercase())).ok(),
                "date" => functions::timestamp(Arc::new(format!("{string}T00:00:00Z"))).ok(),
                "duration" => functions::duration(Arc::new(string.clone())).ok(),
                "byte" => base64::engine::general_purpose::STANDARD
                    .decode(string)
                    .ok()
                    .map(|bytes| Cel::Bytes(Arc::new(bytes))),
                _ => None,
            };
            typed.unwrap_or_else(|| text(string))
        }
        Value::Array(items) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            Cel::List(Arc::new(items.iter().map(|item| to_cel(schema, item)).collect()))
        }
        Value::Object(fields) => {
            let is_map = schema.is_some_and(|schema| schema.additional.is_some());
            let entry = |(name, value): (&String, &Value)| {
                let key = if is_map { name.clone() } else { check::escape(name) };
                (Key::String(Arc::new(key)), to_cel(schema.and_then(|schema| schema.field(name)), value))
            };
            Cel::Map(Map { map: Arc::new(fields.iter().map(entry).collect::<HashMap<_, _>>()) })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn broken(schema: &Value, new: &Value, old: Option<&Value>) -> Vec<String> {
        let schema = Schema::parse(schema);
        let causes = Rules::compile(&schema).check(&schema, new, old, "");
        causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
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
    fn a_rule_that_would_run_too_long_is_stopped() {
        let schema = json!({ "type": "array", "items": { "type": "integer" }, "x-kubernetes-validations": [
            { "rule": "self.all(a, self.all(b, self.all(c, a + b + c > 0)))" }, { "rule": "false" },
        ] });
        let value: Vec<i64> = (0..2000).collect();
        assert_eq!(
            broken(&schema, &json!(value), None),
            [
                "<nil>: Invalid value: \"array\": validation failed due to running out of cost budget, no further validation rules will be run",
            ]
        );
    }

    #[test]
    fn rules_that_cannot_be_evaluated_say_why() {
        let schema = json!({ "type": "object", "properties": { "v": { "x-kubernetes-int-or-string": true }, "l": { "type": "array", "items": { "type": "integer" } } },
            "x-kubernetes-validations": [{ "rule": "self.v > 1" }, { "rule": "self.l[5] == 1", "message": "fifth" }, { "rule": "1 / self.l[0] == 1" }] });
        assert_eq!(
            broken(&schema, &json!({ "v": "x", "l": [0] }), None),
            [
                "<nil>: Invalid value: \"object\": 'no such overload': call arguments did not match a supported operator, function or macro signature for rule: self.v > 1",
                "<nil>: Invalid value: \"object\": index out of bounds: 5 evaluating rule: fifth",
                "<nil>: Invalid value: \"object\": division by zero evaluating rule: 1 / self.l[0] == 1",
            ]
        );
    }

    #[test]
    fn the_deepest_rules_that_are_taken_fit_the_stack() {
        let schema = Schema::parse(&json!({ "type": "object" }));
        let nested = |open: &str, middle: &str, close: &str, times: usize| {
            format!("{}{middle}{}", open.repeat(times), close.repeat(times))
        };
        for rule in [
            nested("(", "true", ")", 64),
            nested("!", "true", "", 40),
            nested("true && ", "true", "", 250),
            nested("1 + ", "1 > 0", "", 40),
            nested("[1].all(x, ", "true", ")", 12),
            nested("true ? ", "true", " : false", 40),
            nested("size([", "1", "]) + 1", 20),
        ] {
            assert!(!check::is_too_deep(&rule), "{rule:.20}");
            let rules = Rules {
                root: Node::compile(
                    &Schema {
                        raw: json!({ "x-kubernetes-validations": [{ "rule": rule }] }).as_object().unwrap().clone(),
                        ..schema.clone()
                    },
                    false,
                ),
            };
            assert!(rules.check(&schema, &json!({}), None, "").len() <= 1);
        }
    }

    #[test]
    fn odd_expressions_never_panic() {
        let schema = Schema::parse(&json!({ "type": "object" }));
        let deep = ["(", "!", "-", "[", "self.", "{1:", "true ? ", "1 + ", "true && ", "1 == ", "size(", "x.all(y, "]
            .map(|part| part.repeat(5000));
        let odd = ["", "((((", "self[", "'", "a.b.c.d(", "self.all(", "1 +", "\u{0}", "has(self)", "{}{}", "x ? y"];
        for rule in odd.into_iter().chain(deep.iter().map(String::as_str)) {
            assert!(compile(&schema, &json!({ "rule": rule }), true).is_err() || rule.is_empty(), "{rule:.20}");
        }
    }
}
