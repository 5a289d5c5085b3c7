//! What the user decided about a remote: a RemoteCluster, checked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::{Resource, ResourceExt};
use portolan_api::mirror::{self as api, RemoteCluster};
use portolan_core::mirror::{
    AddressKind, CopyRules, DeletionBudget, Limits, MirrorType, NamespacePattern, NamespaceRules, Naming, NodeRules,
    Rules, ServiceType, StalePolicy, TargetMode,
};
use portolan_core::select::Selector;

use super::created;
use crate::runtime::{duration, selector};

/// Why something is not in force: a reason from the vocabulary, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mirror) struct Problem {
    pub(in crate::mirror) reason: &'static str,
    pub(in crate::mirror) message: String,
}

impl Problem {
    pub(in crate::mirror) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// The rules of a remote, and for how long it may be out of contact.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::mirror) struct CheckedRules {
    pub(in crate::mirror) rules: Rules,
    pub(in crate::mirror) stale_after: Duration,
}

/// Checks a RemoteCluster.
pub(in crate::mirror) fn rules(remote: &RemoteCluster) -> Result<CheckedRules, Problem> {
    check(remote).map_err(|message| Problem::new("InvalidSpec", message))
}

fn check(remote: &RemoteCluster) -> Result<CheckedRules, String> {
    let spec = &remote.spec;
    let target = match spec.target_mode {
        api::TargetMode::NodePort => TargetMode::NodePort,
        api::TargetMode::LoadBalancer => TargetMode::LoadBalancer,
        api::TargetMode::Pod => TargetMode::Pod,
    };
    let cluster_id = spec.cluster_id.clone().unwrap_or_else(|| remote.name_any());
    if cluster_id.len() > 63 || cluster_id.contains('.') {
        return Err(format!("`{cluster_id}` is no DNS label: set spec.clusterID to one of at most 63 letters"));
    }
    let rules = Rules {
        cluster_id: cluster_id.into(),
        target,
        // A remote that only shares Services has none to mirror.
        service_types: match spec.mcs {
            api::Mcs { enabled: true, mirror_services: Some(false) } => BTreeSet::new(),
            api::Mcs { .. } => service_types(&spec.select.service_types, target)?,
        },
        selector: selected(spec.select.label_selector.as_ref(), "spec.select.labelSelector")?,
        namespaces: namespaces(&spec.namespaces),
        naming: match spec.naming {
            api::Naming::Same => Naming::Same,
            api::Naming::Suffix => Naming::Suffix,
        },
        mirror_type: match spec.mirror_type {
            api::MirrorType::ClusterIP => MirrorType::ClusterIp,
            api::MirrorType::NodePort => MirrorType::NodePort,
        },
        copy: copied(&spec.copy)?,
        allowed: allowed(&spec.addresses.allowed_cidrs)?,
        ports: ports(spec.addresses.ports.as_deref(), target)?,
        nodes: nodes(&spec.nodes)?,
        stale: match spec.stale.policy {
            api::StalePolicy::Keep => StalePolicy::Keep,
            api::StalePolicy::NotReady => StalePolicy::NotReady,
            api::StalePolicy::Remove => StalePolicy::Remove,
        },
        deletions: DeletionBudget {
            max_percent: spec.deletion_budget.max_percent.unwrap_or(30).min(100),
            floor: count(spec.deletion_budget.floor, 10),
            window: time(spec.deletion_budget.window.as_deref(), "spec.deletionBudget.window")?,
        },
        owned: spec.deletion_policy == api::DeletionPolicy::Delete,
        limits: Limits { services: count(spec.limits.services, 5000), nodes: count(spec.limits.nodes, 5000) },
        adopts: spec.adopt_barrelman,
        default_since: spec.default.then(|| created(remote.meta())),
    };
    Ok(CheckedRules { rules, stale_after: time(spec.stale.after.as_deref(), "spec.stale.after")? })
}

fn service_types(given: &[api::ServiceType], target: TargetMode) -> Result<BTreeSet<ServiceType>, String> {
    if given.is_empty() {
        return Ok(match target {
            TargetMode::NodePort => BTreeSet::from([ServiceType::NodePort]),
            TargetMode::LoadBalancer => BTreeSet::from([ServiceType::LoadBalancer]),
            TargetMode::Pod => {
                BTreeSet::from([ServiceType::ClusterIp, ServiceType::NodePort, ServiceType::LoadBalancer])
            }
        });
    }
    let read = given.iter().map(|kind| match (kind, target) {
        (api::ServiceType::ClusterIP, TargetMode::Pod) => Ok(ServiceType::ClusterIp),
        (api::ServiceType::NodePort, TargetMode::NodePort | TargetMode::Pod) => Ok(ServiceType::NodePort),
        (api::ServiceType::LoadBalancer, _) => Ok(ServiceType::LoadBalancer),
        (kind, _) => Err(format!(
            "spec.select.serviceTypes: Services of type {kind:?} cannot be reached in this targetMode: remove it, or \
             use targetMode Pod"
        )),
    });
    read.collect()
}

fn selected(
    given: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector>,
    field: &str,
) -> Result<Selector, String> {
    let Some(given) = given else { return Ok(Selector::default()) };
    selector::selector(given).map_err(|problem| format!("{field}: {problem}"))
}

fn namespaces(given: &api::Namespaces) -> NamespaceRules {
    let patterns = |names: &[String]| names.iter().map(|name| NamespacePattern::new(name)).collect();
    NamespaceRules {
        allow: given.allow.as_deref().map(patterns),
        deny: patterns(&given.deny),
        create: given.create.unwrap_or(true),
        max_created: count(given.max_created, 100),
        ..NamespaceRules::default()
    }
}

fn copied(given: &api::Copy) -> Result<CopyRules, String> {
    let keys = |keys: &[String], field: &str| -> Result<BTreeSet<Arc<str>>, String> {
        let reserved = |key: &&String| {
            let domain = key.split_once('/').map_or("", |(domain, _)| domain);
            let domains = ["kubernetes.io", "k8s.io", "portolan.dev", "tfw.io"];
            domains.iter().any(|taken| domain == *taken || domain.ends_with(&format!(".{taken}")))
        };
        match keys.iter().find(reserved) {
            Some(key) => Err(format!("spec.copy.{field}: `{key}` has a meaning of its own here: remove it")),
            None => Ok(keys.iter().map(|key| key.as_str().into()).collect()),
        }
    };
    Ok(CopyRules {
        labels: keys(&given.labels, "labels")?,
        annotations: keys(&given.annotations, "annotations")?,
        session_affinity: given.session_affinity,
    })
}

fn allowed(given: &[String]) -> Result<Vec<ipnet::IpNet>, String> {
    if given.is_empty() {
        return Err("spec.addresses.allowedCIDRs is empty: list the ranges of the remote's nodes".to_owned());
    }
    let read = given.iter().map(|range| {
        let wrong = || format!("spec.addresses.allowedCIDRs: `{range}` is not a CIDR: write it like 10.1.0.0/16");
        range.parse().map_err(|_| wrong())
    });
    read.collect()
}

fn ports(given: Option<&str>, target: TargetMode) -> Result<(u16, u16), String> {
    let Some(text) = given else {
        return Ok(if target == TargetMode::NodePort { (30000, 32767) } else { (1, u16::MAX) });
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok((first, last)),
        _ => Err(format!("spec.addresses.ports: `{text}` is no range of ports: write it like 30000-32767")),
    }
}

fn nodes(given: &api::Nodes) -> Result<NodeRules, String> {
    let kind = |kind: &api::AddressType| match kind {
        api::AddressType::InternalIP => AddressKind::Internal,
        api::AddressType::ExternalIP => AddressKind::External,
    };
    let mut addresses: Vec<AddressKind> = given.address_types.iter().map(kind).collect();
    if addresses.is_empty() {
        addresses.push(AddressKind::Internal);
    }
    Ok(NodeRules {
        addresses,
        selector: selected(given.label_selector.as_ref(), "spec.nodes.labelSelector")?,
        exclude_labelled: given.exclude_labelled.unwrap_or(true),
        exclude_cordoned: given.exclude_cordoned,
        keep_when_none: given.when_none_ready == api::WhenNoneReady::Keep,
    })
}

fn count(given: Option<u32>, default: usize) -> usize {
    given.map_or(default, |given| usize::try_from(given).unwrap_or(usize::MAX))
}

fn time(given: Option<&str>, field: &str) -> Result<Duration, String> {
    let Some(text) = given else { return Ok(Duration::from_mins(10)) };
    duration::parse(text).map_err(|problem| format!("{field}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(field: &str, value: serde_json::Value) -> Result<CheckedRules, Problem> {
        let mut spec = json!({ "credentials": {}, "addresses": { "allowedCIDRs": ["10.0.0.0/8"] } });
        spec[field] = value;
        let spec = serde_json::from_value(spec).map_err(|cause| Problem::new("Undecodable", cause.to_string()))?;
        rules(&RemoteCluster::new("east", spec))
    }

    #[test]
    fn what_is_left_out_has_the_defaults_of_the_reference() {
        let CheckedRules { rules, stale_after } = with("paused", json!(false)).unwrap();
        let allowed = vec!["10.0.0.0/8".parse().unwrap()];
        let want = Rules { cluster_id: "east".into(), allowed, ..Rules::default() };
        assert_eq!((rules, stale_after), (want, Duration::from_mins(10)));
    }

    #[test]
    fn what_cannot_be_used_says_which_field_and_what_to_do() {
        for (field, value, part) in [
            ("addresses", json!({ "allowedCIDRs": [] }), "allowedCIDRs is empty"),
            ("addresses", json!({ "allowedCIDRs": ["10.0.0.0"] }), "`10.0.0.0` is not a CIDR"),
            ("addresses", json!({ "allowedCIDRs": ["::/0"], "ports": "9-1" }), "`9-1` is no range"),
            ("copy", json!({ "labels": ["app.kubernetes.io/name"] }), "spec.copy.labels: `app.kubernetes.io/name`"),
            ("copy", json!({ "annotations": ["tfw.io/barrelman"] }), "spec.copy.annotations"),
            ("select", json!({ "serviceTypes": ["ClusterIP"] }), "type ClusterIP cannot be reached"),
            ("stale", json!({ "after": "soon" }), "spec.stale.after: `soon` is not a duration"),
            ("nodes", json!({ "labelSelector": { "matchExpressions": [{ "key": "a", "operator": "Is" }] } }), "`Is`"),
        ] {
            let problem = with(field, value).unwrap_err();
            assert!(problem.message.contains(part), "{problem:?} lacks `{part}`");
        }
    }
}
