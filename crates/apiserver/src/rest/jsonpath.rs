//! The part of kubectl's JSONPath that printer columns and scale paths use.
//!
//! `.a.b`, `['a.b']`, `[0]`, `[-1]`, `[*]`, `.*`, `..a` and `[?(@.type=="Ready")]`; `\.` is a dot in a name.

use serde_json::Value;

/// A path that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    Below(String),
    Where { path: Vec<Step>, compare: Option<(Compare, Value)> },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Compare {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Reads a path; none for what is outside of the part known here.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('$').unwrap_or(text);
        steps(text).map(Self)
    }

    /// All that the path leads to.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        find(&self.0, value)
    }

    /// The first that the path leads to.
    pub fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.find(value).into_iter().next()
    }
}

fn find<'v>(steps: &[Step], value: &'v Value) -> Vec<&'v Value> {
    let mut found = vec![value];
    for step in steps {
        found = found.into_iter().flat_map(|value| step.apply(value)).collect();
    }
    found
}

impl Step {
    fn apply<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                let index = if *index < 0 { index.saturating_add(length) } else { *index };
                usize::try_from(index).ok().and_then(|index| list.get(index)).into_iter().collect()
            }
            Self::All => children(value).collect(),
            Self::Below(name) => {
                let mut found = Vec::new();
                let mut open = vec![value];
                while let Some(value) = open.pop() {
                    found.extend(value.get(name));
                    open.extend(children(value));
                }
                found
            }
            Self::Where { path, compare } => {
                let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
                list.iter().filter(|item| holds(path, compare.as_ref(), item)).collect()
            }
        }
    }
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(list) => Box::new(list.iter()),
        Value::Object(map) => Box::new(map.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::empty()),
    }
}

fn holds(path: &[Step], compare: Option<&(Compare, Value)>, item: &Value) -> bool {
    let Some(&left) = find(path, item).first() else { return false };
    let Some((compare, right)) = compare else { return true };
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
        (left, right) => (left == right).then_some(std::cmp::Ordering::Equal),
    };
    match compare {
        Compare::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
        Compare::Unequal => !order.is_some_and(std::cmp::Ordering::is_eq),
        Compare::Less => order.is_some_and(std::cmp::Ordering::is_lt),
        Compare::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
        Compare::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
        Compare::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
    }
}

fn steps(text: &str) -> Option<Vec<Step>> {
    let mut rest = text;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, behind) = if let Some(deep) = rest.strip_prefix("..") {
            let (name, behind) = name(deep)?;
            (Step::Below(name), behind)
        } else if let Some(field) = rest.strip_prefix('.') {
            if field.is_empty() && steps.is_empty() {
                return Some(steps);
            }
            match field.strip_prefix('*') {
                Some(behind) => (Step::All, behind),
                None if field.starts_with('[') => {
                    rest = field;
                    continue;
                }
                None => {
                    let (name, behind) = name(field)?;
                    (Step::Field(name), behind)
                }
            }
        } else {
            let inner = rest.strip_prefix('[')?;
            let end = closing(inner)?;
            (bracket(inner[..end].trim())?, &inner[end + 1..])
        };
        steps.push(step);
        rest = behind;
    }
    Some(steps)
}

/// Reads a name up to the next dot or bracket.
fn name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            c if escaped => {
                name.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' | '[' | ' ' | '=' | '!' | '<' | '>' | ')' => {
                return (!name.is_empty()).then(|| (name, &text[at..]));
            }
            c => name.push(c),
        }
    }
    (!name.is_empty()).then_some((name, ""))
}

/// The place of the bracket that closes the one before `text`.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quoted) = (0, None);
    for (at, c) in text.char_indices() {
        match (quoted, c) {
            (Some(quote), c) if c == quote => quoted = None,
            (None, '\'' | '"') => quoted = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (Some(_) | None, _) => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(name) = unquote(text) {
        return Some(Step::Field(name));
    }
    if let Some(condition) = text.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
        return filter(condition.trim());
    }
    text.parse().ok().map(Step::Index)
}

fn filter(condition: &str) -> Option<Step> {
    let signs = [
        ("==", Compare::Equal),
        ("!=", Compare::Unequal),
        ("<=", Compare::LessOrEqual),
        (">=", Compare::GreaterOrEqual),
        ("<", Compare::Less),
        (">", Compare::Greater),
    ];
    let condition = condition.strip_prefix('@')?;
    let found =
        signs.into_iter().filter_map(|(sign, compare)| Some((condition.find(sign)?, sign, compare))).min_by_key(
            // Where two signs start at the same place, the longer one is meant.
            |(at, sign, _)| (*at, std::cmp::Reverse(sign.len())),
        );
    let Some((at, sign, compare)) = found else {
        return Some(Step::Where { path: steps(condition.trim())?, compare: None });
    };
    let right = condition[at + sign.len()..].trim();
    let right = match unquote(right) {
        Some(text) => Value::String(text),
        None => serde_json::from_str(right).ok()?,
    };
    Some(Step::Where { path: steps(condition[..at].trim())?, compare: Some((compare, right)) })
}

fn unquote(text: &str) -> Option<String> {
    let inner = ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))?;
    let mut plain = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' { chars.next()? } else { c });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_where_kubectl_goes() {
        let object = json!({
            "metadata": { "labels": { "a.b/c": "dotted" } },
            "spec": { "tags": ["a", "b"], "ports": [{ "n": 1, "name": "x" }, { "n": 2, "name": "y" }] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Old" }] },
        });
        for (path, expected) in [
            (".spec.tags[0]", json!(["a"])),
            (".spec.tags[-1]", json!(["b"])),
            (".spec.tags[5]", json!([])),
            (".spec.tags[*]", json!(["a", "b"])),
            (".spec.ports[*].n", json!([1, 2])),
            (".spec.ports.*.n", json!([1, 2])),
            (r".metadata.labels['a\.b/c']", json!(["dotted"])),
            (".metadata.labels['a.b/c']", json!(["dotted"])),
            (r".metadata.labels.a\.b/c", json!(["dotted"])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (".status.conditions[?(@.type == 'Ready')].status", json!(["True"])),
            (".status.conditions[?(@.type!='Ready')].type", json!(["Old"])),
            (".spec.ports[?(@.n>=2)].name", json!(["y"])),
            (".status.conditions[?(@.status)].type", json!(["Ready"])),
            ("..name", json!(["y", "x"])),
            (".spec.nope.deeper", json!([])),
            ("$.spec.tags[0]", json!(["a"])),
        ] {
            let path = JsonPath::parse(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(json!(path.find(&object)), expected, "{path:?}");
        }
        assert_eq!(JsonPath::parse(".").unwrap().first(&object), Some(&object));
    }

    #[test]
    fn what_is_not_known_is_not_a_path() {
        for path in ["spec", ".a[", ".a[x]", ".a[?(x)]", ".a[?(@.b==c)]", ".a.", "..", ".a['b]"] {
            assert_eq!(JsonPath::parse(path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in r#"[a\.\[\]'"?(@)=*<1\\-]{0,16}"#) {
            if let Some(path) = JsonPath::parse(&text) {
                path.find(&json!({ "a": [{ "a": 1 }] }));
            }
        }
    }
}
