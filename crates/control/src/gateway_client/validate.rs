//! Objects of the cluster -> the planner's types.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use portolan_api::well_known::gateway_client::{ANNOUNCED, CLASS, FINALIZER, HONOURED};
use portolan_core::gateway_client::{
    Limits, Port, Protocol, Requested, Service as Planned, ServiceName, Slice, SliceEndpoint, SlicePort, Standing,
    TargetPort,
};

use crate::runtime::store::Key;

/// Label of a slice: its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A Service; none if it is not ours and never was.
pub(super) fn service(service: &Service) -> Option<Planned> {
    let spec = service.spec.as_ref()?;
    let is_held = service.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER);
    let conditions = service.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_reported = conditions.into_iter().any(|one| one.type_ == ANNOUNCED || one.type_ == HONOURED);
    let standing = match () {
        () if service.metadata.deletion_timestamp.is_some() => Standing::Deleting,
        () if is_asked_for(spec) => Standing::Ours,
        () => Standing::Elsewhere,
    };
    if standing != Standing::Ours && !is_held && !is_reported {
        return None;
    }
    Some(Planned {
        uid: service.metadata.uid.as_deref().unwrap_or_default().into(),
        standing,
        is_held,
        is_reported,
        ports: spec.ports.iter().flatten().map(port).collect(),
        requested: requested(spec),
        limits: Limits {
            session_affinity: spec.session_affinity.as_deref().is_some_and(|affinity| affinity != "None"),
            source_ranges: spec.load_balancer_source_ranges.as_ref().is_some_and(|ranges| !ranges.is_empty()),
            local_traffic: spec.external_traffic_policy.as_deref() == Some("Local"),
        },
    })
}

/// Whether type and class of a Service ask for a gateway.
pub(super) fn is_asked_for(spec: &ServiceSpec) -> bool {
    spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.as_deref() == Some(CLASS)
}

fn requested(spec: &ServiceSpec) -> Requested {
    match spec.load_balancer_ip.as_deref() {
        None | Some("") => Requested::Any,
        Some(text) => text.parse().map_or_else(|_| Requested::Invalid(text.into()), Requested::Address),
    }
}

fn port(port: &ServicePort) -> Port {
    let target = match &port.target_port {
        None => TargetPort::Same,
        Some(IntOrString::Int(number)) => match u16::try_from(*number) {
            Ok(number) if number > 0 => TargetPort::Number(number),
            _ => TargetPort::Same,
        },
        Some(IntOrString::String(name)) => TargetPort::Name(name.as_str().into()),
    };
    Port {
        name: port.name.as_deref().unwrap_or_default().into(),
        port: u16::try_from(port.port).unwrap_or_default(),
        // what is none of these is refused like SCTP
        protocol: Protocol::parse(port.protocol.as_deref()).unwrap_or(Protocol::Sctp),
        target,
    }
}

/// The Service that a slice belongs to.
pub(super) fn owner(slice: &EndpointSlice) -> Option<ServiceName> {
    let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    Some(ServiceName::new(slice.metadata.namespace.as_deref().unwrap_or_default(), service))
}

/// A slice; names instead of addresses have no node and no tunnel.
pub(super) fn slice(slice: &EndpointSlice) -> Slice {
    let ports = slice.ports.iter().flatten().filter_map(|port| {
        Some(SlicePort {
            name: port.name.as_deref().unwrap_or_default().into(),
            port: u16::try_from(port.port?).ok()?,
            protocol: Protocol::parse(port.protocol.as_deref())?,
        })
    });
    let endpoints = slice.endpoints.iter().flatten().map(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        let is_ready = conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
        let is_terminating = conditions.and_then(|conditions| conditions.terminating).unwrap_or(false);
        SliceEndpoint {
            addresses: endpoint.addresses.iter().filter_map(|address| address.parse().ok()).collect(),
            node: endpoint.node_name.as_deref().map(Arc::from),
            serves: is_ready && !is_terminating,
        }
    });
    Slice { ports: ports.collect(), endpoints: endpoints.collect() }
}

/// The internal addresses of a node.
pub(super) fn node(node: &Node) -> Vec<IpAddr> {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = addresses.filter(|address| address.type_ == "InternalIP");
    internal.filter_map(|address| address.address.parse().ok()).collect()
}

/// The name of a Service by its key.
pub(super) fn name_of(key: &Key) -> ServiceName {
    ServiceName::new(&key.namespace, &key.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(change: &serde_json::Value) -> Option<Planned> {
        let mut object = json!({
            "metadata": { "name": "web", "namespace": "shop", "uid": "u" },
            "spec": { "type": "LoadBalancer", "loadBalancerClass": CLASS, "sessionAffinity": "None",
                "ports": [{ "port": 80, "targetPort": 8080, "protocol": "TCP" }] },
        });
        json_patch::merge(&mut object, change);
        service(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_service_is_ours_by_type_and_class_and_stays_known_while_it_carries_something_of_ours() {
        assert_eq!(read(&json!({})).unwrap().standing, Standing::Ours);
        assert!(read(&json!({ "spec": { "loadBalancerClass": null } })).is_none());
        assert!(read(&json!({ "spec": { "type": "ClusterIP" } })).is_none());
        let held = json!({ "metadata": { "finalizers": [FINALIZER] }, "spec": { "type": "ClusterIP" } });
        assert_eq!(read(&held).unwrap().standing, Standing::Elsewhere);
        let reported = json!({ "type": ANNOUNCED, "status": "True", "reason": "x", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let left = json!({ "spec": { "type": "ClusterIP" }, "status": { "conditions": [reported] } });
        assert!(read(&left).unwrap().is_reported);
    }

    #[test]
    fn fields_that_no_gateway_honours_are_seen() {
        let limits = read(&json!({ "spec": {
            "sessionAffinity": "ClientIP", "loadBalancerSourceRanges": ["10.0.0.0/8"], "externalTrafficPolicy": "Local",
        } }));
        let all = Limits { session_affinity: true, source_ranges: true, local_traffic: true };
        assert_eq!(limits.unwrap().limits, all);
        let sctp = read(&json!({ "spec": { "ports": [{ "port": 80, "protocol": "SCTP" }] } })).unwrap();
        assert_eq!(sctp.ports[0].protocol, Protocol::Sctp);
        let bad = read(&json!({ "spec": { "loadBalancerIP": "here" } })).unwrap();
        assert_eq!(bad.requested, Requested::Invalid("here".into()));
    }

    #[test]
    fn endpoints_serve_when_they_are_ready_and_not_terminating() {
        let object = json!({
            "metadata": { "name": "s", "namespace": "shop", "labels": { SERVICE_NAME: "web" } },
            "addressType": "IPv4", "ports": [{ "name": "http", "port": 8080 }, { "name": "any" }],
            "endpoints": [
                { "addresses": ["10.1.0.1"], "conditions": {} },
                { "addresses": ["10.1.0.2"], "conditions": { "ready": false } },
                { "addresses": ["10.1.0.3"], "conditions": { "ready": true, "terminating": true } },
            ],
        });
        let object: EndpointSlice = serde_json::from_value(object).unwrap();
        let read = slice(&object);
        let serving: Vec<bool> = read.endpoints.iter().map(|endpoint| endpoint.serves).collect();
        assert_eq!((serving, read.ports.len()), (vec![true, false, false], 1));
        assert_eq!(owner(&object), Some(ServiceName::new("shop", "web")));
    }
}
