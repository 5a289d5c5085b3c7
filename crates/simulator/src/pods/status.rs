//! What a pod's status says, as a kubelet would write it.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use portolan_apiserver::controllers::slim::Pod;
use serde_json::{Value, json};

use super::process::{Seen, State};

/// The state of a pod, as far as its status tells it.
pub(super) struct Told<'a> {
    pub(super) pod: &'a Pod,
    pub(super) address: Ipv4Addr,
    /// Why it cannot run, if it cannot.
    pub(super) problem: Option<&'a str>,
    /// Its containers by name, once they were started.
    pub(super) containers: Vec<(&'a str, Seen)>,
    /// When it was first seen, and since when it is as ready as it is.
    pub(super) started: Timestamp,
    pub(super) since: Timestamp,
}

/// Whether all containers serve.
pub(super) fn is_ready(containers: &[(&str, Seen)]) -> bool {
    let serves = |seen: &Seen| matches!(seen.state, State::Running { ready: true, .. });
    !containers.is_empty() && containers.iter().all(|(_, seen)| serves(seen))
}

impl Told<'_> {
    pub(super) fn status(&self) -> Value {
        let Self { pod, address, problem, containers, started, since } = self;
        let ready = is_ready(containers);
        let (reason, message) = match problem {
            Some(problem) => ("CreateContainerConfigError", *problem),
            None if ready => ("", ""),
            None => ("ContainersNotReady", "not every container serves"),
        };
        let condition = |kind: &str, holds: bool, since: &Timestamp| {
            let mut one = json!({
                "type": kind, "status": if holds { "True" } else { "False" }, "lastTransitionTime": time(*since),
            });
            if !holds {
                one["reason"] = json!(reason);
                one["message"] = json!(message);
            }
            one
        };
        let conditions = [
            condition("PodScheduled", true, started),
            condition("Initialized", true, started),
            condition("ContainersReady", ready, since),
            condition("Ready", ready, since),
        ];
        let specs = pod.spec.iter().flat_map(|spec| &spec.containers);
        let statuses = specs.map(|spec| {
            let seen = containers.iter().find(|(name, _)| *name == spec.name).map(|(_, seen)| seen);
            container(&spec.name, spec.image.as_deref().unwrap_or_default(), seen, *problem)
        });
        let host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        let mut status = json!({
            "phase": if problem.is_some() || containers.is_empty() { "Pending" } else { "Running" },
            "startTime": time(*started), "podIP": address, "podIPs": [{ "ip": address }],
            "conditions": conditions, "containerStatuses": statuses.collect::<Vec<_>>(),
        });
        if host {
            status["hostIP"] = json!(address);
            status["hostIPs"] = json!([{ "ip": address }]);
        }
        status
    }
}

fn container(name: &str, image: &str, seen: Option<&Seen>, problem: Option<&str>) -> Value {
    let waiting = |reason: &str, message: &str| json!({ "waiting": { "reason": reason, "message": message } });
    let (state, id, ready) = match seen.map(|seen| &seen.state) {
        Some(State::Running { id, since, ready }) => {
            (json!({ "running": { "startedAt": time(*since) } }), format!("process://{id}"), *ready)
        }
        Some(State::Waiting(Some(why))) => (waiting("CrashLoopBackOff", why), String::new(), false),
        Some(State::Gone) => (json!({ "terminated": { "exitCode": 0, "reason": "Completed" } }), String::new(), false),
        Some(State::Waiting(None)) | None => match problem {
            Some(problem) => (waiting("CreateContainerConfigError", problem), String::new(), false),
            None => (waiting("ContainerCreating", "it is about to start"), String::new(), false),
        },
    };
    json!({
        "name": name, "image": image, "imageID": "", "ready": ready, "started": ready,
        "restartCount": seen.map_or(0, |seen| seen.restarts), "containerID": id, "state": state,
    })
}

/// Kubernetes counts whole seconds.
fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
