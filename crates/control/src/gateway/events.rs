//! Events of gateway besides those of conditions: keys and addresses that are given and released.

use portolan_api::gateway::LoadBalancer;
use portolan_core::gateway::keys::GueKey;

use crate::runtime::events::{EventDetails, EventType, Recorder};

/// Records what a load balancer was given.
pub(super) fn allocated(recorder: &Recorder, balancer: &LoadBalancer) {
    let GueKey { account, service } = GueKey::split(balancer.spec.gue_key);
    let key = format!("key {} ({account}/{service})", balancer.spec.gue_key);
    let note = match balancer.spec.public_address.as_str() {
        "" => key,
        address => format!("{key}, address {address}"),
    };
    record(recorder, balancer, "Allocated", &note);
}

/// Records what a deleted load balancer gave back.
pub(super) fn released(recorder: &Recorder, balancer: &LoadBalancer) {
    let note = match balancer.spec.public_address.as_str() {
        "" => "it had no address".to_owned(),
        address => format!("{address} can be given again after its quarantine"),
    };
    record(recorder, balancer, "Released", &note);
}

fn record(recorder: &Recorder, balancer: &LoadBalancer, reason: &str, note: &str) {
    recorder.record(balancer, EventType::Normal, &EventDetails { reason, action: "Allocate", note });
}
