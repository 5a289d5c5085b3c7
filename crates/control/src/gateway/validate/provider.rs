//! What the provider writes: EGW, Account, NodeConfig, ServicePrefix; and namespaces.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;
use kube::ResourceExt as _;
use portolan_api::gateway::{Account, Egw, EgwStatus, NodeConfig, PendingNumber, PendingService, ServicePrefix, Space};
use portolan_api::well_known::gateway::{ACCOUNT_FINALIZER, CREATED_BY, DELETE_WITH_CONTENTS};
use portolan_core::gateway::prefix::{Fence, Prefix, PrefixText};
use portolan_core::gateway::reserve::{Holder, Parent};
use portolan_core::gateway::{self as core, Limits, PROVIDER_NAMESPACE, Problem, Settings};

use super::super::names::{EGW, GATEWAY, NODE_CONFIG};
use super::identity;
use super::parts::{invalid, is_label, tunnel_endpoint};
use crate::runtime::store::Key;

/// Numbers of the EGW.
pub(in super::super) fn egw(object: &Egw) -> core::Egw {
    let status = object.status.clone().unwrap_or_default();
    let of = |space: Space, counter: u32| {
        let pending = status.pending.iter().filter(|entry| entry.space == space);
        Parent { counter, pending: pending.map(|entry| (holder(entry), entry.key)).collect() }
    };
    core::Egw {
        accounts: of(Space::Account, status.current_account_gue_key.into()),
        tunnels: of(Space::Tunnel, status.current_tunnel_id),
    }
}

fn holder(entry: &PendingNumber) -> Holder {
    Holder {
        uid: entry.uid.as_str().into(),
        object: entry.holder.as_str().into(),
        node: entry.node_address.as_ref().and_then(|address| address.parse().ok()),
    }
}

/// Reservations, as they are on the wire.
pub(in super::super) fn parents(accounts: &Parent, tunnels: &Parent, before: &EgwStatus) -> EgwStatus {
    let entries = |space: Space, parent: &Parent| {
        let mut entries: Vec<PendingNumber> = parent
            .pending
            .iter()
            .map(|(holder, key)| PendingNumber {
                space,
                key: *key,
                holder: holder.object.to_string(),
                uid: holder.uid.to_string(),
                node_address: holder.node.map(|node| node.to_string()),
            })
            .collect();
        entries.sort_by_key(|entry| entry.key);
        entries
    };
    let mut pending = entries(Space::Account, accounts);
    pending.extend(entries(Space::Tunnel, tunnels));
    EgwStatus {
        current_account_gue_key: u16::try_from(accounts.counter).unwrap_or(u16::MAX),
        current_tunnel_id: tunnels.counter,
        pending,
        conditions: before.conditions.clone(),
    }
}

/// A tenant.
pub(in super::super) fn account(object: &Account, settings: &Settings) -> core::Account {
    let status = object.status.clone().unwrap_or_default();
    let name = object.name_any();
    let wanted = object.spec.limits.clone().unwrap_or_default();
    let defaults = settings.limits;
    let namespace = core::namespace_of(&name);
    let problem = if !is_label(&name, 59) {
        Some(invalid(
            "metadata.name: use at most 59 lower case letters, digits and dashes: it becomes part of a namespace's name",
        ))
    } else if !settings.own_namespace.is_empty() && namespace == *settings.own_namespace {
        Some(invalid(format!("metadata.name: namespace `{namespace}` is the operator's own: choose another name")))
    } else {
        None
    };
    let pending = status.pending.iter().map(|PendingService { key, holder, uid }| {
        let holder = Holder { uid: uid.as_str().into(), object: holder.as_str().into(), node: None };
        (holder, u32::from(*key))
    });
    core::Account {
        identity: identity(object, ACCOUNT_FINALIZER),
        key: Some(object.spec.gue_key).filter(|key| *key != 0),
        limits: Limits {
            load_balancers: wanted.load_balancers.unwrap_or(defaults.load_balancers),
            addresses: wanted.addresses.unwrap_or(defaults.addresses),
            endpoints_per_load_balancer: wanted
                .endpoints_per_load_balancer
                .unwrap_or(defaults.endpoints_per_load_balancer),
        },
        services: Parent { counter: status.current_service_gue_key.into(), pending: pending.collect() },
        is_deleted_with_contents: object.annotations().get(DELETE_WITH_CONTENTS).is_some_and(|value| value == "true"),
        problem,
    }
}

/// A namespace of the provider or of an account; none if it is another one.
pub(in super::super) fn namespace(object: &k8s::Namespace) -> Option<core::Namespace> {
    let name = object.name_any();
    (name == PROVIDER_NAMESPACE || core::account_of(&name).is_some()).then(|| core::Namespace {
        is_ours: object.annotations().get(CREATED_BY).is_some_and(|by| by == GATEWAY),
        is_terminating: object.metadata.deletion_timestamp.is_some(),
    })
}

/// Where tunnels end.
pub(in super::super) fn node_config(object: &NodeConfig) -> core::NodeConfig {
    let endpoint = &object.spec.base.gue_endpoint;
    let parsed = tunnel_endpoint(endpoint);
    let is_udp = endpoint.egw_port.protocol.as_ref().is_none_or(|protocol| protocol.eq_ignore_ascii_case("udp"));
    let problem = if parsed.is_none() && !endpoint.egw_address.is_empty() {
        let written = &endpoint.egw_address;
        Some(invalid(format!("spec.base.gue-endpoint.egw-address: `{written}` is not an address")))
    } else if !is_udp || endpoint.egw_port.port == 0 {
        Some(invalid("spec.base.gue-endpoint.egw-port: tunnels use a UDP port, 1 to 65535"))
    } else {
        None
    };
    core::NodeConfig { endpoint: parsed.filter(|_| problem.is_none()).map(Arc::new), problem }
}

/// Public addresses.
pub(in super::super) fn service_prefix(object: &ServicePrefix) -> core::ServicePrefix {
    let spec = &object.spec;
    let prefix = Prefix::parse(PrefixText {
        subnet: &spec.subnet,
        pool: &spec.pool,
        gateway: spec.gateway.as_deref().unwrap_or_default(),
        extra_pools: &spec.extra_pools,
        reserved: &spec.reserved,
    });
    let accounts = spec.accounts.as_ref();
    let fence = accounts.map(|accounts| accounts.iter().map(|account| Arc::from(account.as_str())).collect());
    core::ServicePrefix { identity: identity(object, ""), prefix, fence: Fence(fence), problem: aggregation(object) }
}

fn aggregation(object: &ServicePrefix) -> Option<Problem> {
    let spec = &object.spec;
    let Some(length) = spec.aggregation.strip_prefix('/') else {
        let is_default = spec.aggregation == "default";
        return (!is_default).then(|| invalid("spec.aggregation: use `default`, or a length like /32"));
    };
    let (_, subnet) = spec.subnet.split_once('/')?;
    let shortest: u8 = subnet.parse().ok()?;
    let longest = if spec.subnet.contains(':') { 128 } else { 32 };
    let fits = length.parse::<u8>().is_ok_and(|length| (shortest..=longest).contains(&length));
    (!fits).then(|| invalid(format!("spec.aggregation: use a length from /{shortest} to /{longest}")))
}

/// What is wrong with an object that is not where its kind is used; none if it is.
pub(in super::super) fn misplaced(kind: &'static str, key: &Key) -> Option<Problem> {
    let is_of_provider = key.namespace == PROVIDER_NAMESPACE;
    match kind {
        "EGW" if !is_of_provider || key.name != EGW => {
            Some(Problem::NotSingleton { expected: "EGW `egw` in namespace egw" })
        }
        "NodeConfig" if !is_of_provider || key.name != NODE_CONFIG => {
            Some(Problem::NotSingleton { expected: "NodeConfig `default` in namespace egw" })
        }
        "Account" | "ServicePrefix" if !is_of_provider => {
            Some(invalid(format!("{kind}s are in namespace egw: create it there, and delete this one")))
        }
        _ => None,
    }
}
