//! The part of JSONPath that printer columns use: `.a.b`, `['a.b']`, `[0]`, `[*]` and `[?(@.type=="Ready")]`; `\.` is
//! a dot in a name.

use serde_json::Value;

/// A path that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath(Vec<Segment>);

#[derive(Debug, Clone, PartialEq)]
enum Segment {
    Field(String),
    Index(usize),
    All,
    /// The items at whose path there is this value.
    Where(JsonPath, Value),
}

impl JsonPath {
    /// Reads a path; none for what is outside of the part known here.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        let mut segments = Vec::new();
        while !rest.is_empty() {
            let (segment, behind) = match rest.strip_prefix('[') {
                Some(inner) => bracket(inner)?,
                None => field(rest.strip_prefix('.')?)?,
            };
            segments.push(segment);
            rest = behind;
        }
        Some(Self(segments))
    }

    /// The first that the path leads to.
    pub fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        first(&self.0, value)
    }
}

fn first<'v>(segments: &[Segment], value: &'v Value) -> Option<&'v Value> {
    let Some((segment, rest)) = segments.split_first() else { return Some(value) };
    let items = || value.as_array().into_iter().flatten();
    match segment {
        Segment::Field(name) => first(rest, value.get(name)?),
        Segment::Index(index) => first(rest, value.get(index)?),
        Segment::All => items().find_map(|item| first(rest, item)),
        Segment::Where(path, wanted) => {
            items().filter(|item| path.first(item) == Some(wanted)).find_map(|item| first(rest, item))
        }
    }
}

/// Reads a name up to the next dot or bracket that is not escaped.
fn field(text: &str) -> Option<(Segment, &str)> {
    let mut escaped = false;
    let end = text.find(|letter| {
        let ends = !escaped && matches!(letter, '.' | '[' | ' ' | '=');
        escaped = !escaped && letter == '\\';
        ends
    });
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    (!name.is_empty()).then(|| (Segment::Field(name.replace('\\', "")), rest))
}

/// Reads what stands behind `[`, with its closing bracket.
fn bracket(text: &str) -> Option<(Segment, &str)> {
    if let Some(condition) = text.strip_prefix("?(@") {
        let (condition, rest) = condition.split_once(")]")?;
        let (path, value) = condition.split_once("==")?;
        let value = value.trim();
        let value = unquoted(value).map_or_else(|| serde_json::from_str(value).ok(), |text| Some(text.into()))?;
        return Some((Segment::Where(JsonPath::parse(path.trim())?, value), rest));
    }
    let (inner, rest) = text.split_once(']')?;
    let segment = match unquoted(inner) {
        Some(name) => Segment::Field(name.replace('\\', "")),
        None if inner == "*" => Segment::All,
        None => Segment::Index(inner.parse().ok()?),
    };
    Some((segment, rest))
}

fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
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
            "status": { "conditions": [{ "type": "Old" }, { "type": "Ready", "status": "True" }] },
        });
        for (path, expected) in [
            (".spec.tags[0]", json!("a")),
            (".spec.tags[5]", json!(null)),
            (".spec.tags[*]", json!("a")),
            (".spec.ports[*].n", json!(1)),
            (r".metadata.labels['a\.b/c']", json!("dotted")),
            (".metadata.labels['a.b/c']", json!("dotted")),
            (r".metadata.labels.a\.b/c", json!("dotted")),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!("True")),
            (".status.conditions[?(@.type == 'Ready')].status", json!("True")),
            (".spec.ports[?(@.n==2)].name", json!("y")),
            (".spec.nope.deeper", json!(null)),
            ("$.spec.tags[1]", json!("b")),
        ] {
            let read = JsonPath::parse(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(read.first(&object).cloned().unwrap_or_default(), expected, "{path}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_a_path() {
        for path in ["spec", ".a[", ".a[x]", ".a[?(x)]", ".a[?(@.b==c)]", ".a.", "..", ".a['b]", ".a[-1]"] {
            assert_eq!(JsonPath::parse(path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in r#"[a\.\[\]'"?(@)=*<1\\-]{0,16}"#) {
            if let Some(path) = JsonPath::parse(&text) {
                path.first(&json!({ "a": [{ "a": 1 }] }));
            }
        }
    }
}
