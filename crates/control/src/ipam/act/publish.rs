//! What OpenShift SDN and users read: HostSubnets, NetNamespaces and annotations of Namespaces.

use std::sync::Arc;

use portolan_core::ipam::{ListAnnotation, NamespaceName, NodeName};
use serde_json::{Value, json};

use super::super::backend::Network;
use super::super::names::{ADDRESS_PREFIX, EGRESSIPS, MODIFIED, STATUS};
use super::super::validate;
use super::acting::Acting;
use super::due::{HostSubnetChange, NamespaceChange, NetNamespaceChange};
use super::ovn;
use crate::runtime::due::Prepared;
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::Kind;

/// What a HostSubnet needs.
pub(super) fn host_subnet(acting: &Acting<'_>, name: &NodeName) -> Prepared<()> {
    let Some(change) = acting.due.host_subnets.get(name) else { return Prepared::Nothing };
    let HostSubnetChange { egress_ips, annotations } = change;
    let store = &acting.cache.host_subnets;
    let Some(seen) = store.get(&Key::of_cluster(name)) else { return Prepared::Nothing };
    let current = validate::host_subnet(&seen);
    if acting.model.world.host_subnets.get(name) != Some(&current) {
        return Prepared::Nothing;
    }
    let mut body = json!({ "egressIPs": validate::texts(egress_ips, &seen.egress_ips) });
    for address in current.annotations.keys().filter(|address| !annotations.contains_key(*address)) {
        body["metadata"]["annotations"][format!("{ADDRESS_PREFIX}{address}")] = Value::Null;
    }
    for (address, namespace) in annotations {
        body["metadata"]["annotations"][format!("{ADDRESS_PREFIX}{address}")] = (**namespace).into();
    }
    merge(acting, store, seen, body)
}

/// What a NetNamespace needs, or the EgressIP in its place.
pub(super) fn net_namespace(acting: &Acting<'_>, name: &NamespaceName) -> Prepared<()> {
    let Some(change) = acting.due.net_namespaces.get(name) else { return Prepared::Nothing };
    if acting.model.network == Network::Ovn {
        return ovn::egress_ip(acting, name);
    }
    let NetNamespaceChange { egress_ips, annotation } = change;
    let store = &acting.cache.net_namespaces;
    let Some(seen) = store.get(&Key::of_cluster(name)) else { return Prepared::Nothing };
    if acting.model.world.net_namespaces.get(name) != Some(&validate::net_namespace(&seen)) {
        return Prepared::Nothing;
    }
    let body = json!({
        "metadata": { "annotations": { EGRESSIPS: annotation.as_deref() } },
        "egressIPs": validate::texts(egress_ips, &seen.egress_ips),
    });
    merge(acting, store, seen, body)
}

/// What a Namespace needs.
pub(super) fn namespace(acting: &Acting<'_>, name: &NamespaceName) -> Prepared<()> {
    let Some(change) = acting.due.namespaces.get(name) else { return Prepared::Nothing };
    let NamespaceChange { egressips, status } = change;
    let store = &acting.cache.namespaces;
    let Some(seen) = store.get(&Key::of_cluster(name)) else { return Prepared::Nothing };
    if acting.model.world.namespaces.get(name) != Some(&validate::namespace(&seen)) {
        return Prepared::Nothing;
    }
    let mut annotations = json!({ STATUS: status.as_deref() });
    match egressips {
        Some(ListAnnotation::Write(list)) => {
            annotations[EGRESSIPS] = (**list).into();
            annotations[MODIFIED] = validate::time(jiff::Timestamp::now()).into();
        }
        Some(ListAnnotation::Remove) => {
            annotations[EGRESSIPS] = Value::Null;
            annotations[MODIFIED] = Value::Null;
        }
        None => {}
    }
    merge(acting, store, seen, json!({ "metadata": { "annotations": annotations } }))
}

pub(super) fn merge<K: Kind>(acting: &Acting<'_>, store: &Store<K>, seen: Arc<K>, body: Value) -> Prepared<()> {
    let (writer, store) = (acting.writer.clone(), store.clone());
    Prepared::write(async move { writer.merge(&store, &*seen, body).await.map(drop) })
}
