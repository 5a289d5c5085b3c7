//! Fixes -> writes to the API server. Each reads its object again, and writes only if the finding still holds.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt};
use portolan_api::address_claim::AddressClaim;
use portolan_api::ipam::{EgressIp, HostSubnet, NetNamespace};
use portolan_core::ipam::{AddressList, NamespaceName, NodeName, State};
use serde_json::{Value, json};

use super::super::names::{ADDRESS_PREFIX, EGRESSIPS, MODIFIED, VERIFY};
use super::super::validate;
use super::finding::{Finding, Fix, Held, Leftover, listed};
use crate::runtime::doctor::{Check, Repair, edit};

/// The check, with the repair of what it found.
pub(super) fn prepared(client: &Client, finding: Finding) -> Check {
    let Finding { check, fix } = finding;
    Check { repair: fix.map(|fix| repair(client.clone(), fix)), ..check }
}

fn repair(client: Client, fix: Fix) -> Repair {
    match fix {
        Fix::AnnotateNamespace { name, list, seen } => {
            let does =
                format!("set annotations egressips={} and modified on Namespace {name}", AddressList::format(&list));
            Repair::new(does, async move { annotate(&client, &name, &list, seen.as_deref()).await })
        }
        Fix::SetNetNamespace { name, list } => {
            let does =
                format!("set egressIPs and their annotation on NetNamespace {name}: {}", AddressList::format(&list));
            Repair::new(does, async move { set_net_namespace(&client, &name, &list).await })
        }
        Fix::SetEgressIp { name, namespace, list } => {
            let does = format!("set egressIPs of EgressIP {name}, for Namespace {namespace} alone: {}", listed(&list));
            Repair::new(does, async move { set_egress_ip(&client, &name, &namespace, &list).await })
        }
        Fix::SetHost { address, namespace, node, others } => {
            let from = if others.is_empty() { String::new() } else { format!(", take it off {}", others.join(", ")) };
            let does = format!("put {address} on HostSubnet {node}{from}");
            Repair::new(does, async move { set_host(&client, address, &namespace, &node, &others).await })
        }
        Fix::RemoveFinalizers(leftover) => {
            let Leftover { kind, name, finalizers } = &leftover;
            let does = format!("remove finalizer {} from {} {name}", finalizers.join(", "), kind.as_str());
            Repair::new(does, async move { remove_finalizers(&client, &leftover).await })
        }
        Fix::AskOperator { address } => {
            let does = format!("ask the operator to compare {address} with the cloud (annotation {VERIFY})");
            Repair::by_operator(does, async move { ask(&client, address).await })
        }
    }
}

async fn annotate(
    client: &Client,
    name: &NamespaceName,
    list: &BTreeSet<Ipv4Addr>,
    seen: Option<&str>,
) -> Result<(), kube::Error> {
    edit(&Api::<Namespace>::all(client.clone()), name, |object| {
        let still = object.annotations().get(EGRESSIPS).map(String::as_str) == seen;
        let now = validate::time(Timestamp::now());
        let annotations = json!({ EGRESSIPS: &*AddressList::format(list), MODIFIED: now });
        still.then(|| json!({ "metadata": { "annotations": annotations } }))
    })
    .await
}

async fn set_net_namespace(
    client: &Client,
    name: &NamespaceName,
    list: &BTreeSet<Ipv4Addr>,
) -> Result<(), kube::Error> {
    edit(&Api::<NetNamespace>::all(client.clone()), name, |object| {
        let found = validate::net_namespace(object);
        // a list that nobody owns any more needs no annotation
        let annotation = (!list.is_empty()).then(|| AddressList::format(list));
        let differs = found.egress_ips != *list || found.annotation != annotation;
        differs.then(|| {
            json!({
                "metadata": { "annotations": { EGRESSIPS: annotation.as_deref() } },
                "egressIPs": validate::texts(list, &object.egress_ips),
            })
        })
    })
    .await
}

async fn set_egress_ip(
    client: &Client,
    name: &str,
    namespace: &NamespaceName,
    list: &BTreeSet<Ipv4Addr>,
) -> Result<(), kube::Error> {
    edit(&Api::<EgressIp>::all(client.clone()), name, |object| {
        let (owner, found) = validate::egress_ip(object)?;
        let differs = owner == *namespace && (found.addresses != *list || !found.is_intact);
        differs.then(|| validate::egress_ip_change(object, namespace, list))
    })
    .await
}

/// Off the others first: an address on two HostSubnets is an error to the SDN.
async fn set_host(
    client: &Client,
    address: Ipv4Addr,
    namespace: &NamespaceName,
    node: &NodeName,
    others: &[NodeName],
) -> Result<(), kube::Error> {
    let claim = Api::<AddressClaim>::all(client.clone()).get_opt(&address.to_string()).await?;
    let claim = claim.as_ref().and_then(validate::claim);
    let still = claim.is_some_and(|claim| claim.status.state == State::Published && claim.spec.node == *node);
    if !still {
        return Ok(());
    }
    let host_subnets = Api::<HostSubnet>::all(client.clone());
    for other in others {
        edit(&host_subnets, other, |object| host_change(object, address, None)).await?;
    }
    edit(&host_subnets, node, |object| host_change(object, address, Some(namespace))).await
}

/// The change of a HostSubnet that hosts an address for a namespace, or for none.
fn host_change(object: &HostSubnet, address: Ipv4Addr, namespace: Option<&NamespaceName>) -> Option<Value> {
    let found = validate::host_subnet(object);
    let mut egress_ips = found.egress_ips.clone();
    if namespace.is_some() {
        egress_ips.insert(address);
    } else {
        egress_ips.remove(&address);
    }
    let differs = egress_ips != found.egress_ips || found.annotations.get(&address) != namespace;
    differs.then(|| {
        json!({
            "metadata": { "annotations": { format!("{ADDRESS_PREFIX}{address}"): namespace.map(|name| &**name) } },
            "egressIPs": validate::texts(&egress_ips, &object.egress_ips),
        })
    })
}

async fn remove_finalizers(client: &Client, leftover: &Leftover) -> Result<(), kube::Error> {
    let Leftover { kind, name, finalizers } = leftover;
    match kind {
        Held::Namespace => {
            edit(&Api::<Namespace>::all(client.clone()), name, |object| without(object, finalizers)).await
        }
        Held::NetNamespace => {
            edit(&Api::<NetNamespace>::all(client.clone()), name, |object| without(object, finalizers)).await
        }
        Held::HostSubnet => {
            edit(&Api::<HostSubnet>::all(client.clone()), name, |object| without(object, finalizers)).await
        }
    }
}

fn without(object: &impl ResourceExt, finalizers: &[String]) -> Option<Value> {
    let keep: Vec<&String> = object.finalizers().iter().filter(|own| !finalizers.contains(own)).collect();
    (keep.len() < object.finalizers().len()).then(|| json!({ "metadata": { "finalizers": keep } }))
}

async fn ask(client: &Client, address: Ipv4Addr) -> Result<(), kube::Error> {
    let now = Timestamp::now().to_string();
    let annotations = json!({ "metadata": { "annotations": { VERIFY: now } } });
    edit(&Api::<AddressClaim>::all(client.clone()), &address.to_string(), |_| Some(annotations.clone())).await
}
