//! API objects -> checked types of the planner.
//!
//! What a remote sends is read field by field: nothing of it reaches the local cluster unless the planner decides so.

mod local;
mod remote;
mod rules;

pub(super) use local::{namespace, ranges, recorded_slice, service};
pub(super) use remote::{node, source, source_slice};
pub(super) use rules::{CheckedRules, Problem, rules};

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServiceSpec as WireSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource;
use kube::api::ObjectMeta;
use portolan_api::well_known::mirror::{BARRELMAN, IGNORE};
use portolan_core::mirror::{ServicePort, ServiceSpec, ServiceType, TargetPort};
use portolan_core::net::Family;

use super::slim::protocol;

/// The part of a Service's spec that mirrors share with their sources.
pub(super) fn spec(service: &Service) -> ServiceSpec {
    let Some(spec) = &service.spec else { return ServiceSpec::default() };
    let service_type = match spec.type_.as_deref() {
        Some("NodePort") => ServiceType::NodePort,
        Some("LoadBalancer") => ServiceType::LoadBalancer,
        Some("ExternalName") => ServiceType::ExternalName,
        _ => ServiceType::ClusterIp,
    };
    let timeout = || {
        let config = spec.session_affinity_config.as_ref()?.client_ip.as_ref()?;
        u32::try_from(config.timeout_seconds?).ok()
    };
    ServiceSpec {
        service_type,
        headless: spec.cluster_ip.as_deref() == Some("None"),
        families: spec.ip_families.iter().flatten().filter_map(|family| self::family(family)).collect(),
        dual_stack: spec.ip_family_policy.as_deref().is_some_and(|policy| policy != "SingleStack"),
        ports: ports(spec),
        session_affinity: (spec.session_affinity.as_deref() == Some("ClientIP"))
            .then(|| timeout().unwrap_or(DEFAULT_AFFINITY)),
    }
}

/// What the API server writes where a Service with affinity says nothing.
const DEFAULT_AFFINITY: u32 = 10800;

pub(super) fn family(name: &str) -> Option<Family> {
    match name {
        "IPv4" => Some(Family::V4),
        "IPv6" => Some(Family::V6),
        _ => None,
    }
}

fn ports(spec: &WireSpec) -> Vec<ServicePort> {
    let number = |port: i32| u16::try_from(port).unwrap_or_default();
    let read = spec.ports.iter().flatten().map(|port| ServicePort {
        port: number(port.port),
        protocol: protocol(port.protocol.as_deref()),
        name: port.name.as_deref().unwrap_or_default().into(),
        app_protocol: port.app_protocol.as_deref().map(Arc::from),
        target: match &port.target_port {
            Some(IntOrString::Int(target)) => TargetPort::Number(number(*target)),
            Some(IntOrString::String(name)) => TargetPort::Name(name.as_str().into()),
            None => TargetPort::Number(number(port.port)),
        },
        node_port: port.node_port.filter(|port| *port != 0).map(number),
    });
    read.collect()
}

pub(super) fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

pub(super) fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn is_ignored(service: &Service) -> bool {
    annotation(service.meta(), BARRELMAN) == Some(IGNORE)
}

/// Creation time in seconds.
pub(super) fn created(metadata: &ObjectMeta) -> i64 {
    metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

pub(super) fn uid(metadata: &ObjectMeta) -> Arc<str> {
    metadata.uid.as_deref().unwrap_or_default().into()
}
