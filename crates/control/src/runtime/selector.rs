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
