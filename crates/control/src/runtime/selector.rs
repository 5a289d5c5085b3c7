//! Label selectors of the API as the planners have them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ObjectMeta;
use portolan_core::select::{Expression, Labels, Operator, Selector};

/// The planner's selector for one of the API.
pub fn selector(selector: &LabelSelector) -> Result<Selector, String> {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
    let mut expressions = Vec::new();
    for expression in selector.match_expressions.iter().flatten() {
        let values = || expression.values.iter().flatten().map(|value| value.as_str().into()).collect();
        let operator = match expression.operator.as_str() {
            "In" => Operator::In(values()),
            "NotIn" => Operator::NotIn(values()),
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => return Err(format!("operator `{other}` is none of In, NotIn, Exists, DoesNotExist")),
        };
        expressions.push(Expression { key: expression.key.as_str().into(), operator });
    }
    Ok(Selector { labels: labels.collect(), expressions })
}

/// The planner's labels.
pub fn labels(metadata: &ObjectMeta) -> Labels {
    metadata.labels.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// A selector as kubectl takes it: `key`, `!key`, `key=value`, `key!=value`, `key in (a,b)` and `key notin (a,b)`,
/// separated by commas.
pub fn parse(text: &str) -> Result<Selector, String> {
    let mut expressions = Vec::new();
    for term in terms(text) {
        let expression = expression(term.trim());
        expressions.push(expression.ok_or_else(|| format!("`{}` is not a term of a label selector", term.trim()))?);
    }
    Ok(Selector { expressions, ..Selector::default() })
}

/// Splits at commas that are not in parentheses.
fn terms(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let separator = move |letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    };
    text.split(separator).collect()
}

fn expression(term: &str) -> Option<Expression> {
    let set = |values: &str| {
        let values = values.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(values.split(',').map(|value| value.trim().into()).collect())
    };
    let one = |value: &str| std::iter::once(value.trim().into()).collect();
    let (key, operator) = if let Some(key) = term.strip_prefix('!') {
        (key, Operator::DoesNotExist)
    } else if let Some((key, values)) = term.split_once(" notin ") {
        (key, Operator::NotIn(set(values)?))
    } else if let Some((key, values)) = term.split_once(" in ") {
        (key, Operator::In(set(values)?))
    } else if let Some((key, value)) = term.split_once("!=") {
        (key, Operator::NotIn(one(value)))
    } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (key, Operator::In(one(value)))
    } else {
        (term, Operator::Exists)
    };
    let key = key.trim();
    let is_key = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    (!key.is_empty() && key.chars().all(is_key)).then(|| Expression { key: key.into(), operator })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_read_as_kubectl_reads_them() {
        let labels = |pairs: &[(&str, &str)]| pairs.iter().copied().collect::<Labels>();
        let worker = labels(&[("node-role.kubernetes.io/worker", ""), ("zone", "a")]);
        for (text, holds) in [
            ("node-role.kubernetes.io/worker", true),
            ("node-role.kubernetes.io/worker=", true),
            ("!node-role.kubernetes.io/infra", true),
            ("zone=a", true),
            ("zone==b", false),
            ("zone != b,node-role.kubernetes.io/worker", true),
            ("zone in (a, b),!gpu", true),
            ("zone notin (a,b)", false),
        ] {
            assert_eq!(parse(text).unwrap().matches(&worker), holds, "{text}");
        }
        for text in ["", "zone=a,", "zone in a", "two words", "!"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
