//! A `HorizontalPodAutoscaler` has two versions and one storage: v2 holds it, v1 shows it with the processor utilization as
//! its only metric. What v1 has no field for, it shows as annotations, so that a write through v1 loses nothing.

use serde_json::{Map, Value, json};

use super::Kind;
use crate::json::{fill, list, put, remove, text};

/// The annotations of v1, and what of v2 they hold.
const ANNOTATIONS: [(&str, &str); 4] = [
    ("autoscaling.alpha.kubernetes.io/metrics", "/spec/metrics"),
    ("autoscaling.alpha.kubernetes.io/behavior", "/spec/behavior"),
    ("autoscaling.alpha.kubernetes.io/current-metrics", "/status/currentMetrics"),
    ("autoscaling.alpha.kubernetes.io/conditions", "/status/conditions"),
];

/// Whether `kind` is the autoscaler of v1, whose objects are stored as those of v2.
pub fn is_view(kind: &Kind) -> bool {
    kind.kind == "HorizontalPodAutoscaler" && kind.group == "autoscaling" && kind.version == "v1"
}

/// An autoscaler of v1 as v2 stores it.
pub fn to_stored(autoscaler: &mut Value) {
    put(autoscaler, "apiVersion", "autoscaling/v2");
    for (annotation, pointer) in ANNOTATIONS {
        let held = autoscaler.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
        let held = held.and_then(|annotations| annotations.remove(annotation));
        let held = held.and_then(|text| serde_json::from_str(text.as_str()?).ok());
        if let (Some(value), Some((parent, field))) = (held, parent_of(autoscaler, pointer)) {
            put(parent, field, Value::clone(&value));
        }
    }
    if autoscaler.pointer("/metadata/annotations").and_then(Value::as_object).is_some_and(Map::is_empty) {
        remove(&mut autoscaler["metadata"], "annotations");
    }
    for (pointer, shown, part) in [
        ("/spec/metrics", "targetCPUUtilizationPercentage", "target"),
        ("/status/currentMetrics", "currentCPUUtilizationPercentage", "current"),
    ] {
        let others = list(autoscaler, pointer).to_vec();
        let Some((parent, field)) = parent_of(autoscaler, pointer) else { continue };
        let utilization = parent.as_object_mut().and_then(|parent| parent.remove(shown)).filter(Value::is_number);
        let processor = utilization.map(|utilization| {
            let mut value = json!({ "averageUtilization": utilization });
            if part == "target" {
                put(&mut value, "type", "Utilization");
            }
            json!({ "type": "Resource", "resource": { "name": "cpu", part: value } })
        });
        let metrics: Vec<Value> = processor.into_iter().chain(others).collect();
        put(parent, field, if metrics.is_empty() { Value::Null } else { metrics.into() });
    }
    default(&mut autoscaler["spec"]);
    // A count that v1 always writes and v2 leaves out when it is zero.
    if autoscaler.pointer("/status/currentReplicas") == Some(&json!(0)) {
        remove(&mut autoscaler["status"], "currentReplicas");
    }
}

/// What v1 fills in unless the metrics stand in an annotation: its only metric.
pub(super) fn default_view(autoscaler: &mut Value) {
    let (metrics, _) = ANNOTATIONS[0];
    let has_metrics = autoscaler.pointer("/metadata/annotations").is_some_and(|all| all.get(metrics).is_some());
    if let Some(spec) = autoscaler.get_mut("spec").filter(|_| !has_metrics) {
        fill(spec, "targetCPUUtilizationPercentage", 80);
    }
}

/// Without a metric, the processor is to be used to 80 percent.
pub(super) fn default(spec: &mut Value) {
    if list(spec, "/metrics").is_empty() {
        let target = json!({ "type": "Utilization", "averageUtilization": 80 });
        put(spec, "metrics", json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]));
    }
}

/// A stored autoscaler as v1 shows it.
pub fn to_view(autoscaler: &mut Value) {
    put(autoscaler, "apiVersion", "autoscaling/v1");
    if let Some(status) = autoscaler.get_mut("status") {
        fill(status, "currentReplicas", 0);
    }
    for (pointer, shown, part) in [
        ("/spec/metrics", "targetCPUUtilizationPercentage", "target"),
        ("/status/currentMetrics", "currentCPUUtilizationPercentage", "current"),
    ] {
        let mut metrics = list(autoscaler, pointer).to_vec();
        let utilization = |metric: &Value| metric["resource"][part]["averageUtilization"].clone();
        let is_processor = |metric: &Value| text(metric, "/resource/name") == "cpu" && utilization(metric).is_number();
        let Some((parent, field)) = parent_of(autoscaler, pointer) else { continue };
        if let Some(at) = metrics.iter().position(is_processor) {
            put(parent, shown, utilization(&metrics.remove(at)));
        }
        put(parent, field, metrics);
    }
    for (annotation, pointer) in ANNOTATIONS {
        let Some((parent, field)) = parent_of(autoscaler, pointer) else { continue };
        let Some(value) = parent.as_object_mut().and_then(|parent| parent.remove(field)) else { continue };
        if value.as_array().is_none_or(|list| !list.is_empty()) && !value.is_null() {
            let annotations = &mut autoscaler["metadata"]["annotations"];
            if !annotations.is_object() {
                *annotations = json!({});
            }
            put(annotations, annotation, value.to_string());
        }
    }
}

/// The spec or the status, and the field in it that a pointer names.
fn parent_of<'a>(autoscaler: &'a mut Value, pointer: &'static str) -> Option<(&'a mut Value, &'static str)> {
    let (parent, field) = pointer.rsplit_once('/')?;
    Some((autoscaler.pointer_mut(parent)?, field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_v1_cannot_show_survives_a_write_through_it() {
        let metric = |name: &str, of: &str| {
            let target = json!({ "type": "Utilization", "averageUtilization": 60 });
            json!({ "type": "Resource", "resource": { "name": name, of: target } })
        };
        let stored = json!({
            "apiVersion": "autoscaling/v2", "metadata": { "name": "a" },
            "spec": {
                "maxReplicas": 3, "metrics": [metric("cpu", "target"), metric("memory", "target")],
                "behavior": { "scaleDown": { "selectPolicy": "Min" } },
            },
            "status": { "currentMetrics": null, "conditions": [{ "type": "AbleToScale", "status": "True" }] },
        });
        let mut seen = stored.clone();
        to_view(&mut seen);
        assert_eq!(seen["apiVersion"], "autoscaling/v1");
        assert_eq!(seen["spec"], json!({ "maxReplicas": 3, "targetCPUUtilizationPercentage": 60 }));
        assert_eq!(seen["status"], json!({ "currentReplicas": 0 }));
        to_stored(&mut seen);
        assert_eq!(seen, stored);
    }
}
