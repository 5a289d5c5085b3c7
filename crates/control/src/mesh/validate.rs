//! Kubernetes objects -> the resolver's types. The resolver validates what users wrote; nothing is rejected here.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource;
use portolan_api::mesh::{Route, Rule, Target, VirtualService};
use portolan_core::mesh::control as mesh;
use portolan_core::mesh::control::Change;
use portolan_core::mesh::control::types::{MeshKind, ObjectName};
use portolan_core::select::Labels;
use serde_json::{Map, Value};

use super::intern::Interner;
use super::pod::Pod;
use crate::runtime::store::Key;

/// A kind whose spec is kept as it was written.
pub(super) trait Written: Resource<DynamicType = ()> {
    fn written(&self) -> &Map<String, Value>;
}

macro_rules! written {
    ($($kind:ty),*) => {
        $(impl Written for $kind {
            fn written(&self) -> &Map<String, Value> {
                &self.spec.0
            }
        })*
    };
}
written!(VirtualService, Route, Target, Rule);

pub(super) fn name(key: &Key) -> ObjectName {
    ObjectName::new(key.namespace.as_str(), key.name.as_str())
}

pub(super) fn object<K: Written>(kind: MeshKind, key: &Key, object: Option<&K>) -> Change {
    // one that is being deleted holds nothing any more
    let object = object.filter(|object| object.meta().deletion_timestamp.is_none()).map(|object| {
        let metadata = object.meta();
        mesh::MeshObject {
            uid: Arc::from(metadata.uid.as_deref().unwrap_or_default()),
            created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            labels: labels(metadata.labels.as_ref()),
            annotations: relevant_annotations(metadata.annotations.as_ref()),
            spec: Arc::new(Value::Object(object.written().clone())),
        }
    });
    Change::Object(kind, name(key), object)
}

pub(super) fn service(key: &Key, service: Option<&Service>) -> Change {
    let read = |service: &Service| {
        let spec = service.spec.clone().unwrap_or_default();
        let ports = spec.ports.iter().flatten().filter_map(|port| {
            let target_port = match &port.target_port {
                None => u16::try_from(port.port).ok(),
                Some(IntOrString::Int(number)) => u16::try_from(*number).ok(),
                Some(IntOrString::String(name)) => name.parse().ok(),
            };
            Some(mesh::ServicePort {
                name: Arc::from(port.name.as_deref().unwrap_or_default()),
                protocol: Arc::from(port.protocol.as_deref().unwrap_or_default()),
                app_protocol: port.app_protocol.as_deref().map(Arc::from),
                port: u16::try_from(port.port).ok()?,
                target_port,
            })
        });
        mesh::Service {
            uid: Arc::from(service.metadata.uid.as_deref().unwrap_or_default()),
            annotations: labels(service.metadata.annotations.as_ref()),
            selector: labels(spec.selector.as_ref()),
            ports: ports.collect(),
            external_name: spec.external_name.as_deref().map(Arc::from),
            publish_not_ready: spec.publish_not_ready_addresses == Some(true),
        }
    };
    Change::Service(name(key), service.map(read))
}

pub(super) fn slice(key: &Key, slice: Option<&EndpointSlice>) -> Change {
    let read = |slice: &EndpointSlice| {
        let service = slice.metadata.labels.as_ref()?.get("kubernetes.io/service-name")?;
        let ports = slice.ports.iter().flatten().filter_map(|port| {
            Some(mesh::SlicePort {
                name: Arc::from(port.name.as_deref().unwrap_or_default()),
                port: u16::try_from(port.port?).ok()?,
            })
        });
        let endpoints = slice.endpoints.iter().flatten().filter_map(|endpoint| {
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            let ready = conditions.ready.unwrap_or(true);
            let pod = endpoint.target_ref.as_ref().filter(|target| target.kind.as_deref() == Some("Pod"));
            let pod = pod.and_then(|target| target.name.as_deref());
            Some(mesh::SliceEndpoint {
                address: endpoint.addresses.first()?.parse::<IpAddr>().ok()?,
                ready,
                serving: conditions.serving.unwrap_or(ready),
                terminating: conditions.terminating == Some(true),
                pod: pod.map(|pod| ObjectName::new(key.namespace.as_str(), pod)),
            })
        });
        Some(mesh::EndpointSlice {
            service: Arc::from(service.as_str()),
            ports: ports.collect(),
            endpoints: endpoints.collect(),
        })
    };
    Change::Slice(name(key), slice.and_then(read))
}

pub(super) fn pod(key: &Key, pod: Option<&Pod>, strings: &mut Interner) -> Change {
    Change::Pod(name(key), pod.map(|pod| pod.plain(strings)))
}

pub(super) fn namespace(key: &Key, namespace: Option<&Namespace>) -> Change {
    let annotations = namespace.map(|namespace| labels(namespace.metadata.annotations.as_ref()));
    Change::Namespace(Arc::from(key.name.as_str()), annotations)
}

/// The token with role `write`, from a file with one token and its role per line.
pub(super) fn token(secret: &Secret) -> Option<Arc<str>> {
    let text = secret.data.as_ref()?.get("token")?;
    let text = std::str::from_utf8(&text.0).ok()?;
    text.lines().find_map(|line| {
        let (token, role) = line.trim().split_once(char::is_whitespace)?;
        (role.trim() == "write").then(|| Arc::from(token))
    })
}

/// Annotations that the resolver reads. Of the last applied configuration only its presence matters.
fn relevant_annotations(map: Option<&BTreeMap<String, String>>) -> Labels {
    let some = map.into_iter().flatten().filter_map(|(key, value)| match key.as_str() {
        "kubectl.kubernetes.io/last-applied-configuration" => Some((key.as_str(), "")),
        key if key.starts_with("l7mp.io/") => Some((key, value.as_str())),
        _ => None,
    });
    some.collect()
}

pub(super) fn labels(map: Option<&BTreeMap<String, String>>) -> Labels {
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}
