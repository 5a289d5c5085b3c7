//! Objects of a remote.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node as WireNode, Service};
use kube::Resource;
use portolan_api::well_known::mirror::{BARRELMAN, MANAGED, REMOTE};
use portolan_core::mirror::{AddressKind, Node, NodeAddress, Rules, ServiceName, Source, SourceEndpoint, SourceSlice};
use portolan_core::select::{Labels, Selector};

use super::{annotation, created, is_ignored, label, spec, uid};
use crate::mirror::names::{LINKERD_MIRROR, SERVICE_NAME};
use crate::mirror::slim::Slice;
use crate::runtime::selector::labels;

/// A Service, with what the rules of its remote look at.
pub(in crate::mirror) fn source(service: &Service, rules: &Rules) -> Source {
    let metadata = service.meta();
    let mut owners = metadata.owner_references.iter().flatten();
    let is_import = owners.any(|owner| owner.kind == "ServiceImport");
    let is_mirror = label(metadata, BARRELMAN) == Some(MANAGED)
        || label(metadata, REMOTE).is_some()
        || label(metadata, LINKERD_MIRROR).is_some();
    let copied = rules.copy.annotations.iter().filter_map(|key| Some((&**key, annotation(metadata, key)?)));
    let ingress = service.status.iter().flat_map(|status| &status.load_balancer);
    let ingress: Vec<_> = ingress.flat_map(|balancer| balancer.ingress.iter().flatten()).collect();
    let policy = service.spec.as_ref().and_then(|spec| spec.external_traffic_policy.as_deref());
    Source {
        uid: uid(metadata),
        created: created(metadata),
        labels: labels(metadata),
        annotations: copied.collect::<Labels>(),
        spec: spec(service),
        ignored: is_ignored(service),
        is_mirror: is_mirror || is_import,
        deleting: metadata.deletion_timestamp.is_some(),
        local_traffic_only: policy == Some("Local"),
        ingress: ingress.iter().filter_map(|ingress| ingress.ip.as_ref()?.parse().ok()).collect(),
        ingress_has_hostname: ingress.iter().any(|ingress| ingress.hostname.is_some()),
    }
}

/// A node. It is not damped: that is decided over time.
pub(in crate::mirror) fn node(node: &WireNode, rules: &Rules) -> Node {
    let metadata = node.meta();
    let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
    let condition = |kind: &str| {
        let mut conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.find(|condition| condition.type_ == kind).map(|condition| condition.status.as_str())
    };
    let has_network = condition("NetworkUnavailable").is_none_or(|status| status == "False");
    let mut taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    let addresses = status.into_iter().flat_map(|status| status.addresses.iter().flatten());
    let addresses = addresses.filter_map(|address| {
        let kind = match address.type_.as_str() {
            "InternalIP" => AddressKind::Internal,
            "ExternalIP" => AddressKind::External,
            _ => return None,
        };
        Some(NodeAddress { kind, address: address.address.parse::<IpAddr>().ok()? })
    });
    Node {
        created: created(metadata),
        // Those that nothing selects by would only make differences.
        labels: if rules.nodes.selector == Selector::default() { Labels::default() } else { labels(metadata) },
        ready: condition("Ready") == Some("True") && has_network,
        damped: false,
        excluded: label(metadata, "node.kubernetes.io/exclude-from-external-load-balancers").is_some(),
        cordoned: spec.is_some_and(|spec| spec.unschedulable == Some(true)),
        leaving: metadata.deletion_timestamp.is_some()
            || taints.any(|taint| taint.key == "ToBeDeletedByClusterAutoscaler"),
        addresses: addresses.collect(),
        zone: label(metadata, "topology.kubernetes.io/zone").map(Arc::from),
    }
}

/// A slice: the Service it belongs to, and what it is. None if it belongs to none, or has no addresses.
pub(in crate::mirror) fn source_slice(slice: &Slice) -> Option<(ServiceName, SourceSlice)> {
    let metadata = slice.meta();
    let service = label(metadata, SERVICE_NAME)?;
    let name = ServiceName::new(metadata.namespace.as_deref().unwrap_or_default(), service);
    let content = slice.content.as_ref()?;
    let endpoints = content.endpoints.iter().zip(&slice.nodes);
    let slice = SourceSlice {
        family: content.family,
        ports: content.ports.clone(),
        endpoints: endpoints
            .map(|(endpoint, node)| SourceEndpoint { endpoint: endpoint.clone(), node: node.clone() })
            .collect(),
    };
    Some((name, slice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn a_node_is_ready_by_its_conditions_in_any_order_and_has_only_addresses_that_are_some(
            conditions in prop::collection::vec((
                prop::sample::select(vec!["Ready", "NetworkUnavailable", "MemoryPressure", ""]),
                prop::sample::select(vec!["True", "False", "Unknown", "true"]),
            ), 0..5),
            addresses in prop::collection::vec((
                prop::sample::select(vec!["InternalIP", "ExternalIP", "Hostname", "InternalDNS", ""]),
                prop_oneof![any::<IpAddr>().prop_map(|address| address.to_string()), any::<String>()],
            ), 0..5),
        ) {
            let first = |kind: &str| conditions.iter().find(|(of, _)| *of == kind).map(|(_, status)| *status);
            let wire = json!({ "metadata": { "name": "n" }, "status": {
                "conditions": conditions.iter().map(|(kind, status)| json!({ "type": kind, "status": status })).collect::<Vec<_>>(),
                "addresses": addresses.iter().map(|(kind, address)| json!({ "type": kind, "address": address })).collect::<Vec<_>>(),
            } });
            let read = node(&serde_json::from_value(wire).unwrap(), &Rules::default());
            prop_assert_eq!(read.ready, first("Ready") == Some("True") && matches!(first("NetworkUnavailable"), None | Some("False")));
            let usable = addresses.iter().filter(|(kind, address)| kind.ends_with("IP") && address.parse::<IpAddr>().is_ok());
            prop_assert_eq!(read.addresses.len(), usable.count());
        }
    }
}
