//! Namespaces, nodes and leases.

use serde_json::Value;

use super::super::json::{list, text};
use super::metadata::is_standard_finalizer;
use super::{Faults, names, network, quoted};

pub(super) fn namespace(new: &Value, faults: &mut Faults) {
    for finalizer in list(new, "/spec/finalizers").iter().filter_map(Value::as_str) {
        faults.invalid_text("spec.finalizers", finalizer, names::qualified(finalizer));
        if !is_standard_finalizer(finalizer) {
            let message = "name is neither a standard finalizer name nor is it fully qualified";
            faults.invalid("spec.finalizers", &quoted(finalizer), message);
        }
    }
}

pub(super) fn namespace_status(new: &Value, faults: &mut Faults) {
    let (phase, dying) = (text(new, "/status/phase"), new.pointer("/metadata/deletionTimestamp").is_some());
    if !dying && phase != "Active" {
        let message = "may only be 'Active' if `deletionTimestamp` is empty";
        faults.invalid("status.Phase", &quoted(phase), message);
    }
    if dying && phase != "Terminating" {
        let message = "may only be 'Terminating' if `deletionTimestamp` is not empty";
        faults.invalid("status.Phase", &quoted(phase), message);
    }
}

pub(super) fn node(new: &Value, faults: &mut Faults) {
    taints(new, faults);
    let cidrs = list(new, "/spec/podCIDRs");
    for (at, cidr) in cidrs.iter().enumerate() {
        network::cidr(&format!("spec.podCIDRs[{at}]"), cidr.as_str().unwrap_or_default(), faults);
    }
    if cidrs.len() > 2 {
        let all = Value::from(cidrs).to_string();
        faults.invalid("spec.podCIDRs", &all, "may specify no more than one CIDR for each IP family");
    }
}

pub(super) fn node_update(new: &Value, old: &Value, faults: &mut Faults) {
    let before = list(old, "/spec/podCIDRs");
    if !before.is_empty() && before != list(new, "/spec/podCIDRs") {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        faults.forbidden("spec.podCIDRs", why);
    }
    let before = text(old, "/spec/providerID");
    if !before.is_empty() && before != text(new, "/spec/providerID") {
        faults.forbidden("spec.providerID", "node updates may not change providerID except from \"\" to valid");
    }
    taints(new, faults);
}

pub(super) fn lease(new: &Value, faults: &mut Faults) {
    if let Some(seconds) = new.pointer("/spec/leaseDurationSeconds").filter(|seconds| seconds.as_i64() <= Some(0)) {
        faults.invalid("spec.leaseDurationSeconds", &seconds.to_string(), "must be greater than 0");
    }
    if let Some(transitions) = new.pointer("/spec/leaseTransitions") {
        faults.not_negative("spec.leaseTransitions", transitions);
    }
}

fn taints(new: &Value, faults: &mut Faults) {
    let taints = list(new, "/spec/taints");
    for (at, taint) in taints.iter().enumerate() {
        let path = format!("metadata.taints[{at}]");
        let (key, value, effect) = (text(taint, "/key"), text(taint, "/value"), text(taint, "/effect"));
        faults.invalid_text(&format!("{path}.key"), key, names::qualified(key));
        faults.invalid_text(&format!("{path}.value"), value, names::label_value(value));
        faults.one_of(&format!("{path}.effect"), effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        let same = |other: &&Value| text(other, "/key") == key && text(other, "/effect") == effect;
        if !effect.is_empty() && taints[..at].iter().any(|other| same(&other)) {
            let added = taint.get("timeAdded").unwrap_or(&Value::Null);
            let shown = format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{added}}}: taints must be unique by key and effect pair",
                quoted(key),
                quoted(value),
                quoted(effect)
            );
            faults.duplicate(&path, &shown);
        }
    }
}
