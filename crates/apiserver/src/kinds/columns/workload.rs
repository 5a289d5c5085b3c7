//! Cells of workloads, disruption budgets and events.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::json::{entries, has, list, number, text};
use super::{Cell, count, labels, or_none, since};

pub(super) fn cell(kind: &str, column: &str) -> Cell {
    match (kind, column) {
        ("Deployment" | "StatefulSet", "Ready") => |object, _| {
            format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")).into()
        },
        ("Deployment", "Up-to-date") => |object, _| count(object, "/status/updatedReplicas"),
        ("Deployment", "Available") => |object, _| count(object, "/status/availableReplicas"),
        ("ReplicaSet", "Desired") => |object, _| count(object, "/spec/replicas"),
        ("ReplicaSet", "Current") => |object, _| count(object, "/status/replicas"),
        ("ReplicaSet", "Ready") => |object, _| count(object, "/status/readyReplicas"),
        ("DaemonSet", "Desired") => |object, _| count(object, "/status/desiredNumberScheduled"),
        ("DaemonSet", "Current") => |object, _| count(object, "/status/currentNumberScheduled"),
        ("DaemonSet", "Ready") => |object, _| count(object, "/status/numberReady"),
        ("DaemonSet", "Up-to-date") => |object, _| count(object, "/status/updatedNumberScheduled"),
        ("DaemonSet", "Available") => |object, _| count(object, "/status/numberAvailable"),
        ("DaemonSet", "Node Selector") => |object, _| labels(object, "/spec/template/spec/nodeSelector"),
        (_, "Containers") => |object, _| of_containers(object, "/name"),
        (_, "Images") => |object, _| of_containers(object, "/image"),
        (_, "Selector") => |object, _| selector(object),
        (_, "Min Available") => |object, _| amount(object, "/spec/minAvailable"),
        (_, "Max Unavailable") => |object, _| amount(object, "/spec/maxUnavailable"),
        (_, "Allowed Disruptions") => |object, _| count(object, "/status/disruptionsAllowed"),
        _ => |_, _| json!(""),
    }
}

/// Cells of events, in the stored form or that of events.k8s.io.
pub(super) fn event_cell(column: &str) -> Cell {
    match column {
        "Last Seen" => |event, now| last_seen(&stored(event), now).into(),
        "Type" => |event, _| text(event, "/type").into(),
        "Reason" => |event, _| text(event, "/reason").into(),
        "Object" => |event, _| {
            let event = stored(event);
            let (kind, name) = (text(&event, "/involvedObject/kind"), text(&event, "/involvedObject/name"));
            match (kind, name) {
                ("", "") => json!(""),
                (kind, "") => kind.to_lowercase().into(),
                (kind, name) => format!("{}/{name}", kind.to_lowercase()).into(),
            }
        },
        "Subobject" => |event, _| text(&stored(event), "/involvedObject/fieldPath").into(),
        "Source" => |event, _| {
            let event = stored(event);
            let either = |first: &str, second: &str| {
                let first = text(&event, first);
                if first.is_empty() { text(&event, second).to_owned() } else { first.to_owned() }
            };
            let component = either("/source/component", "/reportingComponent");
            let host = either("/source/host", "/reportingInstance");
            if host.is_empty() { component.into() } else { format!("{component}, {host}").into() }
        },
        "Message" => |event, _| text(&stored(event), "/message").trim().into(),
        "First Seen" => |event, now| first_seen(&stored(event), now).into(),
        "Count" => |event, _| {
            let event = stored(event);
            let count = number(&event, if has(&event, "/series") { "/series/count" } else { "/count" });
            count.max(1).into()
        },
        "Name" => |event, _| text(event, "/metadata/name").into(),
        _ => |_, _| json!(""),
    }
}

fn stored(event: &Value) -> Value {
    let mut event = event.clone();
    if text(&event, "/apiVersion") == "events.k8s.io/v1" {
        super::super::events::to_stored(&mut event);
    }
    event
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    let key = if has(event, "/firstTimestamp") { "firstTimestamp" } else { "eventTime" };
    since(event.get(key), now)
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    if has(event, "/series") {
        since(event.pointer("/series/lastObservedTime"), now)
    } else if has(event, "/lastTimestamp") {
        since(event.get("lastTimestamp"), now)
    } else {
        first_seen(event, now)
    }
}

fn of_containers(object: &Value, field: &str) -> Value {
    let containers = list(object, "/spec/template/spec/containers").iter();
    containers.map(|container| text(container, field)).collect::<Vec<_>>().join(",").into()
}

fn amount(object: &Value, pointer: &str) -> Value {
    match object.pointer(pointer) {
        Some(Value::String(text)) => text.as_str().into(),
        Some(number) => number.to_string().into(),
        None => "N/A".into(),
    }
}

/// A label selector on one line, sorted by key.
fn selector(object: &Value) -> Value {
    let mut parts: Vec<(String, String)> = entries(object, "/spec/selector/matchLabels")
        .map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for expression in list(object, "/spec/selector/matchExpressions") {
        let key = text(expression, "/key");
        let mut values: Vec<&str> = list(expression, "/values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let part = match text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        parts.push((key.to_owned(), part));
    }
    parts.sort();
    or_none(&parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>().join(","))
}
