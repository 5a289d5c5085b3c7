//! CloudPrivateIPConfigs that we serve: the finalizer before the first call, then what became of the address.

use std::net::Ipv4Addr;

use kube::ResourceExt as _;
use kube::api::TypeMeta;
use portolan_api::ipam::CloudPrivateIpConfig;
use portolan_core::ipam::PrivateIpChange;
use serde_json::json;

use super::super::names::PRIVATE_IP_FINALIZER;
use super::super::validate;
use super::acting::Acting;
use super::publish::merge;
use crate::runtime::due::Prepared;
use crate::runtime::endpoint::Part;
use crate::runtime::store::Key;

/// What the CloudPrivateIPConfig of an address needs.
pub(super) fn private_ip(acting: &Acting<'_>, address: Ipv4Addr) -> Prepared<()> {
    let Some(change) = acting.due.private_ips.get(&address) else { return Prepared::Nothing };
    let store = &acting.cache.private_ips;
    let Some(seen) = store.get(&Key::of_cluster(&address.to_string())) else { return Prepared::Nothing };
    if acting.model.ovn.private_ips.get(&address) != Some(&validate::private_ip(&seen)) {
        return Prepared::Nothing;
    }
    match change {
        PrivateIpChange::Finalizer(is_wanted) => {
            let mut finalizers = seen.finalizers().to_vec();
            finalizers.retain(|finalizer| finalizer != PRIVATE_IP_FINALIZER);
            finalizers.extend(is_wanted.then(|| PRIVATE_IP_FINALIZER.to_owned()));
            merge(acting, store, seen, json!({ "metadata": { "finalizers": finalizers } }))
        }
        PrivateIpChange::Status(status) => {
            let after = CloudPrivateIpConfig {
                types: Some(TypeMeta::resource::<CloudPrivateIpConfig>()),
                status: Some(validate::private_ip_status(&seen, status)),
                ..CloudPrivateIpConfig::clone(&seen)
            };
            let (writer, store) = (acting.writer.clone(), store.clone());
            Prepared::write(async move { writer.replace(&store, Part::Status, &after).await.map(drop) })
        }
    }
}
