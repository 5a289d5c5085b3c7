//! What the `scale` subresource of a custom kind demands of its objects: counts that are counts.

use serde_json::Value;

use crate::kinds::Scale;
use crate::patch::go;
use crate::schema::fault::invalid;
use crate::status::Cause;

/// The faults of an object under the paths of its kind; an update of `status` is held against the status alone.
pub fn scale_faults(scale: &Scale, object: &Value, status_only: bool) -> Vec<Cause> {
    let mut found = Vec::new();
    if !status_only {
        count(&scale.spec_replicas, object, &mut found);
    }
    count(&scale.status_replicas, object, &mut found);
    if let Some(path) = &scale.label_selector {
        match at(path, object) {
            Ok(None | Some(Value::String(_))) => {}
            Ok(Some(other)) => found.push(invalid(path, &"".into(), &misfit(path, other, "string"))),
            Err(why) => found.push(invalid(path, &"".into(), &why)),
        }
    }
    found
}

fn count(path: &str, object: &Value, found: &mut Vec<Cause>) {
    let value = match at(path, object) {
        Ok(None) => return,
        Ok(Some(value)) => value,
        Err(why) => return found.push(invalid(path, &0.into(), &why)),
    };
    match value.as_i64() {
        None => found.push(invalid(path, &0.into(), &misfit(path, value, "int64"))),
        Some(..0) => found.push(invalid(path, value, "should be a non-negative integer")),
        Some(count) if i32::try_from(count).is_err() => {
            found.push(invalid(path, value, &format!("should be less than or equal to {}", i32::MAX)));
        }
        Some(_) => {}
    }
}

/// The value at a path, if there is one; something other than a map on the way is a fault.
fn at<'v>(path: &str, object: &'v Value) -> Result<Option<&'v Value>, String> {
    let mut value = object;
    let mut so_far = String::new();
    for field in path.trim_start_matches('.').split('.') {
        so_far = format!("{so_far}.{field}");
        match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(field) {
                Some(inner) => value = inner,
                None => return Ok(None),
            },
            other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                return Err(misfit(&so_far, other, "map[string]interface{}"));
            }
        }
    }
    Ok(Some(value))
}

fn misfit(path: &str, value: &Value, expected: &str) -> String {
    format!("{path} accessor error: {} is of the type {}, expected {expected}", go::plain(value), go::type_name(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_must_be_counts_as_the_real_server_has_it() {
        let scale = Scale {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: None,
        };
        for (spec, told) in [
            (json!({}), None),
            (json!({ "replicas": 3 }), None),
            (json!({ "replicas": -1 }), Some("-1: should be a non-negative integer")),
            (
                json!({ "replicas": 1.5 }),
                Some("0: .spec.replicas accessor error: 1.5 is of the type float64, expected int64"),
            ),
            (
                json!([]),
                Some(
                    "0: .spec.replicas accessor error: [] is of the type []interface {}, expected map[string]interface{}",
                ),
            ),
        ] {
            let found = scale_faults(&scale, &json!({ "spec": spec }), false);
            let messages: Vec<String> = found.into_iter().map(|cause| cause.message).collect();
            assert_eq!(messages, Vec::from_iter(told.map(|told| format!("Invalid value: {told}"))), "{spec}");
        }
    }
}
