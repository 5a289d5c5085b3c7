//! The checks of cel-go that users meet when they write a rule: fields, names and types that do not exist or fit.
//!
//! The engine has no type checker. This one knows the types of fields, literals, operators and the usual functions,
//! and takes anything where it is not sure.

use std::collections::BTreeMap;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::ParseErrors;
use kube_cel::cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};

use super::{Schema, Type};

/// What a rule is about.
pub(crate) struct Scope<'a> {
    pub schema: &'a Schema,
    /// With apiVersion, kind and metadata.
    pub root: bool,
    pub optional_old_self: bool,
}

pub(crate) struct Checked<'a> {
    /// Errors as cel-go prints them.
    pub issues: Result<(), String>,
    pub kind: Kind<'a>,
}

/// The type of an expression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind<'a> {
    Any,
    /// `int`, `double`, `string`, `bool`, `bytes`, `timestamp`, `duration`, `null`.
    Scalar(&'static str),
    Node(&'a Schema, bool),
    List,
    /// `metadata`, of which name and generateName are known.
    Metadata,
}

impl Kind<'_> {
    pub(crate) fn may_be(&self, name: &str) -> bool {
        match self {
            Kind::Any => true,
            Kind::Scalar(scalar) => *scalar == name,
            Kind::Node(..) | Kind::List | Kind::Metadata => false,
        }
    }
}

pub(crate) fn check<'a>(expression: &IdedExpr, source: &str, scope: &Scope<'a>) -> Checked<'a> {
    let this = kind_of(scope.schema, scope.root);
    let old = if scope.optional_old_self { Kind::Any } else { this };
    let mut checker = Checker { source, issues: Vec::new(), places: BTreeMap::new() };
    let kind = checker.kind(
        expression,
        &Names { name: "self", kind: this, outer: Some(&Names { name: "oldSelf", kind: old, outer: None }) },
    );
    checker.issues.sort_by_key(|(at, _)| *at);
    let issues: Vec<String> = checker.issues.into_iter().map(|(at, text)| located(source, at, &text)).collect();
    Checked { issues: if issues.is_empty() { Ok(()) } else { Err(issues.join("\n")) }, kind }
}

/// Whether the text nests or chains so deep that reading it could exhaust the stack. No rule for people does.
pub(crate) fn is_too_deep(source: &str) -> bool {
    const MAX_NESTING: usize = 64;
    const MAX_OPERATORS: usize = 1000;
    let (mut nesting, mut run, mut ternaries, mut operators) = (0_usize, 0_usize, 0_usize, 0_usize);
    let mut quoted = None;
    let mut escaped = false;
    for ch in source.chars() {
        if let Some(quote) = quoted {
            if ch == quote && !escaped {
                quoted = None;
            }
            escaped = ch == '\\' && !escaped;
            continue;
        }
        match ch {
            '"' | '\'' => quoted = Some(ch),
            '(' | '[' | '{' => nesting += 1,
            ')' | ']' | '}' => nesting = nesting.saturating_sub(1),
            '?' => ternaries += 1,
            '.' | '+' | '*' | '/' | '%' | '&' | '|' | '=' | '<' | '>' => operators += 1,
            _ => {}
        }
        run = match ch {
            '!' | '-' => run + 1,
            ' ' => run,
            _ => 0,
        };
        if nesting > MAX_NESTING || run > MAX_NESTING || ternaries > MAX_NESTING || operators > MAX_OPERATORS {
            return true;
        }
    }
    false
}

/// The levels of an expression.
pub(crate) fn depth(expression: &IdedExpr) -> usize {
    1 + parts(&expression.expr).into_iter().map(depth).max().unwrap_or(0)
}

/// The number of an expression's parts, and how deep its loops nest.
pub(crate) fn cost(expression: &IdedExpr) -> (f64, i32) {
    let (mut size, mut nesting) = (1.0, 0);
    let own = i32::from(matches!(expression.expr, Expr::Comprehension(_)));
    for part in parts(&expression.expr) {
        let (part_size, part_nesting) = cost(part);
        size += part_size;
        nesting = nesting.max(part_nesting);
    }
    (size, nesting + own)
}

/// Field names that are no identifiers, or reserved words, have another spelling in CEL.
pub(crate) fn escape(name: &str) -> String {
    const RESERVED: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}

/// Syntax errors as cel-go prints them.
pub(crate) fn syntax(source: &str, errors: &ParseErrors) -> String {
    let texts = errors.errors.iter().map(|error| {
        let (line, column) = error.pos;
        let text = if error.msg.starts_with("Syntax error") {
            error.msg.clone()
        } else {
            format!("Syntax error: {}", error.msg)
        };
        // cel-go expects the end alone where it may come
        let text =
            text.split_once("expecting {<EOF>,").map_or(text.clone(), |(before, _)| format!("{before}expecting <EOF>"));
        let (line, column) = (usize::try_from(line).unwrap_or(1).max(1), usize::try_from(column).unwrap_or(1).max(1));
        marked(source, line, column, &text)
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// An error at a byte of the source.
pub(crate) fn located(source: &str, at: usize, text: &str) -> String {
    let before = source.get(..at).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|ch| *ch != '\n').count() + 1;
    marked(source, line, column, text)
}

fn marked(source: &str, line: usize, column: usize, text: &str) -> String {
    let shown = source.split('\n').nth(line - 1).unwrap_or_default();
    format!("ERROR: <input>:{line}:{column}: {text}\n | {shown}\n | {}^", ".".repeat(column - 1))
}

fn kind_of(schema: &Schema, root: bool) -> Kind<'_> {
    match schema.type_ {
        _ if schema.int_or_string => Kind::Any,
        None => Kind::Any,
        Some(Type::Integer) => Kind::Scalar("int"),
        Some(Type::Number) => Kind::Scalar("double"),
        Some(Type::Boolean) => Kind::Scalar("bool"),
        Some(Type::String) => Kind::Scalar(match schema.text("format") {
            "date" | "date-time" => "timestamp",
            "duration" => "duration",
            "byte" => "bytes",
            _ => "string",
        }),
        Some(Type::Object | Type::Array) => Kind::Node(schema, root),
    }
}

/// Names in scope, innermost first.
struct Names<'a, 'o> {
    name: &'o str,
    kind: Kind<'a>,
    outer: Option<&'o Names<'a, 'o>>,
}

impl<'a> Names<'a, '_> {
    fn find(&self, name: &str) -> Option<Kind<'a>> {
        if self.name == name { Some(self.kind) } else { self.outer?.find(name) }
    }
}

struct Checker<'s> {
    source: &'s str,
    /// By place, a byte of the source.
    issues: Vec<(usize, String)>,
    /// How far the source was searched for each thing: the tree does not tell places.
    places: BTreeMap<String, usize>,
}

impl Checker<'_> {
    fn kind<'a>(&mut self, expression: &IdedExpr, names: &Names<'a, '_>) -> Kind<'a> {
        match &expression.expr {
            Expr::Ident(name) => self.ident(name, names),
            Expr::Literal(literal) => literal_kind(literal),
            Expr::Select(select) => {
                if is_namespace(&select.operand, names) {
                    return Kind::Any;
                }
                let operand = self.kind(&select.operand, names);
                let found = self.field(operand, &select.field, select.test);
                if select.test { Kind::Scalar("bool") } else { found }
            }
            Expr::Call(call) => {
                let target = call.target.as_deref();
                let target =
                    target.map(|target| if is_namespace(target, names) { Kind::Any } else { self.kind(target, names) });
                let arguments: Vec<Kind<'a>> = call.args.iter().map(|argument| self.kind(argument, names)).collect();
                self.call(&call.func_name, target, &arguments)
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, names),
            Expr::List(list) => {
                for element in &list.elements {
                    self.kind(element, names);
                }
                Kind::List
            }
            Expr::Unspecified | Expr::Map(_) | Expr::Struct(_) => {
                for part in parts(&expression.expr) {
                    self.kind(part, names);
                }
                Kind::Any
            }
        }
    }

    fn ident<'a>(&mut self, name: &str, names: &Names<'a, '_>) -> Kind<'a> {
        const TYPES: [&str; 12] =
            ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type", "optional", "dyn"];
        if let Some(kind) = names.find(name) {
            return kind;
        }
        if !TYPES.contains(&name) && !name.starts_with('@') {
            let at = self.place(name, 0);
            self.issues.push((at, format!("undeclared reference to '{name}' (in container '')")));
        }
        Kind::Any
    }

    fn field<'a>(&mut self, operand: Kind<'a>, field: &str, test: bool) -> Kind<'a> {
        let found = match operand {
            Kind::Node(schema, root) => match (schema.type_, schema.additional.as_deref()) {
                (Some(Type::Object), Some(values)) => return kind_of(values, values.embedded_resource),
                (Some(Type::Object), None) => {
                    let declared = schema.properties.iter().find(|(name, _)| escape(name) == field);
                    match (field, declared) {
                        ("apiVersion" | "kind", _) if root => Some(Kind::Scalar("string")),
                        ("metadata", _) if root => Some(Kind::Metadata),
                        // fields without a type are not there for rules
                        (_, Some((_, schema))) if schema.type_.is_some() || schema.int_or_string => {
                            Some(kind_of(schema, schema.embedded_resource))
                        }
                        _ => None,
                    }
                }
                _ => return Kind::Any,
            },
            Kind::Metadata => ["name", "generateName"].contains(&field).then_some(Kind::Scalar("string")),
            Kind::Any | Kind::Scalar(_) | Kind::List => return Kind::Any,
        };
        let at = self.place(&format!(".{field}"), 0);
        found.unwrap_or_else(|| {
            let at = if test { self.source[..at].rfind("has(").map_or(at, |start| start + 3) } else { at };
            self.issues.push((at, format!("undefined field '{field}'")));
            Kind::Any
        })
    }

    fn call<'a>(&mut self, name: &str, target: Option<Kind<'a>>, arguments: &[Kind<'a>]) -> Kind<'a> {
        match (name, arguments) {
            (operators::EQUALS | operators::NOT_EQUALS, [one, other]) => {
                self.overload(name, *one, *other);
                Kind::Scalar("bool")
            }
            (
                operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS,
                [one, other],
            ) => {
                let numbers = ["int", "double"];
                let crossed = numbers.iter().any(|kind| *one == Kind::Scalar(kind))
                    && numbers.iter().any(|kind| *other == Kind::Scalar(kind));
                if !crossed {
                    self.overload(name, *one, *other);
                }
                Kind::Scalar("bool")
            }
            (
                operators::ADD | operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO,
                [one, other],
            ) => {
                let temporal = |kind: &Kind<'_>| kind.may_be("timestamp") || kind.may_be("duration");
                if !temporal(one) && !temporal(other) {
                    self.overload(name, *one, *other);
                }
                if one == other { *one } else { Kind::Any }
            }
            (operators::CONDITIONAL, [_, one, other]) => {
                if one == other {
                    *one
                } else {
                    Kind::Any
                }
            }
            (operators::INDEX, [Kind::Node(schema, _), _]) => {
                let below = schema.items.as_deref().or(schema.additional.as_deref());
                below.map_or(Kind::Any, |schema| kind_of(schema, schema.embedded_resource))
            }
            (
                operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::IN
                | "startsWith"
                | "endsWith"
                | "contains"
                | "matches"
                | "exists"
                | "all"
                | "isSorted"
                | "hasValue",
                _,
            ) => Kind::Scalar("bool"),
            ("size" | "int" | "indexOf" | "lastIndexOf", _) => Kind::Scalar("int"),
            ("string" | "lowerAscii" | "upperAscii" | "trim" | "replace" | "substring" | "join", _) => {
                Kind::Scalar("string")
            }
            _ => {
                if target.is_none()
                    && !FUNCTIONS.contains(&name)
                    && name.chars().all(|ch| ch.is_ascii_alphanumeric() || ch == '_')
                {
                    let at = self.place(&format!("{name}("), 0) + name.len();
                    self.issues.push((at, format!("undeclared reference to '{name}' (in container '')")));
                }
                Kind::Any
            }
        }
    }

    /// Both sides are scalars that are known to differ.
    fn overload(&mut self, operator: &str, one: Kind<'_>, other: Kind<'_>) {
        if let (Kind::Scalar(one), Kind::Scalar(other)) = (one, other)
            && one != other
        {
            let at = self.place(operator.trim_matches('_'), 0);
            self.issues
                .push((at, format!("found no matching overload for '{operator}' applied to '({one}, {other})'")));
        }
    }

    fn comprehension<'a>(&mut self, comprehension: &ComprehensionExpr, names: &Names<'a, '_>) -> Kind<'a> {
        let range = self.kind(&comprehension.iter_range, names);
        let (first, second) = match range {
            Kind::Node(schema, _) => match (&schema.items, &schema.additional) {
                (Some(items), _) => (kind_of(items, items.embedded_resource), kind_of(items, items.embedded_resource)),
                (None, Some(values)) => (Kind::Scalar("string"), kind_of(values, values.embedded_resource)),
                (None, None) => (Kind::Any, Kind::Any),
            },
            Kind::Any | Kind::Scalar(_) | Kind::List | Kind::Metadata => (Kind::Any, Kind::Any),
        };
        let two = comprehension.iter_var2.as_deref();
        let first = if two.is_some() { Kind::Any } else { first };
        let outer = Names { name: &comprehension.iter_var, kind: first, outer: Some(names) };
        let inner = Names { name: two.unwrap_or("@none"), kind: second, outer: Some(&outer) };
        let accumulator = Names { name: &comprehension.accu_var, kind: Kind::Any, outer: Some(&inner) };
        self.kind(&comprehension.accu_init, names);
        self.kind(&comprehension.loop_cond, &accumulator);
        self.kind(&comprehension.loop_step, &accumulator);
        match self
            .kind(&comprehension.result, &Names { name: &comprehension.accu_var, kind: Kind::Any, outer: Some(names) })
        {
            Kind::Scalar(scalar) => Kind::Scalar(scalar),
            Kind::Any | Kind::Node(..) | Kind::List | Kind::Metadata => Kind::Any,
        }
    }

    /// The next place of a word that was not visited yet, or the last one.
    fn place(&mut self, word: &str, fallback: usize) -> usize {
        let from = self.places.get(word).copied().unwrap_or(0);
        let whole = |at: &usize| {
            let after = self.source[at + word.len()..].chars().next();
            let is_name = |ch: char| ch.is_ascii_alphanumeric() || ch == '_';
            !word.ends_with(is_name) || !after.is_some_and(is_name)
        };
        let places = self.source.match_indices(word).map(|(at, _)| at).filter(whole);
        let places: Vec<usize> = places.collect();
        let at = places.iter().copied().find(|at| *at >= from).or(places.last().copied()).unwrap_or(fallback);
        self.places.insert(word.to_owned(), at + 1);
        at
    }
}

/// `math` in `math.abs(x)`, `optional` in `optional.of(x)`.
fn is_namespace(expression: &IdedExpr, names: &Names<'_, '_>) -> bool {
    const NAMESPACES: [&str; 10] =
        ["math", "sets", "lists", "strings", "optional", "format", "jsonpatch", "cel", "base64", "ip"];
    let Expr::Ident(name) = &expression.expr else { return false };
    NAMESPACES.contains(&name.as_str()) && names.find(name).is_none()
}

fn literal_kind<'a>(literal: &LiteralValue) -> Kind<'a> {
    Kind::Scalar(match literal {
        LiteralValue::Boolean(_) => "bool",
        LiteralValue::Bytes(_) => "bytes",
        LiteralValue::Double(_) => "double",
        LiteralValue::Int(_) => "int",
        LiteralValue::String(_) => "string",
        LiteralValue::UInt(_) => "uint",
        LiteralValue::Null => return Kind::Any,
    })
}

fn parts(expression: &Expr) -> Vec<&IdedExpr> {
    match expression {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(it) => vec![&it.iter_range, &it.accu_init, &it.loop_cond, &it.loop_step, &it.result],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Struct(value) => value.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Select(select) => vec![&select.operand],
    }
}

fn entry_parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// Functions that are called without a target.
const FUNCTIONS: [&str; 27] = [
    "size",
    "max",
    "min",
    "string",
    "bytes",
    "double",
    "int",
    "uint",
    "duration",
    "timestamp",
    "type",
    "dyn",
    "has",
    "url",
    "isURL",
    "ip",
    "isIP",
    "cidr",
    "isCIDR",
    "quantity",
    "isQuantity",
    "semver",
    "isSemver",
    "matches",
    "find",
    "findAll",
    "bool",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::cel::compile;

    fn fault(rule: &str) -> Option<String> {
        let schema = Schema::parse(&json!({ "type": "object", "properties": {
            "x": { "type": "integer" }, "n-m": { "type": "string" }, "any": { "x-kubernetes-preserve-unknown-fields": true },
            "o": { "type": "object", "properties": { "p": { "type": "string" } } },
            "l": { "type": "array", "items": { "type": "object", "properties": { "q": { "type": "integer" } } } },
            "m": { "type": "object", "additionalProperties": { "type": "integer" } },
        } }));
        compile(&schema, &json!({ "rule": rule }), true).err().map(|fault| fault.detail)
    }

    #[test]
    fn rules_as_people_write_them_pass() {
        for rule in [
            "has(self.o) ? self.o.p.startsWith('a') : true",
            "self.l.all(i, i.q > 1) && self.l.exists_one(i, has(i.q)) && self.l.map(i, i.q).sum() > 3",
            "self.m.all(k, self.m[k] > 1) && 'a' in self.m && self.m.a == 3",
            "size(self.n__dash__m) < 5 && self.n__dash__m.matches('^a')",
            "self.metadata.name == 'x' && self.kind == 'Boat'",
            "duration('1s') < duration('2s') && quantity('1') == quantity('1') && isIP('1.2.3.4')",
            "optional.of(1).hasValue() && math.greatest(1, 2) == 2 && sets.contains([1], [1])",
            "self.l.filter(i, i.q == 1).size() == 1 && self.x + 1 > 2 && -self.x < 1.5",
            "self.x in [1, 2] && !(self.x == 3) && [1, 2].exists(e, e == self.x)",
        ] {
            assert_eq!(fault(rule), None, "{rule}");
        }
    }

    #[test]
    fn fields_and_names_that_are_not_there_are_told_with_their_place() {
        for (rule, told) in [
            ("self.y > 1", "1:5: undefined field 'y'"),
            ("has(self.o.z)", "1:4: undefined field 'z'"),
            ("self.l.all(i, i.z > 1)", "1:16: undefined field 'z'"),
            ("self.any == 1", "1:5: undefined field 'any'"),
            ("foo > 5", "1:1: undeclared reference to 'foo' (in container '')"),
            ("self.x == 'a'", "1:8: found no matching overload for '_==_' applied to '(int, string)'"),
        ] {
            let detail = fault(rule).unwrap_or_default();
            assert!(
                detail.starts_with(&format!("compilation failed: ERROR: <input>:{told}\n | {rule}\n | ."))
                    || detail.ends_with("| ^"),
                "{rule}: {detail}"
            );
            assert!(detail.contains(told), "{rule}: {detail}");
        }
    }
}
