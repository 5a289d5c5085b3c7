//! The steps of field paths: how they are written, and their order.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value};

use super::super::go;

/// One step of a path.
#[derive(Debug, Clone)]
pub enum Element {
    /// `f:name`: a member of a map.
    Field(String),
    /// `k:{"name":"c"}`: the list item with these keys, sorted by name.
    Key(Vec<(String, Value)>),
    /// `v:"x"`: the item of a set.
    Value(Value),
    /// `i:0`: the item at a place.
    Index(i64),
}

impl Element {
    pub(super) fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let keys: Map<String, Value> = keys.iter().cloned().collect();
                format!("k:{}", go::json(&Value::Object(keys)))
            }
            Self::Value(value) => format!("v:{}", go::json(value)),
            Self::Index(at) => format!("i:{at}"),
        }
    }

    pub(super) fn decode(text: &str) -> Result<Option<Self>, String> {
        let parse = |rest| serde_json::from_str::<Value>(rest).map_err(|error| error.to_string());
        match text.split_at_checked(2) {
            Some(("f:", name)) => Ok(Some(Self::Field(name.to_owned()))),
            Some(("k:", keys)) => {
                let Value::Object(keys) = parse(keys)? else { return Err(format!("no keys: {text}")) };
                Ok(Some(Self::Key(keys.into_iter().collect())))
            }
            Some(("v:", value)) => Ok(Some(Self::Value(parse(value)?))),
            Some(("i:", at)) => at.parse().map(|at| Some(Self::Index(at))).map_err(|_| format!("no index: {text}")),
            Some((kind, _)) if kind.ends_with(':') => Ok(None),
            Some(_) => Err(format!("missing colon: {text}")),
            None => Err("key must be 2 characters long:".to_owned()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

/// `.name`, `[name="c"]`, `[="x"]`, `[0]`: as conflicts show it.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Value(a), Self::Value(b)) => order(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                let pairs = a.iter().zip(b).map(|((m, x), (n, y))| m.cmp(n).then_with(|| order(x, y)));
                pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

/// An order of all values: numbers by size, then texts, truths, lists, maps, null.
pub(super) fn order(a: &Value, b: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => x.cmp(&y),
            _ => x.as_f64().unwrap_or_default().total_cmp(&y.as_f64().unwrap_or_default()),
        },
        (Value::String(x), Value::String(y)) => x.cmp(y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Array(x), Value::Array(y)) => {
            x.iter().zip(y).map(|(x, y)| order(x, y)).fold(Ordering::Equal, Ordering::then).then(x.len().cmp(&y.len()))
        }
        (Value::Object(x), Value::Object(y)) => {
            let pairs = x.iter().zip(y).map(|((m, x), (n, y))| m.cmp(n).then_with(|| order(x, y)));
            pairs.fold(Ordering::Equal, Ordering::then).then(x.len().cmp(&y.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Whether two values are the same; `1` and `1.0` are.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    a == b || order(a, b) == Ordering::Equal
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_ordered_by_size_and_come_first() {
        let mut list = [json!(null), json!("a"), json!(443), json!(80), json!(true), json!(80.5)];
        list.sort_by(order);
        assert_eq!(list, [json!(80), json!(80.5), json!(443), json!("a"), json!(true), json!(null)]);
        assert!(same(&json!({ "a": [1] }), &json!({ "a": [1.0] })));
    }
}
