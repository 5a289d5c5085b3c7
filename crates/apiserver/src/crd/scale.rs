//! What the `scale` subresource of a custom kind demands of its objects: counts that are counts.

use serde_json::Value;

use crate::kinds::Scale;
use crate::schema::fault::invalid;
use crate::status::Cause;

/// The faults of an object under the paths of its kind; an update of `status` is held against the status alone.
pub fn scale_errors(scale: &Scale, object: &Value, status_only: bool) -> Vec<Cause> {
    let counts = [&scale.spec_replicas, &scale.status_replicas];
    let mut found = Vec::new();
    for path in counts.into_iter().skip(usize::from(status_only)) {
        let is_count = |value: &Value| value.as_i64().is_some_and(|count| (0..=i64::from(i32::MAX)).contains(&count));
        if let Some(value) = at(path, object).filter(|value| !is_count(value)) {
            found.push(invalid(path, value, "should be a non-negative integer of 32 bits"));
        }
    }
    if let Some(path) = &scale.label_selector
        && let Some(value) = at(path, object).filter(|value| !value.is_string())
    {
        found.push(invalid(path, value, "should be a string"));
    }
    found
}

/// What stands at a path; something on the way that is no map stands for all below it.
fn at<'v>(path: &str, object: &'v Value) -> Option<&'v Value> {
    let mut value = object;
    for field in path.trim_start_matches('.').split('.') {
        let Some(fields) = value.as_object() else { break };
        value = fields.get(field)?;
    }
    Some(value).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_must_be_counts() {
        let scale = Scale {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: None,
        };
        for (replicas, faults) in
            [(json!(3), 0), (json!(-1), 1), (json!(1.5), 1), (json!("x"), 1), (json!(1_u64 << 40), 1)]
        {
            let object = json!({ "spec": { "replicas": replicas } });
            assert_eq!(scale_errors(&scale, &object, false).len(), faults, "{object}");
            assert!(scale_errors(&scale, &object, true).is_empty(), "{object}");
        }
        assert!(scale_errors(&scale, &json!({}), false).is_empty());
    }
}
