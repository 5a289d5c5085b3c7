//! Endpoints in the old form, beside EndpointSlices, for clients that read nothing else: only where a remote asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort as WirePort, EndpointSubset, Endpoints};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use portolan_api::well_known::mirror::{BARRELMAN, HAND_LABELLED, REMOTE};
use portolan_core::mirror::{EndpointPort, LocalService, RecordedSlice, Role, ServiceName};
use portolan_core::net::Family;

use super::acting::Acting;
use crate::mirror::model::Model;
use crate::mirror::observe::{Cache, service_key};
use crate::runtime::due::Prepared;
use crate::runtime::endpoint::Part;

/// Whether a Service may have Endpoints to write or to delete.
pub(super) fn is_due(model: &Model, cache: &Cache, name: &ServiceName) -> bool {
    model.readings.values().any(|reading| reading.declared.writes_endpoints)
        || cache.endpoints.get(&service_key(name)).is_some_and(|seen| is_ours(&seen))
}

fn is_ours(endpoints: &Endpoints) -> bool {
    endpoints.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(REMOTE))
}

/// Writes the Endpoints of a Service whose slices are as they should be.
pub(super) fn prepare(acting: &Acting<'_>, name: &ServiceName) -> Prepared<()> {
    let Acting { writer, cache, model, rate, .. } = acting;
    let local = &model.planner.world().local;
    let is_settled = model.decisions.get(name).is_none_or(portolan_core::mirror::Decision::is_settled);
    if !is_settled {
        return Prepared::Nothing;
    }
    let seen = cache.endpoints.get(&service_key(name));
    let service = local.services.get(name).filter(|service| !service.deleting && service.role != Role::Foreign);
    let want = service.and_then(|service| wanted(model, name, service));
    let (writer, rate, store) = ((*writer).clone(), (*rate).clone(), cache.endpoints.clone());
    match (want, seen) {
        (Some(want), None) => Prepared::write(async move {
            rate.take().await;
            match writer.create(&store, &want).await {
                // Somebody else's: it is left alone.
                Err(problem) if problem.is_already_exists() => Ok(()),
                made => made.map(drop),
            }
        }),
        (Some(mut want), Some(seen)) if is_ours(&seen) && differs(&seen, &want) => {
            want.metadata.resource_version.clone_from(&seen.metadata.resource_version);
            want.metadata.uid.clone_from(&seen.metadata.uid);
            Prepared::write(async move {
                rate.take().await;
                writer.replace(&store, Part::Object, &want).await.map(drop)
            })
        }
        (None, Some(seen)) if is_ours(&seen) => Prepared::write(async move {
            rate.take().await;
            writer.delete(&store, seen.as_ref()).await.map(drop)
        }),
        (_, _) => Prepared::Nothing,
    }
}

/// The Endpoints of a Service: its slices of the first family. None: no remote of these asks for it.
fn wanted(model: &Model, name: &ServiceName, service: &LocalService) -> Option<Endpoints> {
    let asks = |slice: &&RecordedSlice| {
        model.readings.get(&slice.remote).is_some_and(|reading| reading.declared.writes_endpoints)
    };
    let slices: Vec<&RecordedSlice> =
        model.planner.world().local.slices.get(name).into_iter().flat_map(BTreeMap::values).filter(asks).collect();
    let remote = slices.first()?.remote.to_string();
    let family = service.spec.families.first().copied().unwrap_or(Family::V4);
    let mut groups: BTreeMap<&[EndpointPort], BTreeMap<IpAddr, bool>> = BTreeMap::new();
    let (mut room, mut is_cut) = (MOST_ADDRESSES, false);
    for slice in slices.iter().filter(|slice| slice.content.family == family) {
        for endpoint in &slice.content.endpoints {
            is_cut |= room == 0;
            if room > 0 {
                let group = groups.entry(&slice.content.ports).or_default();
                room -= usize::from(group.insert(endpoint.address, endpoint.conditions.ready).is_none());
            }
        }
    }
    let labels = [(BARRELMAN, HAND_LABELLED), (SKIP_MIRROR, "true"), (REMOTE, &remote)];
    let annotations = is_cut.then(|| BTreeMap::from([(OVER_CAPACITY.to_owned(), "truncated".to_owned())]));
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Service".to_owned(),
        name: name.name.to_string(),
        uid: service.uid.to_string(),
        ..OwnerReference::default()
    };
    Some(Endpoints {
        metadata: ObjectMeta {
            name: Some(name.name.to_string()),
            namespace: Some(name.namespace.to_string()),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            annotations,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        subsets: Some(groups.into_iter().map(|(ports, addresses)| subset(ports, &addresses)).collect()),
    })
}

fn subset(ports: &[EndpointPort], addresses: &BTreeMap<IpAddr, bool>) -> EndpointSubset {
    let of = |ready: bool| -> Option<Vec<EndpointAddress>> {
        let address = |ip: &IpAddr| EndpointAddress { ip: ip.to_string(), ..EndpointAddress::default() };
        let found: Vec<_> = addresses.iter().filter(|(_, is)| **is == ready).map(|(ip, _)| address(ip)).collect();
        (!found.is_empty()).then_some(found)
    };
    let port = |port: &EndpointPort| WirePort {
        name: Some(port.name.to_string()).filter(|name| !name.is_empty()),
        port: port.port.into(),
        protocol: Some(port.protocol.as_str().to_owned()),
        app_protocol: port.app_protocol.as_deref().map(str::to_owned),
    };
    EndpointSubset {
        addresses: of(true),
        not_ready_addresses: of(false),
        ports: Some(ports.iter().map(port).collect()),
    }
}

/// The API server orders and groups subsets its own way, so they are compared address by address.
fn differs(seen: &Endpoints, want: &Endpoints) -> bool {
    let owner = |endpoints: &Endpoints| {
        endpoints.metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect::<BTreeSet<_>>()
    };
    flat(seen) != flat(want) || seen.metadata.labels != want.metadata.labels || owner(seen) != owner(want)
}

type Flat = BTreeSet<(String, bool, Option<String>, Option<String>, i32, Option<String>)>;

fn flat(endpoints: &Endpoints) -> Flat {
    let mut all = Flat::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let others = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        for (address, is_ready) in ready.chain(others) {
            for port in subset.ports.iter().flatten() {
                let WirePort { name, protocol, port, app_protocol } = port.clone();
                let name = name.filter(|name| !name.is_empty());
                all.insert((address.ip.clone(), is_ready, name, protocol, port, app_protocol));
            }
        }
    }
    all
}

/// Kubernetes makes EndpointSlices of Endpoints without this label, and there are some already.
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
/// What Kubernetes writes on Endpoints that do not hold all addresses.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// As many as Kubernetes writes itself.
const MOST_ADDRESSES: usize = 1000;
