//! JSONPredicate (draft-snell-json-test), compiled once and then run at every session set-up.
//!
//! A predicate with a fault anywhere matches nothing at all. Were only the faulty part false, `not` around a
//! typing error would let everyone in.

mod compile;
mod kinds;
mod pattern;

use std::borrow::Cow;
use std::cmp::Ordering;

use regex::Regex;
use serde_json::{Number, Value};

use self::kinds::Kind;
use super::path::Path;
use super::value::{begins_mapped, compare, plain, same};

pub use self::compile::{PredicateError, PredicateErrorKind};

/// The condition of a rule.
#[derive(Debug, Clone)]
pub struct Predicate(Form);

#[derive(Debug, Clone)]
enum Form {
    Always,
    Never(PredicateError),
    When(Node),
}

/// One operation with its parts.
#[derive(Debug, Clone)]
struct Node {
    /// Where the operand is; for `and`, `or`, `not` the root of the parts, absent when they keep theirs.
    path: Option<Path>,
    test: Test,
    /// Whether case is ignored; texts in `test` are folded already.
    fold: bool,
}

#[derive(Debug, Clone)]
enum Test {
    Defined,
    Undefined,
    Is(Kind),
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Vec<Node>),
    /// Something is there, and fits.
    Fits(Fit),
}

/// What a value that is there must be like.
#[derive(Debug, Clone)]
enum Fit {
    Equal(Value),
    In(Vec<Value>),
    Contains(Value),
    Starts(Value),
    Ends(String),
    Less(Number),
    More(Number),
    Matches(Box<Regex>),
    Contained(Value),
    Intersects(Vec<Value>),
}

impl Predicate {
    /// Compiles a rule's `match`; a faulty one matches nothing and has a [`Self::error`].
    pub fn new(source: Option<&Value>) -> Self {
        Self::compile(source).unwrap_or_else(|error| Self(Form::Never(error)))
    }

    /// Compiles a rule's `match`, or tells what is wrong with it.
    ///
    /// An absent one, any string, and the form in which the API shows those always match.
    pub fn compile(source: Option<&Value>) -> Result<Self, PredicateError> {
        match source {
            Some(source) if !is_always(source) => compile::compile(source).map(|node| Self(Form::When(node))),
            _ => Ok(Self(Form::Always)),
        }
    }

    /// Whether the predicate holds for some metadata.
    pub fn matches(&self, metadata: &Value) -> bool {
        match &self.0 {
            Form::Always => true,
            Form::Never(_) => false,
            Form::When(node) => node.holds(Some(metadata)),
        }
    }

    /// Why the predicate never matches, if it is a faulty one.
    pub fn error(&self) -> Option<&PredicateError> {
        match &self.0 {
            Form::Never(error) => Some(error),
            Form::Always | Form::When(_) => None,
        }
    }
}

impl Predicate {
    /// A path and the text that must be there, if the predicate can hold only then.
    pub(crate) fn required_text(&self) -> Option<(&Path, &str)> {
        if let Form::When(node) = &self.0 { node.required_text() } else { None }
    }
}

/// Absent, a string, or `{"match": "*"}`, as which the API shows both.
fn is_always(source: &Value) -> bool {
    let shown = || source.get("op").is_none() && source.get("match").is_some_and(Value::is_string);
    source.is_null() || source.is_string() || shown()
}

impl Node {
    fn required_text(&self) -> Option<(&Path, &str)> {
        match (&self.path, &self.test) {
            (Some(path), Test::Fits(Fit::Equal(Value::String(text)))) if !self.fold => Some((path, text)),
            (None, Test::And(parts)) => parts.iter().find_map(Self::required_text),
            _ => None,
        }
    }

    fn holds(&self, root: Option<&Value>) -> bool {
        let found = match &self.path {
            Some(path) => root.and_then(|root| path.read(root)),
            None => root,
        };
        match &self.test {
            Test::Defined => found.is_some(),
            Test::Undefined => found.is_none(),
            Test::Is(kind) => kind.has(found),
            Test::And(parts) => parts.iter().all(|part| part.holds(found)),
            Test::Or(parts) => parts.is_empty() || parts.iter().any(|part| part.holds(found)),
            Test::Not(parts) => !parts.iter().any(|part| part.holds(found)),
            Test::Fits(fit) => found.is_some_and(|value| fit.holds(value, self.fold)),
        }
    }
}

impl Fit {
    fn holds(&self, value: &Value, fold: bool) -> bool {
        match self {
            Self::Equal(wanted) => same(value, wanted, fold),
            Self::In(wanted) => wanted.iter().any(|wanted| same(value, wanted, fold)),
            Self::Contains(Value::String(part)) if value.is_string() => {
                text(value, fold).is_some_and(|text| text.contains(&**part) || begins_mapped(&text, part))
            }
            Self::Starts(Value::String(part)) if value.is_string() => {
                text(value, fold).is_some_and(|text| text.starts_with(&**part) || begins_mapped(&text, part))
            }
            Self::Contains(item) => {
                value.as_array().is_some_and(|items| items.iter().any(|held| same(held, item, false)))
            }
            Self::Starts(item) => {
                value.as_array().and_then(|items| items.first()).is_some_and(|held| same(held, item, false))
            }
            Self::Ends(part) => text(value, fold).is_some_and(|text| text.ends_with(&**part) || plain(part) == text),
            Self::Less(limit) => order(value, limit) == Some(Ordering::Less),
            Self::More(limit) => order(value, limit) == Some(Ordering::Greater),
            Self::Matches(regex) => value.as_str().is_some_and(|text| regex.is_match(plain(text))),
            Self::Contained(wanted) => {
                value.as_array().is_some_and(|items| items.iter().any(|item| same(item, wanted, fold)))
            }
            Self::Intersects(wanted) => {
                let is_wanted = |item: &Value| wanted.iter().any(|wanted| same(item, wanted, fold));
                value.as_array().is_some_and(|items| items.iter().any(is_wanted))
            }
        }
    }
}

fn text(value: &Value, fold: bool) -> Option<Cow<'_, str>> {
    let text = plain(value.as_str()?);
    Some(if fold { Cow::Owned(text.to_lowercase()) } else { Cow::Borrowed(text) })
}

fn order(value: &Value, limit: &Number) -> Option<Ordering> {
    let Value::Number(number) = value else { return None };
    compare(number, limit)
}
