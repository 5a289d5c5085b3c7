//! From JSON to a predicate, or to what is wrong with it.

use serde_json::{Map, Number, Value};

use super::kinds::Kind;
use super::{Fit, Node, Test, pattern};
use crate::mesh::path::Path;
use crate::mesh::value::is_falsy;

/// Operations in one predicate, at most.
const MOST_NODES: usize = 1000;
/// Operations inside one another, at most.
const DEEPEST: usize = 32;

/// Why a predicate never matches.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("match{path}: {kind}; the rule never matches")]
pub struct PredicateError {
    /// Where in the predicate, for example `.apply[1]`; empty for the whole.
    pub path: String,
    /// What is wrong there.
    pub kind: PredicateErrorKind,
}

/// What can be wrong with an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PredicateErrorKind {
    /// A number, a list or the like stands where an operation should.
    #[error("a predicate is an object like {{op: test, path: /a, value: 1}}")]
    NotAnObject,
    /// The `op` is absent or no string.
    #[error("`op` is missing")]
    MissingOp,
    /// The `op` is none of the known ones, which are in lower case.
    #[error("op `{0}` is unknown")]
    UnknownOp(String),
    /// The operation needs a `path`.
    #[error("`path` is missing: it is a text like /a/b")]
    MissingPath,
    /// The operation needs a `value`.
    #[error("`value` is missing")]
    MissingValue,
    /// The operation needs another type of `value`.
    #[error("`value` must be {0}")]
    WrongValue(&'static str),
    /// The operation needs a list of parts.
    #[error("`apply` must be a list of predicates")]
    MissingApply,
    /// The `value` of `type` names no type.
    #[error("type `{0}` is unknown")]
    UnknownType(String),
    /// The regular expression is broken, too large, or needs backtracking.
    #[error("regular expression: {0}")]
    BadRegex(String),
    /// The regular expression is longer than 4096 bytes.
    #[error("the regular expression has {0} bytes, 4096 are allowed")]
    LongRegex(usize),
    /// There are more than 1000 operations.
    #[error("more than 1000 operations")]
    TooMany,
    /// Operations stand more than 32 deep.
    #[error("operations more than 32 deep")]
    TooDeep,
}

impl PredicateErrorKind {
    /// The reason as one word, for labels and tests.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::NotAnObject => "NotAnObject",
            Self::MissingOp => "MissingOp",
            Self::UnknownOp(_) => "UnknownOp",
            Self::MissingPath => "MissingPath",
            Self::MissingValue => "MissingValue",
            Self::WrongValue(_) => "WrongValue",
            Self::MissingApply => "MissingApply",
            Self::UnknownType(_) => "UnknownType",
            Self::BadRegex(_) => "BadRegex",
            Self::LongRegex(_) => "LongRegex",
            Self::TooMany => "TooMany",
            Self::TooDeep => "TooDeep",
        }
    }
}

pub(super) fn compile(source: &Value) -> Result<Node, PredicateError> {
    Compiler { at: Vec::new(), left: MOST_NODES }.node(source)
}

/// Knows where it is, and how many more operations it takes.
struct Compiler {
    at: Vec<usize>,
    left: usize,
}

impl Compiler {
    fn node(&mut self, source: &Value) -> Result<Node, PredicateError> {
        self.left = self.left.checked_sub(1).ok_or_else(|| self.error(PredicateErrorKind::TooMany))?;
        if self.at.len() > DEEPEST {
            return Err(self.error(PredicateErrorKind::TooDeep));
        }
        let source = source.as_object().ok_or_else(|| self.error(PredicateErrorKind::NotAnObject))?;
        let op = source.get("op").and_then(Value::as_str).ok_or_else(|| self.error(PredicateErrorKind::MissingOp))?;
        match op {
            "and" | "or" | "not" => self.combined(op, source),
            _ => simple(op, source).map_err(|kind| self.error(kind)),
        }
    }

    /// An operation on others.
    fn combined(&mut self, op: &str, source: &Map<String, Value>) -> Result<Node, PredicateError> {
        let path = match source.get("path") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text).filter(|text| !text.is_empty()).map(|text| Path::predicate(text)),
            Some(_) => return Err(self.error(PredicateErrorKind::MissingPath)),
        };
        let apply = source.get("apply").and_then(Value::as_array);
        let apply = apply.ok_or_else(|| self.error(PredicateErrorKind::MissingApply))?;
        let mut parts = Vec::with_capacity(apply.len().min(MOST_NODES));
        for (index, part) in apply.iter().enumerate() {
            self.at.push(index);
            parts.push(self.node(part)?);
            self.at.pop();
        }
        let test = match op {
            "and" => Test::And(parts),
            "or" => Test::Or(parts),
            _ => Test::Not(parts),
        };
        Ok(Node { path, test, fold: false })
    }

    fn error(&self, kind: PredicateErrorKind) -> PredicateError {
        let path = self.at.iter().fold(String::new(), |path, index| path + &format!(".apply[{index}]"));
        PredicateError { path, kind }
    }
}

/// An operation on the value at a path.
fn simple(op: &str, source: &Map<String, Value>) -> Result<Node, PredicateErrorKind> {
    let fold = source.get("ignore_case").is_some_and(|flag| !is_falsy(flag));
    let value = || source.get("value").ok_or(PredicateErrorKind::MissingValue);
    let fit = match op {
        "defined" => return at_path(source, Test::Defined, fold),
        "undefined" => return at_path(source, Test::Undefined, fold),
        "type" => return at_path(source, Test::Is(kind(value()?)?), fold),
        "test" => Fit::Equal(value()?.clone()),
        "in" => Fit::In(list(value()?)?),
        "contains" => Fit::Contains(part(value()?, fold)),
        "starts" => Fit::Starts(part(value()?, fold)),
        "ends" => Fit::Ends(folded(value()?.as_str().ok_or(PredicateErrorKind::WrongValue("a text"))?, fold)),
        "less" => Fit::Less(number(value()?)?),
        "more" => Fit::More(number(value()?)?),
        "matches" => {
            let text = value()?.as_str().ok_or(PredicateErrorKind::WrongValue("a regular expression"))?;
            Fit::Matches(Box::new(pattern::compile(text, fold)?))
        }
        "contained" => Fit::Contained(value()?.clone()),
        "intersects" => Fit::Intersects(list(value()?)?),
        _ => return Err(PredicateErrorKind::UnknownOp(op.to_owned())),
    };
    at_path(source, Test::Fits(fit), fold)
}

fn at_path(source: &Map<String, Value>, test: Test, fold: bool) -> Result<Node, PredicateErrorKind> {
    let path = source.get("path").and_then(Value::as_str).filter(|text| !text.is_empty());
    let path = Path::predicate(path.ok_or(PredicateErrorKind::MissingPath)?);
    Ok(Node { path: Some(path), test, fold })
}

fn list(value: &Value) -> Result<Vec<Value>, PredicateErrorKind> {
    value.as_array().cloned().ok_or(PredicateErrorKind::WrongValue("a list"))
}

fn number(value: &Value) -> Result<Number, PredicateErrorKind> {
    if let Value::Number(number) = value { Ok(number.clone()) } else { Err(PredicateErrorKind::WrongValue("a number")) }
}

fn kind(value: &Value) -> Result<Kind, PredicateErrorKind> {
    let name = value.as_str().ok_or(PredicateErrorKind::WrongValue("the name of a type"))?;
    Kind::parse(name).ok_or_else(|| PredicateErrorKind::UnknownType(name.to_owned()))
}

fn part(value: &Value, fold: bool) -> Value {
    value.as_str().map_or_else(|| value.clone(), |text| folded(text, fold).into())
}

fn folded(text: &str, fold: bool) -> String {
    if fold { text.to_lowercase() } else { text.to_owned() }
}
