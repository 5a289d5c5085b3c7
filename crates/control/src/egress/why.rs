//! `portolan why` for egress: why an address or policy has its node, and which policy applies to a pod.

use std::net::IpAddr;

use kube::Client;
use portolan_api::well_known::{conditions, reasons};
use portolan_core::egress::{
    Binding, EffectivePolicies, ExplainTopic, PolicyName, Winner, explain, explain_address, is_never_served,
    resolve_overlaps,
};
use portolan_core::net::parse_claim_name;
use serde_json::json;

use super::model::Model;
use super::selected::addresses;
use super::snapshot::Objects;
use super::status::wanted;
use super::validate::Families;
use crate::runtime::conditions::find;
use crate::runtime::query::{Column, QueryError, QueryResult, column, row};
use crate::runtime::store::Key;

const STEPS: &[Column] = &[column("step", "STEP"), column("says", "SAYS")];

fn steps(texts: impl IntoIterator<Item = String>, summary: String, yes: bool) -> QueryResult {
    let numbered = texts.into_iter().enumerate();
    let rows = numbered.map(|(number, text)| row([("step", json!(number + 1)), ("says", json!(text))])).collect();
    QueryResult { columns: STEPS, rows, summary, yes, warnings: Vec::new() }
}

/// Why an address is on its node.
pub(super) async fn address(client: Client, name: String) -> Result<QueryResult, QueryError> {
    let address: IpAddr = name.parse().ok().or_else(|| parse_claim_name(&name)).ok_or_else(|| QueryError::Invalid {
        what: format!("`{name}` is not an address"),
        hint: "list them: kubectl get addr".to_owned(),
    })?;
    let (_, model) = Objects::read(&client).await?.model(Families::default());
    let explained: Vec<String> = explain_address(&model.planner, address).into_iter().map(|step| step.text).collect();
    if explained.is_empty() {
        return Err(QueryError::NotFound {
            what: format!("no gateway has address {address}"),
            hint: "list the pools: kubectl get egw".to_owned(),
        });
    }
    let placed = model.planner.planned(address);
    let summary = match placed.as_ref().map(|placed| placed.record.node.as_deref()) {
        Some(Some(node)) => format!("{address} is on node {node}"),
        Some(None) => format!("{address} is in use, but no node is ready to hold it"),
        None => format!("{address} is not in use"),
    };
    Ok(steps(explained, summary, placed.is_some()))
}

/// Why an EgressPolicy has its address and node.
pub(super) async fn policy(client: Client, text: String) -> Result<QueryResult, QueryError> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", &text));
    why_policy(client, PolicyName { namespace: Some(namespace.into()), name: name.into() }).await
}

/// The same for an EgressClusterPolicy.
pub(super) async fn cluster_policy(client: Client, name: String) -> Result<QueryResult, QueryError> {
    why_policy(client, PolicyName { namespace: None, name: name.into() }).await
}

async fn why_policy(client: Client, policy: PolicyName) -> Result<QueryResult, QueryError> {
    let (cache, model) = Objects::read(&client).await?.model(Families::default());
    let is_known = |policy: &PolicyName| model.planner.policy(policy).is_some() || model.problems.contains_key(policy);
    if !is_known(&policy) {
        let of_cluster = PolicyName { namespace: None, name: policy.name.clone() };
        let hint = if is_known(&of_cluster) {
            format!("there is an EgressClusterPolicy of that name: portolan why egcp {}", policy.name)
        } else {
            "list them: kubectl get egp,egcp -A".to_owned()
        };
        return Err(QueryError::NotFound { what: format!("there is no policy `{policy}`"), hint });
    }
    let binding = model.planner.binding(&policy);
    let status = wanted(&cache, &model, &policy, binding.as_ref(), 0);
    let ready = find(&status.conditions, conditions::READY);
    let unmet = ready.filter(|condition| condition.status != "True");
    // what the last step says is not said before
    let repeated = |topic: ExplainTopic| match topic {
        ExplainTopic::Unmet => true,
        ExplainTopic::Gateway => unmet.is_some_and(|condition| condition.reason == reasons::GATEWAY_NOT_FOUND),
        ExplainTopic::Request
        | ExplainTopic::Address
        | ExplainTopic::Node
        | ExplainTopic::Standby
        | ExplainTopic::Users => false,
    };
    let explained = explain(&model.planner, &policy).into_iter().filter(|step| !repeated(step.topic));
    let last = unmet.map(|condition| format!("not ready: {}: {}", condition.reason, condition.message));
    let summary = binding.map_or_else(
        || format!("policy {policy} has no egress address"),
        |Binding { eip, node, .. }| {
            let with = if eip.is_none() { "its node's own address".to_owned() } else { eip.to_string() };
            format!("pods of policy {policy} leave with {with} through node {}", node.as_deref().unwrap_or("none"))
        },
    );
    Ok(steps(explained.map(|step| step.text).chain(last), summary, unmet.is_none()))
}

/// Which policy applies to a pod, and why.
pub(super) async fn pod(client: Client, name: String, destination: Option<String>) -> Result<QueryResult, QueryError> {
    let destination: Option<IpAddr> = destination
        .map(|text| {
            text.parse().map_err(|_| QueryError::Invalid {
                what: format!("destination `{text}` is not an address"),
                hint: "write it like 203.0.113.7".to_owned(),
            })
        })
        .transpose()?;
    let (namespace, pod) = name.split_once('/').unwrap_or(("default", &name));
    let key = Key { namespace: namespace.to_owned(), name: pod.to_owned() };
    let (cache, model) = Objects::read(&client).await?.model(Families::default());
    let Some(seen) = cache.pods.get(&key) else {
        return Err(QueryError::NotFound {
            what: format!("there is no pod `{key}`"),
            hint: format!("list them: kubectl get pods -n {namespace}"),
        });
    };
    let mut texts = Vec::new();
    if seen.spec.host_network {
        texts.push("the pod uses the host network: no policy applies, its packets have the node's address".to_owned());
        return Ok(steps(texts, format!("packets of pod {key} have its node's address"), false));
    }
    let own = addresses(&seen);
    if let Some(destination) = destination.filter(|to| !own.is_empty() && own.iter().all(|one| !same_family(one, to))) {
        texts.push(format!("the pod has no {} address: it cannot send to {destination}", family(&destination)));
        return Ok(steps(texts, format!("no policy of pod {key} matches {destination}"), false));
    }
    let policies = model.selected.of_pod(&key);
    texts.extend(policies.iter().map(|policy| format!("policy {policy} selects the pod")));
    let decision = decide(&model, &key, destination);
    texts.extend(decision.says);
    let Some(winner) = decision.winner else {
        let summary = match destination {
            _ if policies.is_empty() => format!("no policy selects pod {key}"),
            Some(destination) => format!("no policy of pod {key} matches {destination}"),
            None => format!("no policy of pod {key} is for every destination: name one"),
        };
        return Ok(steps(texts, summary, false));
    };
    texts.extend(explain(&model.planner, &winner).into_iter().map(|step| step.text));
    let eip = model.planner.binding(&winner).map(|binding| binding.eip);
    if let (Some(destination), Some(eip)) = (destination, eip)
        && !eip.is_none()
        && eip.addresses().all(|address| !same_family(&address, &destination))
    {
        let summary = format!(
            "policy {winner} has no {} address for pod {key} to reach {destination} with",
            family(&destination)
        );
        return Ok(steps(texts, summary, false));
    }
    Ok(steps(texts, format!("policy {winner} applies to pod {key}"), true))
}

/// Which policy wins, and why.
struct Decision {
    winner: Option<PolicyName>,
    says: Option<String>,
}

fn decide(model: &Model, pod: &Key, destination: Option<IpAddr>) -> Decision {
    let members = model.selected.of_pod(pod).iter().filter_map(|policy| model.selected.overlapping(policy).cloned());
    let flat = resolve_overlaps(&members.collect::<Vec<_>>());
    let inside = destination.is_some_and(|destination| model.is_inside(destination));
    let winner = match destination {
        Some(destination) => served(&flat, destination, inside),
        None => flat.catch_all,
    };
    let to = destination.map_or_else(|| "destinations outside the cluster".to_owned(), |address| address.to_string());
    let says = match (&winner, destination) {
        (Some(policy), _) => {
            Some(format!("policy {policy} wins for {to}: by priority, then destination prefix, then scope, then age"))
        }
        (None, Some(destination)) if is_never_served(destination) => {
            Some(format!("{to} is link-local, loopback or multicast: no policy serves it"))
        }
        (None, Some(_)) if inside => Some(format!(
            "{to} is inside the cluster: only policies that name it in spec.destSubnet apply (see kubectl get egci default -o yaml)"
        )),
        (None, _) => None,
    };
    Decision { winner, says }
}

/// The policy for a destination.
fn served(flat: &EffectivePolicies, destination: IpAddr, inside: bool) -> Option<PolicyName> {
    if is_never_served(destination) {
        return None;
    }
    let range = flat.ranges.iter().find(|(range, _)| range.contains(destination));
    match range.map(|(_, winner)| winner) {
        Some(Winner::Policy(policy)) => Some(policy.clone()),
        Some(Winner::InsideCluster(policy)) if inside => Some(policy.clone()),
        Some(Winner::InsideCluster(_)) | None => flat.catch_all.clone().filter(|_| !inside),
    }
}

const fn same_family(one: &IpAddr, other: &IpAddr) -> bool {
    one.is_ipv6() == other.is_ipv6()
}

const fn family(address: &IpAddr) -> &'static str {
    if address.is_ipv6() { "IPv6" } else { "IPv4" }
}

#[cfg(test)]
mod tests {
    use portolan_core::egress::CandidatePolicy;

    use super::*;

    #[test]
    fn inside_the_cluster_only_policies_with_destinations_apply() {
        let policy = |name: &str, priority, destinations: &[&str]| CandidatePolicy {
            name: PolicyName { namespace: None, name: name.into() },
            priority,
            created: 0,
            destinations: destinations.iter().map(|net| net.parse().unwrap()).collect(),
        };
        let flat = resolve_overlaps(&[policy("all", 5, &[]), policy("ranged", 0, &["10.0.0.0/8"])]);
        let winner =
            |to: &str, inside| served(&flat, to.parse().unwrap(), inside).map(|policy| policy.name.to_string());
        assert_eq!(winner("10.1.1.1", false).as_deref(), Some("all"), "by its priority");
        assert_eq!(winner("10.1.1.1", true).as_deref(), Some("ranged"));
        assert_eq!(winner("192.0.2.1", false).as_deref(), Some("all"));
        assert_eq!(winner("192.0.2.1", true), None);
        assert_eq!(winner("169.254.169.254", false), None);
    }
}
