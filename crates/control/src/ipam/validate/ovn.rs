//! EgressIPs of OVN-Kubernetes -> what the planner uses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use kube::ResourceExt as _;
use portolan_api::ipam as api;
use portolan_api::well_known::USE;
use portolan_core::ipam::NamespaceName;
use portolan_core::ipam::ovn::{EgressIp, Ovn};
use serde_json::{Value, json};

use super::super::names::{METADATA_NAME, NAMESPACE_ANNOTATION, USE_CLOUD};
use super::{addresses, texts};

/// Notes an EgressIP, be it ours or somebody else's.
pub(in super::super) fn note_egress_ip(ovn: &mut Ovn, object: &api::EgressIp) {
    match egress_ip(object) {
        Some((namespace, egress_ip)) => drop(ovn.egress_ips.insert(namespace, egress_ip)),
        None => ovn.foreign.extend(addresses(&object.spec.egress_ips)),
    }
}

/// An EgressIP of ours and its namespace; none if it is somebody else's.
pub(in super::super) fn egress_ip(object: &api::EgressIp) -> Option<(NamespaceName, EgressIp)> {
    let namespace = object.annotations().get(NAMESPACE_ANNOTATION)?;
    object.labels().get(USE).filter(|use_| *use_ == USE_CLOUD)?;
    let selector = &object.spec.namespace_selector;
    let selects = selector.match_labels.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
    let is_intact = selects.eq([(METADATA_NAME, namespace.as_str())])
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    let items = object.status.iter().flat_map(|status| &status.items);
    let egress_ip = EgressIp {
        name: object.name_any().into(),
        addresses: addresses(&object.spec.egress_ips),
        items: items.filter_map(item).collect(),
        is_intact,
    };
    Some((namespace.as_str().into(), egress_ip))
}

/// What makes an EgressIP list these addresses for exactly this namespace.
pub(in super::super) fn egress_ip_change(seen: &api::EgressIp, namespace: &str, list: &BTreeSet<Ipv4Addr>) -> Value {
    let mut selector = json!({ "matchExpressions": null });
    for key in seen.spec.namespace_selector.match_labels.iter().flat_map(BTreeMap::keys) {
        selector["matchLabels"][key] = Value::Null;
    }
    selector["matchLabels"][METADATA_NAME] = namespace.into();
    json!({ "spec": { "egressIPs": texts(list, &seen.spec.egress_ips), "namespaceSelector": selector } })
}

fn item(item: &api::EgressIpItem) -> Option<(Ipv4Addr, Arc<str>)> {
    Some((item.egress_ip.parse().ok()?, item.node.as_str().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(labels: &Value, selector: &Value) -> Option<(NamespaceName, EgressIp)> {
        let object = json!({
            "metadata": { "name": "shop", "labels": labels, "annotations": { NAMESPACE_ANNOTATION: "shop" } },
            "spec": { "egressIPs": ["10.0.0.7"], "namespaceSelector": selector },
            "status": { "items": [{ "node": "n", "egressIP": "10.0.0.7" }] },
        });
        egress_ip(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn only_those_with_our_label_are_ours() {
        let selector = json!({ "matchLabels": { METADATA_NAME: "shop" } });
        let (namespace, found) = read(&json!({ USE: USE_CLOUD }), &selector).unwrap();
        assert_eq!((&*namespace, found.items.len(), found.is_intact), ("shop", 1, true));
        assert_eq!(read(&json!({}), &selector), None);
    }

    #[test]
    fn a_selector_that_somebody_changed_is_noticed() {
        for selector in [json!({}), json!({ "matchLabels": { METADATA_NAME: "shop", "a": "b" } })] {
            assert!(!read(&json!({ USE: USE_CLOUD }), &selector).unwrap().1.is_intact);
        }
    }
}
