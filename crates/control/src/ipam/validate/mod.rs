//! API objects -> what the planner uses. Cannot fail: what cannot be read is left out, and reported by the plan.

mod claim;
mod controller;
mod ovn;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use portolan_api::ipam as api;
use portolan_core::ipam::{HostSubnet, InstanceId, Moment, Namespace, NetNamespace, Node};
use portolan_core::select::Selector;

pub(super) use self::claim::{address_of, attachment, claim, has_no_status, spec};
pub(super) use self::controller::{held_until, private_ip, private_ip_status};
pub(super) use self::ovn::{egress_ip, egress_ip_change, note_egress_ip};
use super::names::{
    ADDRESS_PREFIX, EGRESS_ASSIGNABLE, EGRESS_IP_CONFIG, EGRESSIPAM, EGRESSIPS, MODIFIED, STATUS, ZONES,
};
use crate::runtime::selector::labels;

pub(super) fn namespace(object: &core::Namespace) -> Namespace {
    let annotation = |key: &str| object.annotations().get(key).map(|value| Arc::from(value.as_str()));
    let phase = object.status.as_ref().and_then(|status| status.phase.as_deref());
    Namespace {
        uid: object.uid().unwrap_or_default().into(),
        opted_in: object.annotations().get(EGRESSIPAM).is_some_and(|value| !value.trim().is_empty()),
        egressips: annotation(EGRESSIPS),
        modified: object.annotations().contains_key(MODIFIED),
        status: annotation(STATUS),
        terminating: object.metadata.deletion_timestamp.is_some() || phase == Some("Terminating"),
    }
}

pub(super) fn net_namespace(object: &api::NetNamespace) -> NetNamespace {
    NetNamespace {
        netid: object.netid,
        egress_ips: addresses(&object.egress_ips),
        annotation: object.annotations().get(EGRESSIPS).map(|list| list.as_str().into()),
    }
}

pub(super) fn host_subnet(object: &api::HostSubnet) -> HostSubnet {
    let named = |(key, namespace): (&String, &String)| {
        let address = key.strip_prefix(ADDRESS_PREFIX)?.parse().ok()?;
        Some((address, namespace.as_str().into()))
    };
    HostSubnet {
        egress_ips: addresses(&object.egress_ips),
        egress_cidrs: !object.egress_cidrs.is_empty(),
        annotations: object.annotations().iter().filter_map(named).collect(),
    }
}

/// A node; `before` is what was known of it, `now` is since when it is not ready if nothing says so.
pub(super) fn node(object: &core::Node, selector: &Selector, before: Option<&Node>, now: Moment) -> Node {
    let conditions = object.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    let not_ready_since = match ready {
        Some(ready) if ready.status == "True" => None,
        Some(_) | None => {
            let said = ready.and_then(|ready| ready.last_transition_time.as_ref()).map(|at| moment(at).min(now));
            said.or_else(|| before.and_then(|before| before.not_ready_since)).or(Some(now))
        }
    };
    let provider_id = object.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    let zone = ZONES.iter().find_map(|label| object.labels().get(*label));
    Node {
        compute: selector.matches(&labels(&object.metadata)),
        deleting: object.metadata.deletion_timestamp.is_some(),
        not_ready_since,
        zone: zone.filter(|zone| !zone.is_empty()).map(|zone| zone.as_str().into()),
        egress_assignable: object.labels().contains_key(EGRESS_ASSIGNABLE),
        egress_ip_config: object.annotations().get(EGRESS_IP_CONFIG).map(|config| config.as_str().into()),
        instance: provider_id.and_then(instance),
    }
}

/// The instance of `aws:///ZONE/ID`, `aws://ZONE/ID` or `aws:///ID`.
fn instance(provider_id: &str) -> Option<InstanceId> {
    let path = provider_id.strip_prefix("aws://")?;
    let id = path.rsplit('/').next()?;
    id.starts_with("i-").then(|| id.into())
}

/// Texts that are no addresses are not ours to judge; writes keep them.
fn addresses(texts: &[String]) -> BTreeSet<Ipv4Addr> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Addresses to write; what stands there and is no address stays.
pub(super) fn texts(addresses: &BTreeSet<Ipv4Addr>, seen: &[String]) -> Vec<String> {
    let odd = seen.iter().filter(|text| text.parse::<Ipv4Addr>().is_err()).cloned();
    addresses.iter().map(Ipv4Addr::to_string).chain(odd).collect()
}

/// A time as annotations have it.
pub(super) fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn moment(time: &Time) -> Moment {
    Moment::try_from(time.0.as_millisecond()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read_node(object: Value, before: Option<&Node>, now: Moment) -> Node {
        let object: core::Node = serde_json::from_value(object).unwrap();
        node(&object, &Selector::default(), before, now)
    }

    #[test]
    fn instances_are_found_in_all_forms_of_provider_ids() {
        for form in ["aws:///eu-central-1a/i-07", "aws://eu-central-1a/i-07", "aws:///i-07", "aws://i-07"] {
            assert_eq!(instance(form).as_deref(), Some("i-07"), "{form}");
        }
        for form in ["", "i-07", "gce://project/zone/i-07", "aws:///eu-central-1a/", "aws:///eu-central-1a/vm-7"] {
            assert_eq!(instance(form), None, "{form}");
        }
    }

    #[test]
    fn a_node_is_not_ready_since_it_says_so_or_since_it_was_seen_first() {
        let object = |status: &str| {
            let condition = json!({ "type": "Ready", "status": status, "lastTransitionTime": "1970-01-01T00:00:07Z" });
            json!({ "metadata": { "name": "n", "labels": { ZONES[1]: "a" } }, "status": { "conditions": [condition] } })
        };
        assert_eq!(read_node(object("True"), None, 9_000).not_ready_since, None);
        let unknown = read_node(object("Unknown"), None, 9_000);
        assert_eq!((unknown.not_ready_since, unknown.zone.as_deref()), (Some(7_000), Some("a")));
        assert_eq!(read_node(object("False"), None, 5_000).not_ready_since, Some(5_000), "never in the future");
        let silent = json!({ "metadata": { "name": "n" } });
        let first = read_node(silent.clone(), None, 5_000);
        assert_eq!(first.not_ready_since, Some(5_000));
        assert_eq!(read_node(silent, Some(&first), 9_000).not_ready_since, Some(5_000));
    }

    #[test]
    fn annotations_of_host_subnets_are_read_by_address() {
        let object = json!({
            "apiVersion": "network.openshift.io/v1", "kind": "HostSubnet",
            "metadata": { "name": "n", "annotations": { format!("{ADDRESS_PREFIX}10.0.0.7"): "shop", EGRESSIPS: "x", "a": "b" } },
            "host": "n", "hostIP": "10.0.0.4", "subnet": "10.128.0.0/23", "egressIPs": ["10.0.0.7", "odd"],
        });
        let read = host_subnet(&serde_json::from_value(object).unwrap());
        assert_eq!(read.egress_ips, BTreeSet::from([Ipv4Addr::new(10, 0, 0, 7)]));
        assert_eq!(read.annotations.len(), 1);
        assert!(!read.egress_cidrs);
    }
}
