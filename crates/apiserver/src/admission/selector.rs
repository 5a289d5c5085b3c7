//! Label selectors as objects carry them: `matchLabels` and `matchExpressions`.

use std::collections::BTreeSet;

use serde_json::Value;

/// A compiled label selector; without requirements it selects everything.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone)]
struct Requirement {
    key: String,
    operator: Operator,
    values: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Compiles a LabelSelector; absent selects everything.
    pub(crate) fn new(selector: Option<&Value>) -> Result<Self, String> {
        let mut requirements = Vec::new();
        let Some(selector) = selector else { return Ok(Self::default()) };
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let values = BTreeSet::from([value.as_str().unwrap_or_default().to_owned()]);
            requirements.push(Requirement { key: key.clone(), operator: Operator::In, values });
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let operator = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            };
            let values = expression["values"].as_array().into_iter().flatten();
            requirements.push(Requirement {
                key: expression["key"].as_str().unwrap_or_default().to_owned(),
                operator,
                values: values.filter_map(Value::as_str).map(str::to_owned).collect(),
            });
        }
        Ok(Self { requirements })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether labels (an object of strings, or null) are selected.
    pub(crate) fn matches(&self, labels: &Value) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key).and_then(Value::as_str);
            match requirement.operator {
                Operator::In => value.is_some_and(|value| requirement.values.contains(value)),
                Operator::NotIn => value.is_none_or(|value| !requirement.values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_selects_as_kubernetes_does() {
        for (selector, labels, selected) in [
            (json!({}), json!(null), true),
            (json!({ "matchLabels": { "a": "b" } }), json!({ "a": "b", "c": "d" }), true),
            (json!({ "matchLabels": { "a": "b" } }), json!(null), false),
            (
                json!({ "matchExpressions": [{ "key": "a", "operator": "In", "values": ["x", "y"] }] }),
                json!({ "a": "y" }),
                true,
            ),
            (json!({ "matchExpressions": [{ "key": "a", "operator": "NotIn", "values": ["x"] }] }), json!({}), true),
            (
                json!({ "matchExpressions": [{ "key": "a", "operator": "NotIn", "values": ["x"] }] }),
                json!({ "a": "x" }),
                false,
            ),
            (json!({ "matchExpressions": [{ "key": "a", "operator": "Exists" }] }), json!({ "a": "" }), true),
            (json!({ "matchExpressions": [{ "key": "a", "operator": "DoesNotExist" }] }), json!({ "a": "" }), false),
        ] {
            assert_eq!(Selector::new(Some(&selector)).unwrap().matches(&labels), selected, "{selector} on {labels}");
        }
        assert!(Selector::new(Some(&json!({ "matchExpressions": [{ "key": "a", "operator": "Like" }] }))).is_err());
    }
}
