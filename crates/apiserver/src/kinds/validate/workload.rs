//! Deployments, ReplicaSets, DaemonSets, StatefulSets, and disruption budgets.

use serde_json::Value;

use super::super::Kind;
use super::super::json::{entries, has, list, number, text};
use super::{Faults, metadata, names, pod, quoted};

pub(super) fn workload(kind: &Kind, new: &Value, old: Option<&Value>, faults: &mut Faults) {
    let spec = &new["spec"];
    let name = kind.kind.as_str();
    if name == "DaemonSet"
        && let Some(old) = old
    {
        selector_update(new, old, faults);
    }
    if name == "StatefulSet" {
        let policy = text(spec, "/podManagementPolicy");
        if !["OrderedReady", "Parallel"].contains(&policy) {
            faults.invalid("spec.podManagementPolicy", &quoted(policy), "must be 'OrderedReady' or 'Parallel'");
        }
    }
    faults.not_negative("spec.replicas", &spec["replicas"]);
    if name == "ReplicaSet" {
        faults.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    }
    let sound = selector(name, spec, faults);
    let labels = new.pointer("/spec/template/metadata/labels");
    if sound && !matches(&spec["selector"], labels) {
        let shown = ordered(labels.unwrap_or(&Value::Null));
        faults.invalid("spec.template.metadata.labels", &shown, "`selector` does not match template `labels`");
    }
    if sound {
        metadata::labels(new, "/spec/template/metadata/labels", "spec.template.labels", faults);
        pod::spec(&spec["template"]["spec"], "spec.template.spec", faults);
        let restart = text(spec, "/template/spec/restartPolicy");
        if restart != "Always" && ["Always", "OnFailure", "Never"].contains(&restart) {
            faults.not_supported("spec.template.spec.restartPolicy", &quoted(restart), &["Always"]);
        }
    }
    match name {
        "Deployment" => deployment(spec, faults),
        "DaemonSet" => {
            let kind = text(spec, "/updateStrategy/type");
            if !["RollingUpdate", "OnDelete"].contains(&kind) {
                let shown = format!("{{\"Type\":{},\"RollingUpdate\":null}}", quoted(kind));
                faults.not_supported("spec.updateStrategy", &shown, &["RollingUpdate", "OnDelete"]);
            }
            faults.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
        }
        _ => {}
    }
    if let Some(old) = old {
        match name {
            "Deployment" | "ReplicaSet" => selector_update(new, old, faults),
            "StatefulSet" => stateful_set_update(spec, &old["spec"], faults),
            _ => {}
        }
    }
}

pub(super) fn status(kind: &Kind, new: &Value, faults: &mut Faults) {
    for (key, value) in entries(new, "/status") {
        faults.not_negative(&format!("status.{key}"), value);
    }
    let parts: &[&str] = match kind.kind.as_str() {
        "Deployment" => &["updatedReplicas", "readyReplicas", "availableReplicas"],
        "ReplicaSet" => &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        "StatefulSet" => &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
        _ => return,
    };
    let of = |key: &str| number(new, &format!("/status/{key}"));
    for key in parts.iter().filter(|key| of(key) > of("replicas")) {
        faults.invalid(&format!("status.{key}"), &of(key).to_string(), "cannot be greater than status.replicas");
    }
    if of("availableReplicas") > of("readyReplicas") {
        let shown = of("availableReplicas").to_string();
        faults.invalid("status.availableReplicas", &shown, "cannot be greater than readyReplicas");
    }
}

pub(super) fn disruption_budget(new: &Value, faults: &mut Faults) {
    let spec = &new["spec"];
    if has(spec, "/minAvailable") && has(spec, "/maxUnavailable") {
        let or_null = |key: &str| spec.get(key).map_or("null".to_owned(), Value::to_string);
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            or_null("minAvailable"),
            or_null("selector"),
            or_null("maxUnavailable"),
            or_null("unhealthyPodEvictionPolicy")
        );
        faults.invalid("spec", &shown, "minAvailable and maxUnavailable cannot be both set");
    }
    label_selector("spec.selector", &spec["selector"], faults);
}

/// A label selector at any path.
pub(super) fn label_selector(path: &str, selector: &Value, faults: &mut Faults) {
    metadata::labels(selector, "/matchLabels", &format!("{path}.matchLabels"), faults);
    for (at, expression) in list(selector, "/matchExpressions").iter().enumerate() {
        let path = format!("{path}.matchExpressions[{at}]");
        let values = list(expression, "/values");
        match text(expression, "/operator") {
            "In" | "NotIn" if values.is_empty() => {
                faults.required(&format!("{path}.values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                faults.forbidden(&format!("{path}.values"), why);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => faults.invalid(&format!("{path}.operator"), &quoted(other), "not a valid selector operator"),
        }
        let key = text(expression, "/key");
        faults.invalid_text(&format!("{path}.key"), key, names::qualified(key));
        for (at, value) in values.iter().filter_map(Value::as_str).enumerate() {
            faults.invalid_text(&format!("{path}.values[{at}]"), value, names::label_value(value));
        }
    }
}

/// Checks the selector; true when it can be matched against labels.
fn selector(kind: &str, spec: &Value, faults: &mut Faults) -> bool {
    let Some(selector) = spec.get("selector").filter(|selector| !selector.is_null()) else {
        if kind != "DaemonSet" {
            faults.required("spec.selector", "");
        }
        return true;
    };
    let before = faults.0.len();
    label_selector("spec.selector", selector, faults);
    let sound = faults.0.len() == before;
    if selector.as_object().is_some_and(serde_json::Map::is_empty) {
        let word = kind.to_lowercase();
        faults.invalid("spec.selector", "{}", &format!("empty selector is invalid for {word}"));
    }
    if !sound {
        let message = if kind == "Deployment" { "invalid label selector" } else { "" };
        if !message.is_empty() {
            faults.invalid("spec.selector", &ordered(selector), message);
        }
    }
    sound
}

/// Whether a selector takes these labels; an absent one takes nothing, an empty one everything.
fn matches(selector: &Value, labels: Option<&Value>) -> bool {
    if selector.is_null() {
        return false;
    }
    let value = |key: &str| labels.and_then(|labels| labels.get(key));
    let plain = entries(selector, "/matchLabels").all(|(key, wanted)| value(key) == Some(wanted));
    plain
        && list(selector, "/matchExpressions").iter().all(|expression| {
            let found = value(text(expression, "/key"));
            let among = found.is_some_and(|found| list(expression, "/values").contains(found));
            match text(expression, "/operator") {
                "In" => among,
                "NotIn" => !among,
                "Exists" => found.is_some(),
                _ => found.is_none(),
            }
        })
}

fn deployment(spec: &Value, faults: &mut Faults) {
    let rolling = spec.pointer("/strategy/rollingUpdate");
    match text(spec, "/strategy/type") {
        "Recreate" => {
            if rolling.is_some() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                faults.forbidden("spec.strategy.rollingUpdate", why);
            }
        }
        "RollingUpdate" => rolling_update(rolling.unwrap_or(&Value::Null), faults),
        other => {
            let shown = format!("{{\"Type\":{},\"RollingUpdate\":null}}", quoted(other));
            faults.not_supported("spec.strategy", &shown, &["Recreate", "RollingUpdate"]);
        }
    }
    faults.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    faults.not_negative("spec.revisionHistoryLimit", &spec["revisionHistoryLimit"]);
    if let Some(deadline) = spec.get("progressDeadlineSeconds").and_then(Value::as_i64) {
        faults.not_negative("spec.progressDeadlineSeconds", &deadline.into());
        let least = spec.get("minReadySeconds").and_then(Value::as_i64).unwrap_or(0);
        if deadline <= least {
            let path = "spec.progressDeadlineSeconds";
            faults.invalid(path, &deadline.to_string(), "must be greater than minReadySeconds");
        }
    }
}

fn rolling_update(rolling: &Value, faults: &mut Faults) {
    let path = "spec.strategy.rollingUpdate";
    for key in ["maxUnavailable", "maxSurge"] {
        let field = format!("{path}.{key}");
        match rolling[key].as_str() {
            Some(text) if !is_percent(text) => {
                let message = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                faults.invalid(&field, &quoted(text), message);
            }
            _ => faults.not_negative(&field, &rolling[key]),
        }
    }
    let zero = |key: &str| matches!(rolling[key].to_string().as_str(), "0" | "\"0%\"");
    if zero("maxUnavailable") && zero("maxSurge") {
        let shown = rolling["maxUnavailable"].to_string();
        faults.invalid(&format!("{path}.maxUnavailable"), &shown, "may not be 0 when `maxSurge` is 0");
    }
}

fn is_percent(text: &str) -> bool {
    text.strip_suffix('%').is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

fn selector_update(new: &Value, old: &Value, faults: &mut Faults) {
    if new.pointer("/spec/selector") != old.pointer("/spec/selector") {
        let shown = ordered(&new["spec"]["selector"]);
        faults.invalid("spec.selector", &shown, "field is immutable");
    }
}

fn stateful_set_update(new: &Value, old: &Value, faults: &mut Faults) {
    let free = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |spec: &Value| -> Vec<(String, Value)> {
        let fields = spec.as_object().into_iter().flatten();
        fields
            .filter(|(key, _)| !free.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    if fixed(new) != fixed(old) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        faults.forbidden("spec", why);
    }
}

/// JSON with `matchLabels` before `matchExpressions`, as Go writes a selector.
fn ordered(selector: &Value) -> String {
    let (Some(labels), Some(expressions)) = (selector.get("matchLabels"), selector.get("matchExpressions")) else {
        return selector.to_string();
    };
    format!("{{\"matchLabels\":{labels},\"matchExpressions\":{expressions}}}")
}
