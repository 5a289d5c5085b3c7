//! Which EndpointSlices a Service should have, as a pure function of what there is.
//!
//! As in Kubernetes: endpoints stay in the slice they are in, slices hold at most 100, a Service without endpoints
//! has one empty slice, and a slice that is no longer needed is used again rather than replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, Node, ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::super::mirror::Key;

pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";
const ZONE: &str = "topology.kubernetes.io/zone";
/// Endpoints in a slice, as Kubernetes' default has it.
const MAX_ENDPOINTS: usize = 100;

/// A write that brings the slices nearer to what they should be.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    Create(EndpointSlice),
    Update(EndpointSlice),
    Delete { name: String, uid: Option<String> },
}

/// What matters of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    namespace: String,
    name: String,
    uid: String,
    labels: BTreeMap<String, String>,
    addresses: Vec<IpAddr>,
    node: Option<String>,
    ready: bool,
    terminating: bool,
    /// It has ended.
    over: bool,
    hostname: Option<String>,
    subdomain: Option<String>,
    /// Named ports with their protocol.
    ports: Vec<(String, String, i32)>,
}

impl Target {
    pub(super) fn read(pod: Pod) -> Self {
        let (namespace, name, uid) =
            (pod.namespace().unwrap_or_default(), pod.name_any(), pod.uid().unwrap_or_default());
        let spec = pod.spec.unwrap_or_default();
        let status = pod.status.unwrap_or_default();
        let ready = status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let sidecars = spec.init_containers.into_iter().flatten();
        let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let ports = spec.containers.into_iter().chain(sidecars).flat_map(named_ports).collect();
        Self {
            namespace,
            name,
            uid,
            labels: pod.metadata.labels.unwrap_or_default(),
            addresses: status.pod_ips.into_iter().flatten().filter_map(|ip| ip.ip.parse().ok()).collect(),
            node: spec.node_name,
            ready,
            terminating: pod.metadata.deletion_timestamp.is_some(),
            over: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            hostname: spec.hostname,
            subdomain: spec.subdomain,
            ports,
        }
    }
}

/// The zone a node says it is in.
pub(super) fn zone(node: Node) -> Option<String> {
    node.metadata.labels.and_then(|mut labels| labels.remove(ZONE)).filter(|zone| !zone.is_empty())
}

/// The writes a service needs; `nodes` maps names to zones, `slices` are those there are.
pub(super) fn plan(
    service: Option<&Service>,
    pods: &[&Target],
    nodes: &BTreeMap<Key, Option<String>>,
    slices: &[&EndpointSlice],
) -> Vec<Change> {
    let Some(service) = service.filter(|service| service.metadata.deletion_timestamp.is_none()) else {
        return slices.iter().map(|slice| delete(slice)).collect();
    };
    let Some(spec) = &service.spec else { return Vec::new() };
    let selector = spec.selector.as_ref().filter(|selector| !selector.is_empty());
    let Some(selector) = selector.filter(|_| spec.type_.as_deref() != Some("ExternalName")) else { return Vec::new() };
    let chosen = |pod: &&&Target| {
        let known = pod.node.as_ref().is_none_or(|node| nodes.contains_key(&(String::new(), node.clone())));
        known && !pod.over && selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
    };
    let pods: Vec<&Target> = pods.iter().filter(chosen).copied().collect();

    let families = families(service);
    let mut changes = Vec::new();
    for family in ["IPv4", "IPv6"] {
        let of_family: Vec<&EndpointSlice> =
            slices.iter().filter(|slice| slice.address_type == family).copied().collect();
        if families.contains(family) {
            changes.extend(plan_family(service, family, &pods, nodes, &of_family));
        } else {
            changes.extend(of_family.into_iter().map(delete));
        }
    }
    changes
}

fn plan_family(
    service: &Service,
    family: &str,
    pods: &[&Target],
    nodes: &BTreeMap<Key, Option<String>>,
    slices: &[&EndpointSlice],
) -> Vec<Change> {
    // Pods may know different ports by the same name: one set of slices for each set of ports.
    let mut wanted: Vec<(Vec<EndpointPort>, Vec<Endpoint>)> = Vec::new();
    for pod in pods {
        let Some(endpoint) = endpoint(service, pod, family, nodes) else { continue };
        let ports = ports(service, pod);
        match wanted.iter_mut().find(|(other, _)| *other == ports) {
            Some((_, endpoints)) => endpoints.push(endpoint),
            None => wanted.push((ports, vec![endpoint])),
        }
    }
    let mut free: Vec<&EndpointSlice> = Vec::new();
    let mut full: Vec<EndpointSlice> = Vec::new();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for (ports, mut endpoints) in wanted {
        let mut filled: Vec<EndpointSlice> = Vec::new();
        for slice in slices.iter().filter(|slice| slice.ports.clone().unwrap_or_default() == ports) {
            let kept = keep(slice, &mut endpoints);
            if !kept.is_empty() {
                used.extend(slice.metadata.name.as_deref());
                filled.push(EndpointSlice { endpoints: Some(kept), ..(*slice).clone() });
            }
        }
        // The fullest first, so that slices stay few.
        filled.sort_by_key(|slice| std::cmp::Reverse(size(slice)));
        for slice in &mut filled {
            let room = MAX_ENDPOINTS.saturating_sub(size(slice)).min(endpoints.len());
            slice.endpoints.get_or_insert_default().extend(endpoints.drain(..room));
        }
        full.append(&mut filled);
        while !endpoints.is_empty() {
            let rest = endpoints.split_off(endpoints.len().min(MAX_ENDPOINTS));
            full.push(blank(service, family, ports.clone(), std::mem::replace(&mut endpoints, rest)));
        }
    }
    if full.is_empty() {
        full.push(blank(service, family, Vec::new(), Vec::new()));
    }
    free.extend(slices.iter().filter(|slice| slice.metadata.name.as_deref().is_none_or(|name| !used.contains(name))));
    settle(service, full, free, slices)
}

/// Turns slices as they should be into writes; a slice nobody needs takes the place of one to be created.
fn settle(
    service: &Service,
    wanted: Vec<EndpointSlice>,
    mut free: Vec<&EndpointSlice>,
    slices: &[&EndpointSlice],
) -> Vec<Change> {
    let mut changes = Vec::new();
    for mut slice in wanted {
        if slice.metadata.name.is_none() && !free.is_empty() {
            slice.metadata = free.remove(0).metadata.clone();
        }
        slice.metadata.labels = Some(labels(service));
        slice.metadata.owner_references = Some(vec![owner(service)]);
        match slices.iter().find(|old| slice.metadata.name.is_some() && old.metadata.name == slice.metadata.name) {
            None => changes.push(Change::Create(slice)),
            Some(old) if same(old, &slice) => {}
            Some(_) => changes.push(Change::Update(slice)),
        }
    }
    changes.extend(free.into_iter().map(delete));
    changes
}

/// Whether two slices say the same; an absent list is an empty one.
fn same(left: &EndpointSlice, right: &EndpointSlice) -> bool {
    left.endpoints.as_deref().unwrap_or_default() == right.endpoints.as_deref().unwrap_or_default()
        && left.ports.as_deref().unwrap_or_default() == right.ports.as_deref().unwrap_or_default()
        && left.metadata.labels == right.metadata.labels
        && left.metadata.owner_references == right.metadata.owner_references
}

fn size(slice: &EndpointSlice) -> usize {
    slice.endpoints.as_ref().map_or(0, Vec::len)
}

/// The endpoints of a slice that are still wanted, brought up to date and taken from `wanted`.
fn keep(slice: &EndpointSlice, wanted: &mut Vec<Endpoint>) -> Vec<Endpoint> {
    let identity = |endpoint: &Endpoint| (endpoint.addresses.clone(), endpoint.target_ref.clone());
    let kept = slice.endpoints.iter().flatten().filter_map(|old| {
        let at = wanted.iter().position(|endpoint| identity(endpoint) == identity(old))?;
        Some(wanted.remove(at))
    });
    kept.collect()
}

fn endpoint(service: &Service, pod: &Target, family: &str, nodes: &BTreeMap<Key, Option<String>>) -> Option<Endpoint> {
    let addresses: Vec<String> =
        pod.addresses.iter().filter(|ip| ip.is_ipv6() == (family == "IPv6")).map(ToString::to_string).collect();
    if addresses.is_empty() {
        return None;
    }
    let publish = service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses).unwrap_or_default();
    let zone = pod.node.as_ref().and_then(|node| nodes.get(&(String::new(), node.clone()))).cloned().flatten();
    let hostname = pod.hostname.clone().filter(|_| pod.subdomain.as_deref() == service.metadata.name.as_deref());
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(publish || (pod.ready && !pod.terminating)),
            serving: Some(pod.ready),
            terminating: Some(pod.terminating),
        }),
        hostname,
        node_name: pod.node.clone(),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.namespace.clone()),
            name: Some(pod.name.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        }),
        zone,
        ..Endpoint::default()
    })
}

fn ports(service: &Service, pod: &Target) -> Vec<EndpointPort> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let ports = ports.iter().filter_map(|port| {
        Some(EndpointPort {
            app_protocol: port.app_protocol.clone(),
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(number(port, pod)?),
            protocol: Some(protocol(port.protocol.as_ref())),
        })
    });
    ports.collect()
}

fn number(port: &ServicePort, pod: &Target) -> Option<i32> {
    match port.target_port.as_ref() {
        None => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let wanted = protocol(port.protocol.as_ref());
            let mut found = pod.ports.iter().filter(|(other, protocol, _)| other == name && *protocol == wanted);
            found.next().map(|(_, _, number)| *number)
        }
    }
}

fn named_ports(container: Container) -> impl Iterator<Item = (String, String, i32)> {
    container
        .ports
        .into_iter()
        .flatten()
        .filter_map(|port| Some((port.name?, protocol(port.protocol.as_ref()), port.container_port)))
}

fn protocol(protocol: Option<&String>) -> String {
    protocol.cloned().unwrap_or_else(|| "TCP".to_owned())
}

fn families(service: &Service) -> BTreeSet<&str> {
    let spec = service.spec.as_ref();
    let families: BTreeSet<&str> =
        spec.and_then(|spec| spec.ip_families.as_ref()).into_iter().flatten().map(String::as_str).collect();
    if !families.is_empty() {
        return families;
    }
    match spec.and_then(|spec| spec.cluster_ip.as_ref()).and_then(|ip| ip.parse().ok()) {
        Some(IpAddr::V4(_)) => BTreeSet::from(["IPv4"]),
        Some(IpAddr::V6(_)) => BTreeSet::from(["IPv6"]),
        None => BTreeSet::from(["IPv4", "IPv6"]),
    }
}

/// A slice that does not exist yet.
fn blank(service: &Service, family: &str, ports: Vec<EndpointPort>, endpoints: Vec<Endpoint>) -> EndpointSlice {
    let name = service.name_any();
    // A name of full length leaves no room for a dash.
    let dash = if name.len() < 63 { "-" } else { "" };
    EndpointSlice {
        address_type: family.to_owned(),
        endpoints: Some(endpoints).filter(|endpoints| !endpoints.is_empty()),
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}{dash}")),
            namespace: service.namespace(),
            ..ObjectMeta::default()
        },
        ports: Some(ports).filter(|ports| !ports.is_empty()),
    }
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.labels().clone();
    labels.remove(HEADLESS);
    let ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
    if matches!(ip, "" | "None") {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), service.name_any());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn owner(service: &Service) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Service".to_owned(),
        name: service.name_any(),
        uid: service.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn delete(slice: &EndpointSlice) -> Change {
    Change::Delete { name: slice.name_any(), uid: slice.uid() }
}

#[cfg(test)]
mod tests;
