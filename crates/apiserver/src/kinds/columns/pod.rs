//! Cells of pods: how ready, in which state and why, how often restarted.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::json::{has, list, number, text};
use super::{Cell, age, or_none};

/// What `kubectl get pods` shows.
struct Summary {
    ready: i64,
    total: i64,
    reason: String,
    restarts: i64,
    restarted: Option<Timestamp>,
}

pub(super) fn cell(column: &str) -> Cell {
    match column {
        "Ready" => |pod, _| {
            let summary = summary(pod);
            format!("{}/{}", summary.ready, summary.total).into()
        },
        "Status" => |pod, _| summary(pod).reason.into(),
        "Restarts" => |pod, now| {
            let Summary { restarts, restarted, .. } = summary(pod);
            match restarted.filter(|_| restarts != 0) {
                Some(time) => format!("{restarts} ({} ago)", age(time, now)).into(),
                None => restarts.to_string().into(),
            }
        },
        "IP" => |pod, _| or_none(text(pod, "/status/podIPs/0/ip")),
        "Node" => |pod, _| or_none(text(pod, "/spec/nodeName")),
        "Nominated Node" => |pod, _| or_none(text(pod, "/status/nominatedNodeName")),
        "Readiness Gates" => |pod, _| readiness_gates(pod),
        _ => |_, _| json!(""),
    }
}

/// The `conditions` of a table row: pods that have ended say so.
pub fn row_conditions(kind: &str, object: &Value) -> Option<Value> {
    let message = match (kind, text(object, "/status/phase")) {
        ("Pod", "Succeeded") => "The pod has completed successfully.",
        ("Pod", "Failed") => "The pod failed.",
        _ => return None,
    };
    let reason = text(object, "/status/phase");
    Some(json!([{ "type": "Completed", "status": "True", "reason": reason, "message": message }]))
}

fn readiness_gates(pod: &Value) -> Value {
    let gates = list(pod, "/spec/readinessGates");
    let holds = |gate: &&Value| condition(pod, text(gate, "/conditionType")) == Some("True");
    match gates.len() {
        0 => "<none>".into(),
        count => format!("{}/{count}", gates.iter().filter(holds).count()).into(),
    }
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = list(pod, "/status/conditions");
    conditions.iter().find(|each| text(each, "/type") == kind).map(|each| text(each, "/status"))
}

fn summary(pod: &Value) -> Summary {
    let init = list(pod, "/spec/initContainers");
    let is_sidecar =
        |name: &str| init.iter().any(|each| text(each, "/name") == name && text(each, "/restartPolicy") == "Always");
    let sidecars = init.iter().filter(|each| is_sidecar(text(each, "/name"))).count();
    let total = list(pod, "/spec/containers").len() + sidecars;
    let mut reason = text(pod, "/status/phase").to_owned();
    if has(pod, "/status/reason") {
        text(pod, "/status/reason").clone_into(&mut reason);
    }
    let gated = list(pod, "/status/conditions")
        .iter()
        .any(|each| text(each, "/type") == "PodScheduled" && text(each, "/reason") == "SchedulingGated");
    if gated {
        "SchedulingGated".clone_into(&mut reason);
    }
    let mut summary =
        Summary { ready: 0, total: i64::try_from(total).unwrap_or(i64::MAX), reason, restarts: 0, restarted: None };
    let mut sidecar_restarts = 0;
    let mut initializing = false;
    for (at, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
        summary.count_restarts(status);
        let sidecar = is_sidecar(text(status, "/name"));
        if sidecar {
            sidecar_restarts += number(status, "/restartCount");
        }
        let ended = has(status, "/state/terminated");
        if ended && number(status, "/state/terminated/exitCode") == 0 {
            continue;
        }
        if sidecar && status["started"] == true {
            summary.ready += i64::from(status["ready"] == true);
            continue;
        }
        let waiting = text(status, "/state/waiting/reason");
        let what = if ended {
            end(status)
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            waiting.to_owned()
        } else {
            format!("{at}/{}", init.len())
        };
        summary.reason = format!("Init:{what}");
        initializing = true;
        break;
    }
    if !initializing || condition(pod, "Initialized") == Some("True") {
        summary.restarts = sidecar_restarts;
        containers(pod, &mut summary);
    }
    if has(pod, "/metadata/deletionTimestamp") {
        if text(pod, "/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut summary.reason);
        } else if !matches!(text(pod, "/status/phase"), "Failed" | "Succeeded") {
            "Terminating".clone_into(&mut summary.reason);
        }
    }
    summary
}

fn containers(pod: &Value, summary: &mut Summary) {
    let mut running = false;
    for status in list(pod, "/status/containerStatuses").iter().rev() {
        summary.count_restarts(status);
        let waiting = text(status, "/state/waiting/reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.reason);
        } else if has(status, "/state/terminated") {
            summary.reason = end(status);
        } else if status["ready"] == true && has(status, "/state/running") {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" && running {
        let ready = condition(pod, "Ready") == Some("True");
        if ready { "Running" } else { "NotReady" }.clone_into(&mut summary.reason);
    }
}

/// Why a container ended.
fn end(status: &Value) -> String {
    let (reason, signal) = (text(status, "/state/terminated/reason"), number(status, "/state/terminated/signal"));
    match (reason, signal) {
        ("", 0) => format!("ExitCode:{}", number(status, "/state/terminated/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

impl Summary {
    fn count_restarts(&mut self, status: &Value) {
        self.restarts += number(status, "/restartCount");
        let ended: Option<Timestamp> = text(status, "/lastState/terminated/finishedAt").parse().ok();
        self.restarted = self.restarted.max(ended);
    }
}
