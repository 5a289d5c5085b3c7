//! What pods say of an Envoy that is not connected, and EndpointSlices of one that is.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt as _;
use portolan_core::gateway::unit::State;

use crate::runtime::problem::cleaned;

/// Why no Envoy of a unit is connected; none if nothing is wrong, or not yet.
pub(in super::super) fn problem(deployment: &Deployment, pods: &[Arc<Pod>]) -> Option<State> {
    let newest = pods.iter().max_by_key(|pod| (pod.creation_timestamp().map(|time| time.0), pod.name_any()));
    newest.map_or_else(|| of_deployment(deployment), |pod| of_pod(pod))
}

/// True if nodes send packets to a pod of this slice.
pub(in super::super) fn is_any_ready(slice: &EndpointSlice) -> bool {
    // as kube-proxy reads it: what is not known counts as ready
    let is_ready = |endpoint: &Endpoint| endpoint.conditions.as_ref().and_then(|one| one.ready).unwrap_or(true);
    slice.endpoints.iter().flatten().any(is_ready)
}

fn of_deployment(deployment: &Deployment) -> Option<State> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    let failure = conditions.iter().find(|one| one.type_ == "ReplicaFailure" && one.status == "True")?;
    let why = failure.message.as_deref().unwrap_or("the Deployment does not say why");
    Some(State::Missing(said(&format!("its pod cannot be made: {why}"))))
}

fn of_pod(pod: &Pod) -> Option<State> {
    let (name, status) = (pod.name_any(), pod.status.as_ref()?);
    let container = status.container_statuses.iter().flatten().next();
    if let Some(state) = container.and_then(|container| of_container(&name, container)) {
        return Some(state);
    }
    if status.phase.as_deref() == Some("Failed") {
        let why = status.message.as_deref().or(status.reason.as_deref()).unwrap_or_default();
        return Some(State::Crashed(said(&format!("pod {name} has failed: {why}"))));
    }
    let unscheduled =
        status.conditions.iter().flatten().find(|one| one.type_ == "PodScheduled" && one.status == "False")?;
    let why = unscheduled.message.as_deref().unwrap_or_default();
    Some(State::Missing(said(&format!("no node takes pod {name}: {why}"))))
}

fn of_container(pod: &str, status: &ContainerStatus) -> Option<State> {
    let ended = |state: Option<&k8s_openapi::api::core::v1::ContainerState>| {
        let ended = state?.terminated.as_ref()?;
        let words = ended.message.as_deref().unwrap_or_default();
        Some(format!("Envoy ended with code {} in pod {pod}: {words}", ended.exit_code))
    };
    let current = status.state.as_ref();
    if let Some(words) = ended(current) {
        return Some(State::Crashed(said(&words)));
    }
    let waiting = current?.waiting.as_ref()?;
    let (reason, message) = (waiting.reason.as_deref()?, waiting.message.as_deref().unwrap_or_default());
    match reason {
        "ContainerCreating" | "PodInitializing" => None,
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" | "ImageInspectError" => {
            let words = format!("image `{}` cannot be used by pod {pod}: {reason}: {message}", status.image);
            Some(State::Missing(said(&words)))
        }
        _ => {
            let words = ended(status.last_state.as_ref());
            let words = words.unwrap_or_else(|| format!("pod {pod}: {reason}: {message}"));
            Some(State::Crashed(said(&words)))
        }
    }
}

fn said(words: &str) -> Arc<str> {
    cleaned(words).trim_end_matches([' ', ':']).into()
}
