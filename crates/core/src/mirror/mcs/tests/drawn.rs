//! Exports and clusters, drawn.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::lab::{View, endpoint, port, remote, slice};
use crate::mirror::mcs::*;
use crate::mirror::{
    EndpointConditions, NamespacePattern, Protocol, ServiceName, ServicePort, ServiceSpec, ServiceType, SourceSlice,
    SourceSlices, StalePolicy, Sync,
};
use crate::net::Family;
use crate::select::Labels;

/// Addresses that a remote may not use: special ones and those of this cluster.
pub(super) const REFUSED: [&str; 6] =
    ["127.0.0.1", "169.254.169.254", "10.96.0.1", "224.0.0.1", "::ffff:10.1.0.1", "fd00:ec2::254"];

const NAMES: [(&str, &str); 4] = [("shop", "web"), ("shop", "db"), ("kube-system", "dns"), ("nowhere", "web")];

/// Something for some of the names.
fn by_name<T: std::fmt::Debug>(
    share: f64,
    values: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = BTreeMap<ServiceName, T>> {
    prop::collection::vec(prop::option::weighted(share, values), NAMES.len()).prop_map(|values| {
        let named = NAMES.iter().map(|(namespace, name)| ServiceName::new(*namespace, *name)).zip(values);
        named.filter_map(|(name, value)| Some((name, value?))).collect()
    })
}

fn rarely() -> impl Strategy<Value = bool> + Clone {
    prop::bool::weighted(0.1)
}

/// One unnamed port, or several with names; numbers and protocols that often clash with those of others.
fn ports() -> impl Strategy<Value = Vec<ServicePort>> + Clone {
    let protocol = || prop::sample::select(vec![Protocol::Tcp, Protocol::Udp]);
    let spoken = || prop::option::weighted(0.2, Just("http".into()));
    let named = prop::collection::btree_map(
        prop::sample::select(&["a", "b", "c"][..]),
        (protocol(), 80_u16..83, spoken()),
        0..4,
    )
    .prop_map(|ports| {
        let mut made: Vec<ServicePort> = Vec::new();
        for (name, (protocol, number, app_protocol)) in ports {
            if !made.iter().any(|port| (port.protocol, port.port) == (protocol, number)) {
                made.push(ServicePort { app_protocol, ..port(name, protocol, number) });
            }
        }
        made
    });
    let unnamed = (protocol(), 80_u16..83).prop_map(|(protocol, number)| vec![port("", protocol, number)]);
    prop_oneof![4 => named, 1 => unnamed].prop_shuffle()
}

fn services() -> impl Strategy<Value = ExportedService> + Clone {
    let types = prop::sample::select(vec![
        ServiceType::ClusterIp,
        ServiceType::ClusterIp,
        ServiceType::ClusterIp,
        ServiceType::ClusterIp,
        ServiceType::NodePort,
        ServiceType::LoadBalancer,
        ServiceType::ExternalName,
    ]);
    let families = prop::sample::select(vec![
        vec![Family::V4],
        vec![Family::V6],
        vec![Family::V4, Family::V6],
        vec![Family::V6, Family::V4],
    ]);
    let affinity = prop::option::of(10_u32..12);
    let spec = (types, prop::bool::weighted(0.3), families, ports(), affinity).prop_map(
        |(service_type, headless, families, ports, session_affinity)| ServiceSpec {
            service_type,
            headless: headless && service_type == ServiceType::ClusterIp,
            dual_stack: families.len() > 1,
            families,
            ports,
            session_affinity,
        },
    );
    let distribution = prop::option::of(prop::sample::select(vec!["PreferClose", "Unheard"]));
    (spec, any::<bool>(), distribution, rarely(), rarely()).prop_map(
        |(spec, is_local, distribution, is_mirror, deleting)| ExportedService {
            spec,
            internal_traffic_policy: if is_local {
                InternalTrafficPolicy::Local
            } else {
                InternalTrafficPolicy::Cluster
            },
            traffic_distribution: distribution.map(Into::into),
            is_mirror,
            deleting,
        },
    )
}

fn slices() -> impl Strategy<Value = SourceSlice> + Clone {
    let addresses = ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "fd00:1::1", "fd00:1::2"];
    let addresses = prop::sample::subsequence([&addresses[..], &REFUSED].concat(), 0..6).prop_shuffle();
    let ports = prop::collection::vec((prop::sample::select(&["", "a", "b", "c"][..]), any::<bool>()), 0..4);
    (any::<bool>(), ports, addresses, any::<bool>(), prop::option::of(prop::sample::select(&["n1", "n2"][..])))
        .prop_map(|(is_v4, ports, addresses, ready, node)| {
            let mut made = slice(&[]);
            let of_ports = made.ports.pop().into_iter().flat_map(|port| {
                ports.iter().map(move |(name, is_tcp)| crate::mirror::EndpointPort {
                    name: (*name).into(),
                    protocol: if *is_tcp { Protocol::Tcp } else { Protocol::Udp },
                    ..port.clone()
                })
            });
            made.ports = of_ports.collect();
            made.family = if is_v4 { Family::V4 } else { Family::V6 };
            made.endpoints = addresses.into_iter().map(|address| endpoint(address, node)).collect();
            if let Some(first) = made.endpoints.first_mut().filter(|_| !ready) {
                first.endpoint.conditions = EndpointConditions::DRAINING;
            }
            made
        })
}

fn labels() -> impl Strategy<Value = Labels> + Clone {
    let keys = prop::sample::select(&["a", "b", "tfw.io/barrelman"][..]);
    let values = prop::sample::select(&["x", "y"][..]);
    prop::option::of((keys, values)).prop_map(|pair| pair.into_iter().collect())
}

pub(super) fn exports() -> impl Strategy<Value = Exports> {
    let export = (0_i64..3, labels(), labels(), rarely()).prop_map(|(created, labels, annotations, deleting)| Export {
        created,
        labels,
        annotations,
        deleting,
    });
    let of_service = prop::collection::vec(slices(), 0..3).prop_map(|slices| {
        let named = slices.into_iter().enumerate();
        named.map(|(number, slice)| (format!("s{number}").into(), slice)).collect()
    });
    let read = by_name(0.8, of_service).prop_map(SourceSlices::Read);
    let slices = prop_oneof![8 => read, 1 => Just(SourceSlices::Unread), 1 => Just(SourceSlices::Forbidden)];
    let exports = by_name(0.6, export);
    (exports, by_name(0.9, services()), slices).prop_map(|(exports, services, slices)| Exports {
        exports,
        services,
        slices,
    })
}

fn remotes(cluster_id: &'static str) -> impl Strategy<Value = RemoteMember> {
    let sync = prop::sample::select(vec![Sync::Complete, Sync::Complete, Sync::Broken, Sync::Listing]);
    let stale = prop::sample::select(vec![StalePolicy::Keep, StalePolicy::NotReady, StalePolicy::Remove]);
    (exports(), sync, stale, (rarely(), rarely(), rarely()), 1_usize..6).prop_map(
        move |(exports, sync, policy, (stale, paused, denies), limit)| {
            let mut made = remote(cluster_id, exports);
            (made.sync, made.stale, made.paused) = (sync, stale, paused);
            (made.rules.stale, made.rules.limits.services) = (policy, limit);
            if denies {
                made.rules.namespaces.deny = vec![NamespacePattern::new("shop")];
            }
            made
        },
    )
}

/// Two remotes; either may be missing.
fn two_remotes() -> impl Strategy<Value = Vec<RemoteMember>> {
    (prop::option::weighted(0.9, remotes("east")), prop::option::weighted(0.7, remotes("west")))
        .prop_map(|(east, west)| east.into_iter().chain(west).collect())
}

/// A cluster with what an earlier state of all clusters left behind.
pub(super) fn views() -> impl Strategy<Value = View> {
    let families = prop::option::of(prop::sample::subsequence(vec![Family::V4, Family::V6], 1..3));
    let gone = prop::bool::weighted(0.3);
    (exports(), two_remotes(), exports(), two_remotes(), families, gone).prop_map(
        |(own_before, before, own, remotes, families, gone)| {
            let mut view = View::new("here", own_before, before);
            view.here.families = families.map(|families| families.into_iter().collect());
            view.settle();
            view.set.local.exports = own;
            view.set.remotes = View::new("", Exports::default(), remotes).set.remotes;
            if gone {
                view.here.gone_remotes.insert("uid-east".into());
            }
            view
        },
    )
}

/// What three clusters export, all of it known to all of them.
pub(super) fn known_exports() -> impl Strategy<Value = [Exports; 3]> {
    let read = || {
        exports().prop_map(|mut exports| {
            if !matches!(exports.slices, SourceSlices::Read(_)) {
                exports.slices = SourceSlices::Read(BTreeMap::new());
            }
            exports
        })
    };
    [read(), read(), read()]
}
