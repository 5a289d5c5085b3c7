//! What OVN-Kubernetes reads: EgressIPs, and what nodes say about themselves.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;
use kube::api::{ObjectMeta, TypeMeta};
use portolan_api::ipam::{EgressIp, EgressIpSpec};
use portolan_api::well_known::USE;
use portolan_core::ipam::{NamespaceName, NodeName};
use serde_json::json;

use super::super::names::{EGRESS_ASSIGNABLE, EGRESS_IP_CONFIG, METADATA_NAME, NAMESPACE_ANNOTATION, USE_CLOUD};
use super::super::validate;
use super::acting::Acting;
use super::publish::merge;
use crate::runtime::due::Prepared;
use crate::runtime::store::Key;

/// What the EgressIP of a namespace needs. One without addresses goes.
pub(super) fn egress_ip(acting: &Acting<'_>, namespace: &NamespaceName) -> Prepared<()> {
    let Some(change) = acting.due.net_namespaces.get(namespace) else { return Prepared::Nothing };
    let store = &acting.cache.egress_ips;
    let known = acting.model.ovn.egress_ips.get(namespace);
    let Some(known) = known else {
        if change.egress_ips.is_empty() {
            return Prepared::Nothing;
        }
        let name = free_name(acting, namespace);
        let object = new(&name, namespace, validate::texts(&change.egress_ips, &[]));
        let (writer, store) = (acting.writer.clone(), store.clone());
        return Prepared::write(async move { writer.create(&store, &object).await.map(drop) });
    };
    let Some(seen) = store.get(&Key::of_cluster(&known.name)) else { return Prepared::Nothing };
    if validate::egress_ip(&seen).as_ref().map(|(_, current)| current) != Some(known) {
        return Prepared::Nothing;
    }
    if change.egress_ips.is_empty() {
        let (writer, store) = (acting.writer.clone(), store.clone());
        return Prepared::write(async move { writer.delete_version(&store, &*seen).await.map(drop) });
    }
    let patch = validate::egress_ip_change(&seen, namespace, &change.egress_ips);
    merge(acting, store, seen, patch)
}

/// The name of the namespace, unless an EgressIP that is not ours has it.
fn free_name(acting: &Acting<'_>, namespace: &str) -> String {
    match acting.cache.egress_ips.get(&Key::of_cluster(namespace)) {
        None => namespace.to_owned(),
        Some(_) => format!("portolan-{namespace}"),
    }
}

fn new(name: &str, namespace: &str, egress_ips: Vec<String>) -> EgressIp {
    let selected = BTreeMap::from([(METADATA_NAME.to_owned(), namespace.to_owned())]);
    EgressIp {
        types: Some(TypeMeta::resource::<EgressIp>()),
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([(USE.to_owned(), USE_CLOUD.to_owned())])),
            annotations: Some(BTreeMap::from([(NAMESPACE_ANNOTATION.to_owned(), namespace.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: EgressIpSpec {
            egress_ips,
            namespace_selector: LabelSelector { match_labels: Some(selected), ..LabelSelector::default() },
            pod_selector: None,
        },
        status: None,
    }
}

/// What a node needs: the label, and what OVN-Kubernetes is to know of its interface.
pub(super) fn node(acting: &Acting<'_>, name: &NodeName) -> Prepared<()> {
    let Some(change) = acting.due.nodes.get(name) else { return Prepared::Nothing };
    let store = &acting.cache.nodes;
    let Some(seen) = store.get(&Key::of_cluster(name)) else { return Prepared::Nothing };
    let is_labelled = !change.label || seen.labels().contains_key(EGRESS_ASSIGNABLE);
    let config = change
        .config
        .as_deref()
        .filter(|config| seen.annotations().get(EGRESS_IP_CONFIG).map(String::as_str) != Some(*config));
    if is_labelled && config.is_none() {
        return Prepared::Nothing;
    }
    let mut metadata = json!({});
    if !is_labelled {
        metadata["labels"][EGRESS_ASSIGNABLE] = "".into();
    }
    if let Some(config) = config {
        metadata["annotations"][EGRESS_IP_CONFIG] = config.into();
    }
    merge(acting, store, seen, json!({ "metadata": metadata }))
}
