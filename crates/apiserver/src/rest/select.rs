//! Label selectors such as `a=b,c in (d,e),!f`, and field selectors such as
//! `metadata.name=x` on the few fields that a kind supports.

use std::borrow::Cow;

use serde_json::Value;

use crate::kinds::Kind;
use crate::names::{is_qualified, is_word};
use crate::status::Failure;

/// A label selector that was read; the empty one selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    /// What the label may be; anything if none.
    values: Option<Vec<String>>,
    /// Whether the condition is negated; a missing label then matches.
    negated: bool,
}

/// A field selector that was read; the empty one selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

/// One condition on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    field: String,
    equal: bool,
    value: String,
}

impl LabelSelector {
    /// Reads a selector.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let read = |part| {
            requirement(part).ok_or_else(|| Failure::bad_request(format!("{part:?} is no condition on a label")))
        };
        split(text).into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object is selected.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|Requirement { key, values, negated }| {
            let fits = |label: &str| values.as_ref().is_none_or(|values| values.iter().any(|value| value == label));
            labels.get(key).and_then(Value::as_str).is_some_and(fits) != *negated
        })
    }
}

impl FieldSelector {
    /// Reads a selector; which fields there are is checked by [`Self::check`].
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let parts = text.split(',').filter(|part| !part.is_empty());
        let read = |part: &str| {
            let unequal = part.split_once("!=");
            let (field, value) = unequal.or_else(|| part.split_once("==")).or_else(|| part.split_once('='))?;
            let equal = unequal.is_none();
            (!value.contains('=')).then(|| Term { field: field.to_owned(), equal, value: value.to_owned() })
        };
        let refused = |part| Failure::bad_request(format!("{part:?} is no condition on a field"));
        parts.map(|part| read(part).ok_or_else(|| refused(part))).collect::<Result<_, _>>().map(Self)
    }

    /// Refuses fields that a kind does not support.
    pub fn check(&self, kind: &Kind) -> Result<(), Failure> {
        let known = |field: &str| match field {
            "metadata.name" | "metadata.namespace" => true,
            other => kind.selectable_fields.iter().any(|known| known.trim_start_matches('.') == other),
        };
        match self.0.iter().find(|term| !known(&term.field)) {
            None => Ok(()),
            Some(term) => Err(Failure::bad_request(format!("field label not supported: {}", term.field))),
        }
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object is selected. A missing field is an empty text.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| (field_of(object, &term.field) == term.value) == term.equal)
    }
}

/// Splits at commas that are not in parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut inside = false;
    let outer = text.split(|letter| {
        inside = letter == '(' || (inside && letter != ')');
        letter == ',' && !inside
    });
    outer.collect()
}

fn requirement(text: &str) -> Option<Requirement> {
    let (key, values, negated) = if let Some((key, set)) = text.split_once('(') {
        let (key, word) = key.trim().rsplit_once(' ')?;
        let values = set.trim().strip_suffix(')')?.split(',').collect();
        matches!(word, "in" | "notin").then_some((key, Some(values), word == "notin"))?
    } else if let Some((key, value)) = text.split_once("!=") {
        (key, Some(vec![value]), true)
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (key, Some(vec![value]), false)
    } else {
        let key = text.trim().strip_prefix('!');
        (key.unwrap_or(text), None, key.is_some())
    };
    let trimmed = |values: Vec<&str>| values.into_iter().map(|value| value.trim().to_owned()).collect::<Vec<_>>();
    let (key, values) = (key.trim(), values.map(trimmed));
    let valid = is_qualified(key) && values.iter().flatten().all(|value| value.is_empty() || is_word(value));
    valid.then(|| Requirement { key: key.to_owned(), values, negated })
}

/// The text of a field, as selectors compare it.
fn field_of<'o>(object: &'o Value, field: &str) -> Cow<'o, str> {
    let path = match field {
        "source" => "source.component",
        "status.successful" => "status.succeeded",
        field => field,
    };
    match path.split('.').try_fold(object, |value, name| value.get(name)) {
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(Value::Bool(value)) => Cow::Borrowed(if *value { "true" } else { "false" }),
        Some(Value::Number(number)) => Cow::Owned(number.to_string()),
        // Flags and counts always have a value.
        None if matches!(field, "spec.hostNetwork" | "spec.unschedulable") => Cow::Borrowed("false"),
        None if field == "status.successful" => Cow::Borrowed("0"),
        None | Some(Value::Null | Value::Array(_) | Value::Object(_)) => Cow::Borrowed(""),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixtures::{builtin_kind, widget};
    use super::*;

    #[test]
    fn labels_select_objects() {
        let object = json!({ "metadata": { "labels": { "tier": "front", "a.b/c": "", "env": "prod" } }, "spec": {} });
        for (text, expected) in [
            ("", true),
            ("tier", true),
            ("tier=front", true),
            ("tier == front , env!=test", true),
            ("tier in (back, front)", true),
            ("tier notin (back,front)", false),
            ("missing notin (x)", true),
            ("missing in (x)", false),
            ("a.b/c=", true),
            ("a.b/c in ()", true),
            ("!missing,tier", true),
            ("! tier", false),
            ("missing!=x", true),
        ] {
            let selector = LabelSelector::parse(text).unwrap();
            assert_eq!(selector.matches(&object), expected, "{text}");
        }
        let long = "a".repeat(64);
        for bad in ["a=b=c", "a in b", "a in (b", "a on (b)", "-a-", "a=b!", "a,,b", "a,", "/a", "A.b/", "a b", &long] {
            assert_eq!(LabelSelector::parse(bad).unwrap_err().code, 400, "{bad}");
        }
    }

    #[test]
    fn fields_select_objects() {
        let object = json!({ "metadata": { "name": "w1" }, "spec": { "n": 3, "on": true } });
        for (text, expected) in [
            ("", true),
            (",", true),
            ("metadata.name=w1", true),
            ("metadata.name==w1,", true),
            ("metadata.name!=w1", false),
            ("spec.n=3,spec.on=true", true),
            ("spec.missing=", true),
            ("spec.missing!=", false),
            ("metadata.name=w1,metadata.name=w2", false),
            ("spec.unschedulable=false", true),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(&object), expected, "{text}");
        }
        for bad in ["metadata.name", "metadata.name=a=b"] {
            assert_eq!(FieldSelector::parse(bad).unwrap_err().code, 400, "{bad}");
        }
    }

    #[test]
    fn only_the_fields_of_a_kind_can_be_asked_for() {
        let check = |text: &str, kind: &Kind| FieldSelector::parse(text).unwrap().check(kind).is_ok();
        let map = builtin_kind("", "configmaps", "ConfigMap", true);
        assert!(check("spec.desk=a,metadata.namespace=b", &widget()) && check("metadata.name=a", &map));
        assert!(!check("spec.nope=1", &widget()) && !check("data.x=y", &map));
    }
}
