//! Field selectors: `metadata.name=x,spec.nodeName!=y`, on the few fields that a kind offers.

use std::borrow::Cow;

use serde_json::Value;

use super::super::text::quote;
use crate::kinds::Kind;
use crate::status::Failure;

/// A selector that was read and whose fields the kind knows; the empty one selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

/// One condition on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    pub field: String,
    pub equal: bool,
    pub value: String,
}

impl FieldSelector {
    /// Reads a selector; which fields there are is checked by [`Self::check`].
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let mut terms = Vec::new();
        let mut parts = split(text);
        parts.sort_unstable();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, equal, value)) = operator(part) else {
                let message = format!("invalid selector: '{text}'; can't understand '{part}'");
                return Err(Failure::bad_request(message));
            };
            let value = unescape(value).map_err(Failure::bad_request)?;
            terms.push(Term { field: field.to_owned(), equal, value });
        }
        // A term without field and value says nothing.
        terms.retain(|term| !(term.field.is_empty() && term.value.is_empty()));
        Ok(Self(terms))
    }

    /// Refuses fields that a kind does not offer.
    pub fn check(&self, kind: &Kind) -> Result<(), Failure> {
        // Built-in kinds without fields of their own share one rule, even where they have no namespace.
        let general = !kind.custom && kind.selectable_fields.is_empty();
        for Term { field, .. } in &self.0 {
            let known = match field.as_str() {
                "metadata.name" => true,
                "metadata.namespace" => general || kind.namespaced,
                other => kind.selectable_fields.iter().any(|known| known.trim_start_matches('.') == other),
            };
            if known {
                continue;
            }
            return Err(Failure::bad_request(if general {
                format!(
                    "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                    quote(field)
                )
            } else {
                format!("field label not supported: {field}")
            }));
        }
        Ok(())
    }

    /// Narrows a selector to one name, as a watch of one object does.
    pub fn named(self, name: &str) -> Result<Self, Failure> {
        if self.is_empty() {
            let field = "metadata.name".to_owned();
            return Ok(Self(vec![Term { field, equal: true, value: name.to_owned() }]));
        }
        if self.exact("metadata.name") == Some(name) {
            return Ok(self);
        }
        Err(Failure::bad_request("fieldSelector metadata.name doesn't match requested name"))
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The conditions.
    pub fn terms(&self) -> &[Term] {
        &self.0
    }

    /// The value that a field must have, if there is one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|term| term.field == field && term.equal).map(|term| term.value.as_str())
    }

    /// Whether an object is selected. A missing field is an empty text.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| (field_of(object, &term.field) == term.value) == term.equal)
    }

    /// Whether an object is selected, given as the bytes of its JSON.
    pub fn matches_bytes(&self, object: &[u8]) -> bool {
        self.is_empty() || serde_json::from_slice::<Value>(object).is_ok_and(|object| self.matches(&object))
    }
}

/// The text of a field, as selectors compare it.
fn field_of<'o>(object: &'o Value, field: &str) -> Cow<'o, str> {
    let path = match field {
        "name" => "metadata.name",
        "source" => "source.component",
        other => other,
    };
    let found = path.split('.').try_fold(object, |value, name| value.get(name));
    match found {
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(Value::Bool(value)) => Cow::Borrowed(if *value { "true" } else { "false" }),
        Some(Value::Number(number)) => Cow::Owned(number.to_string()),
        // Flags and counts that Go always has a value for.
        None if matches!(field, "spec.hostNetwork" | "spec.unschedulable") => Cow::Borrowed("false"),
        None if field == "status.replicas" => Cow::Borrowed("0"),
        None | Some(Value::Null | Value::Array(_) | Value::Object(_)) => Cow::Borrowed(""),
    }
}

/// Splits at commas that are not escaped.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn operator(term: &str) -> Option<(&str, bool, &str)> {
    for (at, _) in term.char_indices() {
        for (sign, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = term[at..].strip_prefix(sign) {
                return Some((&term[..at], equal, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(format!("invalid field selector: invalid escape sequence: {sequence}"));
                }
            },
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c)));
            }
            c => plain.push(c),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::fixtures::{builtin_kind, planet, widget};
    use super::*;

    fn fault(text: &str, kind: &Kind) -> String {
        FieldSelector::parse(text).and_then(|selector| selector.check(kind)).unwrap_err().message
    }

    #[test]
    fn faults_are_those_of_the_real_server() {
        let (widget, planet) = (widget(), planet());
        let config_map = builtin_kind("", "configmaps", "ConfigMap", true);
        for (text, expected) in [
            ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
            ("metadata.name=a,b", "invalid selector: 'metadata.name=a,b'; can't understand 'b'"),
            (r"metadata.name=a\q", r"invalid field selector: invalid escape sequence: \q"),
            (r"metadata.name=a\", r"invalid field selector: invalid escape sequence: \"),
            ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ] {
            for kind in [&widget, &planet, &config_map] {
                assert_eq!(fault(text, kind), expected);
            }
        }
        assert_eq!(fault("=x", &widget), "field label not supported: ");
        assert_eq!(fault("spec.nope=1", &widget), "field label not supported: spec.nope");
        assert_eq!(fault("metadata.namespace=a", &planet), "field label not supported: metadata.namespace");
        assert_eq!(
            fault("foo=bar", &config_map),
            r#""foo" is not a known field selector: only "metadata.name", "metadata.namespace""#
        );
        let pod = Kind { selectable_fields: vec!["spec.nodeName".to_owned()], ..builtin_kind("", "pods", "Pod", true) };
        assert_eq!(fault("foo=bar", &pod), "field label not supported: foo");
        let crd = builtin_kind("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", false);
        assert_eq!(FieldSelector::parse("metadata.namespace=a").unwrap().check(&crd), Ok(()));
    }

    #[test]
    fn objects_are_selected_by_text() {
        let object = json!({ "metadata": { "name": "w1" }, "spec": { "desk": "a,b", "n": 3, "on": true } });
        for (text, expected) in [
            ("", true),
            ("=", true),
            (",", true),
            ("metadata.name=w1", true),
            ("metadata.name==w1,", true),
            ("metadata.name!=w1", false),
            (r"spec.desk=a\,b", true),
            ("spec.n=3,spec.on=true", true),
            ("spec.missing=", true),
            ("spec.missing!=", false),
            ("metadata.name=w1,metadata.name=w2", false),
            ("spec.unschedulable=false", true),
        ] {
            let selector = FieldSelector::parse(text).unwrap();
            assert_eq!(selector.matches(&object), expected, "{text}");
            assert_eq!(selector.matches_bytes(object.to_string().as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_watch_of_one_object_is_a_selector_on_its_name() {
        let empty = FieldSelector::parse("").unwrap().named("w1").unwrap();
        assert_eq!(empty.exact("metadata.name"), Some("w1"));
        let other = FieldSelector::parse("metadata.name=w2").unwrap().named("w1").unwrap_err();
        assert_eq!(other.message, "fieldSelector metadata.name doesn't match requested name");
    }
}
