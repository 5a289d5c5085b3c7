//! Rules of built-in kinds, and of the metadata of every kind, with the real server's messages.

mod admission;
mod cluster;
mod config;
mod endpoints;
mod event;
mod metadata;
pub mod names;
mod network;
mod pod;
mod probe;
mod rbac;
pub(super) mod service;
mod volume;
mod workload;

use serde_json::Value;

use super::Kind;
use super::strategy::Part;
use crate::status::Cause;

pub use metadata::validate_metadata;
pub use names::NameRule;

/// Faults found so far, in the order in which they are reported.
#[derive(Debug, Default)]
pub struct Faults(Vec<Cause>);

/// All faults of a built-in object about to be created (`old` is none) or updated; none for custom kinds, whose
/// metadata is checked by `validate_metadata`.
pub fn validate(kind: &Kind, new: &Value, old: Option<&Value>, part: Part) -> Vec<Cause> {
    if kind.custom {
        return validate_metadata(kind, new, old);
    }
    let mut faults = Faults::default();
    let Some(before) = old else {
        created(kind, new, &mut faults);
        if faults.is_empty() {
            metadata::full(NameRule::PathSegment, kind.namespaced, new, &mut faults);
        }
        return faults.0;
    };
    metadata::full(NameRule::PathSegment, kind.namespaced, new, &mut faults);
    metadata::update(new, before, &mut faults);
    if part == Part::Status {
        if kind.kind != "PodDisruptionBudget" {
            metadata::kubernetes_update(new, before, &mut faults);
        }
        status(kind, new, before, &mut faults);
    } else {
        updated(kind, new, before, &mut faults);
    }
    faults.0
}

fn created(kind: &Kind, new: &Value, faults: &mut Faults) {
    match kind.kind.as_str() {
        "Event" => return event::event(kind, new, None, faults),
        "PodDisruptionBudget" => {}
        _ if is_generic(kind) => metadata::full(metadata::rule(kind), kind.namespaced, new, faults),
        _ => metadata::kubernetes_full(metadata::rule(kind), kind.namespaced, new, faults),
    }
    body(kind, new, None, faults);
}

fn updated(kind: &Kind, new: &Value, old: &Value, faults: &mut Faults) {
    let full = |faults: &mut Faults| metadata::kubernetes_full(metadata::rule(kind), kind.namespaced, new, faults);
    match kind.kind.as_str() {
        "Event" => return event::event(kind, new, Some(old), faults),
        "ConfigMap" | "Secret" => {
            metadata::kubernetes_update(new, old, faults);
            config::immutable(kind, new, old, faults);
            full(faults);
        }
        "ServiceAccount" | "Endpoints" | "Pod" => {
            metadata::kubernetes_update(new, old, faults);
            full(faults);
        }
        "PodDisruptionBudget" => {}
        "Namespace" | "EndpointSlice" => full(faults),
        "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding" | "Node" => {
            full(faults);
            body(kind, new, Some(old), faults);
            metadata::kubernetes_update(new, old, faults);
            match kind.kind.as_str() {
                "Node" => cluster::node_update(new, old, faults),
                "RoleBinding" | "ClusterRoleBinding" => rbac::role_ref_update(new, old, faults),
                _ => {}
            }
            return;
        }
        _ if is_generic(kind) => metadata::update(new, old, faults),
        _ => metadata::kubernetes_update(new, old, faults),
    }
    body(kind, new, Some(old), faults);
    if kind.kind == "Namespace" {
        metadata::kubernetes_update(new, old, faults);
    }
}

/// Kinds that take any well-formed finalizer, not only qualified ones.
fn is_generic(kind: &Kind) -> bool {
    matches!(kind.group.as_str(), "coordination.k8s.io" | "admissionregistration.k8s.io" | "apiextensions.k8s.io")
}

fn body(kind: &Kind, new: &Value, old: Option<&Value>, faults: &mut Faults) {
    match kind.kind.as_str() {
        "Pod" => pod::pod(new, old, faults),
        "Service" => service::service(new, old, faults),
        "Endpoints" => endpoints::endpoints(new, old, faults),
        "EndpointSlice" => endpoints::endpoint_slice(new, old, faults),
        "ConfigMap" => config::config_map(new, faults),
        "Secret" => config::secret(new, faults),
        "Namespace" => cluster::namespace(new, faults),
        "Node" => cluster::node(new, faults),
        "Lease" => cluster::lease(new, faults),
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" => workload::workload(kind, new, old, faults),
        "PodDisruptionBudget" => workload::disruption_budget(new, faults),
        "Role" | "ClusterRole" => rbac::role(kind, new, faults),
        "RoleBinding" | "ClusterRoleBinding" => rbac::binding(kind, new, faults),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => admission::webhooks(new, old, faults),
        "ValidatingAdmissionPolicyBinding" => admission::policy_binding(new, faults),
        _ => {}
    }
}

fn status(kind: &Kind, new: &Value, old: &Value, faults: &mut Faults) {
    match kind.kind.as_str() {
        "Namespace" => cluster::namespace_status(new, faults),
        "Node" => cluster::node_update(new, old, faults),
        "Service" => service::status(new, faults),
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" => workload::status(kind, new, faults),
        _ => {}
    }
}

impl Faults {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn causes(&self) -> &[Cause] {
        &self.0
    }

    fn push(&mut self, reason: &'static str, field: &str, message: String) {
        self.0.push(Cause { reason, message, field: field.to_owned() });
    }

    /// `value` is written as given: quote strings with `quoted`.
    pub(super) fn invalid(&mut self, field: &str, value: &str, message: &str) {
        self.push("FieldValueInvalid", field, format!("Invalid value: {value}: {message}"));
    }

    /// One fault for each message about a string.
    fn invalid_text(&mut self, field: &str, value: &str, messages: Vec<String>) {
        for message in messages {
            self.invalid(field, &quoted(value), &message);
        }
    }

    fn required(&mut self, field: &str, why: &str) {
        let colon = if why.is_empty() { "" } else { ": " };
        self.push("FieldValueRequired", field, format!("Required value{colon}{why}"));
    }

    fn forbidden(&mut self, field: &str, why: &str) {
        self.push("FieldValueForbidden", field, format!("Forbidden: {why}"));
    }

    fn duplicate(&mut self, field: &str, value: &str) {
        self.push("FieldValueDuplicate", field, format!("Duplicate value: {value}"));
    }

    fn not_found(&mut self, field: &str, value: &str) {
        self.push("FieldValueNotFound", field, format!("Not found: {value}"));
    }

    fn too_long(&mut self, field: &str, most: usize) {
        self.push("FieldValueTooLong", field, format!("Too long: may not be more than {most} bytes"));
    }

    fn too_many(&mut self, field: &str, count: usize, most: usize) {
        let message = format!("Too many: {count}: must have at most {most} items");
        self.push("FieldValueTooMany", field, message);
    }

    fn not_supported(&mut self, field: &str, value: &str, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|each| quoted(each)).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        self.push("FieldValueNotSupported", field, message);
    }

    /// A string that must be there and be one of some.
    fn one_of(&mut self, field: &str, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(field, "");
        } else if !supported.contains(&value) {
            self.not_supported(field, &quoted(value), supported);
        }
    }

    fn not_negative(&mut self, field: &str, value: &Value) {
        if value.as_i64().is_some_and(|number| number < 0) {
            self.invalid(field, &value.to_string(), "must be greater than or equal to 0");
        }
    }

    fn port(&mut self, field: &str, port: i64) {
        if !(1..=65535).contains(&port) {
            self.invalid(field, &port.to_string(), "must be between 1 and 65535, inclusive");
        }
    }

    /// A port by number or by name.
    fn port_or_name(&mut self, field: &str, port: &Value) {
        match port.as_str() {
            Some(name) => self.invalid_text(field, name, names::port_name(name)),
            None => self.port(field, port.as_i64().unwrap_or_default()),
        }
    }

    fn immutable(&mut self, field: &str, new: Option<&Value>, old: Option<&Value>) {
        if new != old {
            self.invalid(field, &new.unwrap_or(&Value::Null).to_string(), "field is immutable");
        }
    }
}

/// A string as Go's `%q` writes it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
