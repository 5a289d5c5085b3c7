//! Objects of this cluster.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Namespace as WireNamespace, Service};
use kube::Resource;
use kube::api::ObjectMeta;
use portolan_api::well_known::mirror::{
    BARRELMAN, CREATED, HAND_LABELLED, MANAGED, REMOTE, REMOTE_UID, REMOTES, SOURCE_UID,
};
use portolan_core::mirror::{Copied, LocalService, Namespace, RecordedSlice, Role, ServiceName};
use portolan_core::select::Labels;

use super::{annotation, is_ignored, label, spec, uid};
use crate::mirror::names::{IMPORT_NAME, SERVICE_NAME, SOURCE_CLUSTER};
use crate::mirror::observe::Cache;
use crate::mirror::slim::Slice;
use crate::runtime::selector::labels;

/// A Service.
pub(in crate::mirror) fn service(service: &Service) -> LocalService {
    let metadata = service.meta();
    let role = match label(metadata, BARRELMAN) {
        Some(HAND_LABELLED) => Role::HandLabelled,
        Some(MANAGED) => Role::Mirror,
        _ => Role::Foreign,
    };
    let remotes = annotation(metadata, REMOTES)
        .map(|names| names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Arc::from).collect());
    let is_handled = role != Role::Foreign;
    let annotations = || {
        let pairs = metadata.annotations.iter().flatten();
        pairs.map(|(key, value)| (key.as_str(), value.as_str())).collect::<Labels>()
    };
    LocalService {
        uid: uid(metadata),
        role,
        ignored: is_ignored(service),
        owner: label(metadata, REMOTE).map(Arc::from),
        remote_uid: annotation(metadata, REMOTE_UID).map(Arc::from),
        source_uid: annotation(metadata, SOURCE_UID).map(Arc::from),
        owner_reference: owner_reference(metadata),
        remotes,
        spec: spec(service),
        has_selector: service.spec.as_ref().is_some_and(|spec| spec.selector.as_ref().is_some_and(|it| !it.is_empty())),
        deleting: metadata.deletion_timestamp.is_some(),
        // Nobody asks for those of others.
        copied: if is_handled {
            Copied { labels: labels(metadata), annotations: annotations() }
        } else {
            Copied::default()
        },
    }
}

fn owner_reference(metadata: &ObjectMeta) -> Option<Arc<str>> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == "RemoteCluster").map(|owner| owner.uid.as_str().into())
}

/// A slice of ours: the Service it belongs to, and what it is. None if it belongs to nothing.
pub(in crate::mirror) fn recorded_slice(slice: &Slice) -> Option<(ServiceName, RecordedSlice)> {
    let metadata = slice.meta();
    // Those of imports have a Service, too, which is not a mirror.
    let service = label(metadata, SERVICE_NAME).filter(|_| label(metadata, IMPORT_NAME).is_none())?;
    let name = ServiceName::new(metadata.namespace.as_deref().unwrap_or_default(), service);
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.kind == "Service");
    let text = |value: Option<&str>| -> Arc<str> { value.unwrap_or_default().into() };
    let recorded = RecordedSlice {
        remote: text(label(metadata, REMOTE)),
        remote_uid: text(annotation(metadata, REMOTE_UID)),
        cluster_id: text(label(metadata, SOURCE_CLUSTER)),
        service_uid: text(owner.map(|owner| owner.uid.as_str())),
        content: slice.content.clone()?,
    };
    Some((name, recorded))
}

/// A namespace.
pub(in crate::mirror) fn namespace(namespace: &WireNamespace) -> Namespace {
    let metadata = namespace.meta();
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_made = label(metadata, CREATED).is_some();
    Namespace {
        terminating: metadata.deletion_timestamp.is_some() || phase == Some("Terminating"),
        created_for: label(metadata, REMOTE).filter(|_| is_made).map(Arc::from),
    }
}

/// Ranges of this cluster: no remote may make endpoints of them.
pub(in crate::mirror) fn ranges(cache: &Cache, configured: &[IpNet]) -> Vec<IpNet> {
    let mut ranges = configured.to_vec();
    let add_range = |ranges: &mut Vec<IpNet>, text: &str| ranges.extend(text.parse::<IpNet>());
    let add_address = |ranges: &mut Vec<IpNet>, text: &str| ranges.extend(text.parse::<IpAddr>().map(IpNet::from));
    let mut has_service_ranges = false;
    cache.service_cidrs.for_each(|_, found| {
        for range in found.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten()) {
            has_service_ranges = true;
            add_range(&mut ranges, range);
        }
    });
    if !has_service_ranges {
        cache.services.for_each(|_, service| {
            let spec = service.spec.as_ref();
            let addresses = spec.and_then(|spec| spec.cluster_ips.as_ref()).into_iter().flatten();
            addresses.for_each(|address| add_address(&mut ranges, address));
        });
    }
    cache.nodes.for_each(|_, node| {
        let pod_ranges = node.spec.iter().flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
        pod_ranges.for_each(|range| add_range(&mut ranges, range));
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        addresses.for_each(|address| add_address(&mut ranges, &address.address));
    });
    cache.api_server.for_each(|_, slice| {
        let endpoints = slice.content.iter().flat_map(|content| &content.endpoints);
        ranges.extend(endpoints.map(|endpoint| IpNet::from(endpoint.address)));
    });
    ranges.sort();
    ranges.dedup();
    ranges
}
