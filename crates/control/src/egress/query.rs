//! Queries about egress: what a change would move, why an address or policy has its node, the state of the gateways.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kube::Client;
use portolan_core::egress::{
    Binding, Change, EffectivePolicies, Move, Plan, PolicyName, Winner, explain, explain_address, is_never_served,
    resolve_overlaps,
};
use portolan_core::net::parse_claim_name;
use serde_json::{Value, json};

use super::doctor;
use super::events::because;
use super::model::Model;
use super::snapshot::Objects;
use super::status::{obstacles, wanted};
use super::validate::Families;
use crate::runtime::capability::{Queries, Why};
use crate::runtime::query::{CHANGES, Column, QueryError, QueryResult, Row, column, row, wide};
use crate::runtime::store::Key;

/// What users can ask.
pub(super) const QUERIES: Queries = Queries {
    plan: |client, changes| Box::pin(plan(client, changes)),
    why: &[
        Why {
            words: &["eip", "addr", "addressclaim"],
            about: "an egress address",
            explain: |client, name, _| Box::pin(why_address(client, name)),
        },
        Why {
            words: &["policy", "egp", "egcp", "egresspolicy", "egressclusterpolicy"],
            about: "NAMESPACE/NAME of an EgressPolicy, or NAME of an EgressClusterPolicy",
            explain: |client, name, _| Box::pin(why_policy(client, name)),
        },
        Why {
            words: &["pod"],
            about: "NAMESPACE/NAME of a pod, and the destination of its packets",
            explain: |client, name, destination| Box::pin(why_pod(client, name, destination)),
        },
    ],
    status: |client| Box::pin(status(client)),
    node_loss: Some(|client, node| Box::pin(node_loss(client, node))),
    doctor: |client, examination| Box::pin(doctor::examine(client, examination)),
};

/// What applying these objects would change.
async fn plan(client: Client, changes: Vec<Value>) -> Result<QueryResult, QueryError> {
    let objects = Objects::read(&client).await?;
    let mut changed = objects.clone();
    changed.overlay(changes)?;
    let (_, before) = objects.model(Families::default());
    let (_, after) = changed.model(Families::default());
    Ok(difference(&before, &after))
}

pub(super) fn difference(before: &Model, after: &Model) -> QueryResult {
    let (was, will) = (before.planner.plan(), after.planner.plan());
    let mut rows: Vec<Row> = will.moves.iter().filter(|moved| !was.moves.contains(moved)).map(move_row).collect();
    rows.extend(grants(&was, &will));
    rows.extend(obstacle_rows(before, after, &will));
    for address in will.recycled.difference(&was.recycled) {
        rows.push(row([
            ("what", json!(address.to_string())),
            ("change", json!("released")),
            ("from", Value::Null),
            ("to", Value::Null),
            ("why", json!("no policy uses it any more")),
            ("gateway", Value::Null),
        ]));
    }
    QueryResult::of_changes(rows)
}

fn move_row(moved: &Move) -> Row {
    let Move { eip, policy, gateway, from, to, cause } = moved;
    let what = policy.as_ref().map_or_else(|| eip.to_string(), |policy| format!("policy {policy}"));
    row([
        ("what", json!(what)),
        ("change", json!("moves")),
        ("from", json!(from.as_deref())),
        ("to", json!(to.as_deref())),
        ("why", json!(because(*cause))),
        ("gateway", json!(&**gateway)),
    ])
}

fn grants<'a>(was: &'a Plan, will: &'a Plan) -> impl Iterator<Item = Row> + 'a {
    let policies: BTreeSet<&PolicyName> = was.bindings.keys().chain(will.bindings.keys()).collect();
    policies.into_iter().filter_map(|policy| {
        let (from, to) = (was.bindings.get(policy), will.bindings.get(policy));
        let address = |binding: Option<&Binding>| binding.map(|binding| (binding.eip, binding.gateway.clone()));
        if address(from) == address(to) {
            return None;
        }
        let text = |binding: Option<&Binding>| match binding {
            None => Value::Null,
            Some(binding) if binding.eip.is_none() => json!("the node's own address"),
            Some(binding) => json!(binding.eip.to_string()),
        };
        let (change, why) = match (from, to) {
            (None, _) => ("granted", "the policy gets an egress address"),
            (_, None) => ("withdrawn", "the policy was deleted, or may no longer use it"),
            (Some(_), Some(_)) => ("replaced", "the policy changed, or its address left the pool"),
        };
        Some(row([
            ("what", json!(format!("policy {policy}"))),
            ("change", json!(change)),
            ("from", text(from)),
            ("to", text(to)),
            ("why", json!(why)),
            ("gateway", json!(to.or(from).map(|binding| &*binding.gateway))),
        ]))
    })
}

fn obstacle_rows(before: &Model, after: &Model, will: &Plan) -> Vec<Row> {
    let names: BTreeSet<&PolicyName> = will.unmet.keys().chain(after.problems.keys()).collect();
    let told = |model: &Model, name: &PolicyName| {
        let (edit, lack) = obstacles(model, name);
        edit.or(lack)
    };
    let newly = names.into_iter().filter_map(|name| {
        let problem = told(after, name).filter(|problem| told(before, name).as_ref() != Some(problem))?;
        Some(row([
            ("what", json!(format!("policy {name}"))),
            ("change", json!(problem.reason)),
            ("from", Value::Null),
            ("to", Value::Null),
            ("why", json!(problem.message)),
            ("gateway", Value::Null),
        ]))
    });
    let mut rows: Vec<_> = newly.collect();
    for (name, checked) in &after.gateways.by_name {
        let known = before.gateways.by_name.get(name).and_then(|checked| checked.refusal(false));
        if let Some(problem) = checked.refusal(false).filter(|problem| known.as_ref() != Some(problem)) {
            rows.push(row([
                ("what", json!(format!("gateway {name}"))),
                ("change", json!(problem.reason)),
                ("from", Value::Null),
                ("to", Value::Null),
                ("why", json!(problem.message)),
                ("gateway", json!(&**name)),
            ]));
        }
    }
    rows
}

const STEPS: &[Column] = &[column("step", "STEP"), column("says", "SAYS")];

fn steps(texts: impl IntoIterator<Item = String>, summary: String, yes: bool) -> QueryResult {
    let numbered = texts.into_iter().enumerate();
    let rows = numbered.map(|(number, text)| row([("step", json!(number + 1)), ("says", json!(text))])).collect();
    QueryResult { columns: STEPS, rows, summary, yes, warnings: Vec::new() }
}

/// Why an address is on its node.
async fn why_address(client: Client, name: String) -> Result<QueryResult, QueryError> {
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

/// Why a policy has its address and node.
async fn why_policy(client: Client, name: String) -> Result<QueryResult, QueryError> {
    let (cache, model) = Objects::read(&client).await?.model(Families::default());
    let policy = policy_name(&name);
    let known = model.planner.policy(&policy).is_some() || model.problems.contains_key(&policy);
    if !known {
        return Err(QueryError::NotFound {
            what: format!("there is no policy `{policy}`"),
            hint: "name it NAMESPACE/NAME, or NAME for a cluster policy: kubectl get egp,egcp -A".to_owned(),
        });
    }
    let mut texts: Vec<String> = explain(&model.planner, &policy).into_iter().map(|step| step.text).collect();
    texts.extend(model.problems.get(&policy).map(|problem| format!("{}: {}", problem.reason, problem.message)));
    let binding = model.planner.binding(&policy);
    let status = wanted(&cache, &model, &policy, binding.as_ref(), 0);
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    let yes = ready.is_some_and(|condition| condition.status == "True");
    if let Some(condition) = ready.filter(|_| !yes) {
        texts.push(format!("not ready: {}: {}", condition.reason, condition.message));
    }
    let summary = binding.map_or_else(
        || format!("policy {policy} has no egress address"),
        |Binding { eip, node, .. }| {
            let with = if eip.is_none() { "its node's own address".to_owned() } else { eip.to_string() };
            format!("pods of policy {policy} leave with {with} through node {}", node.as_deref().unwrap_or("none"))
        },
    );
    Ok(steps(texts, summary, yes))
}

/// Which policy applies to a pod, and why.
async fn why_pod(client: Client, name: String, destination: Option<String>) -> Result<QueryResult, QueryError> {
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
    let policies = model.selected.of_pod(&key);
    texts.extend(policies.iter().map(|policy| format!("policy {policy} selects the pod")));
    let winner = winner(&model, &key, destination);
    let summary = match (&winner, destination) {
        (Some(winner), _) => {
            texts.push(winner.1.clone());
            texts.extend(explain(&model.planner, &winner.0).into_iter().map(|step| step.text));
            format!("policy {} applies to pod {key}", winner.0)
        }
        (None, Some(destination)) if !policies.is_empty() => format!("no policy of pod {key} matches {destination}"),
        (None, _) => format!("no policy selects pod {key}"),
    };
    Ok(steps(texts, summary, winner.is_some()))
}

fn winner(model: &Model, pod: &Key, destination: Option<IpAddr>) -> Option<(PolicyName, String)> {
    let members = model.selected.of_pod(pod).iter().filter_map(|policy| model.selected.overlapping(policy).cloned());
    let flat = resolve_overlaps(&members.collect::<Vec<_>>());
    let policy = match destination {
        Some(destination) => served(&flat, destination)?,
        None => flat.catch_all.clone()?,
    };
    let to = destination.map_or_else(|| "destinations outside the cluster".to_owned(), |address| address.to_string());
    Some((
        policy.clone(),
        format!("policy {policy} wins for {to}: by priority, then destination prefix, then scope, then age"),
    ))
}

/// The policy for a destination, whether or not the destination is inside the cluster.
fn served(flat: &EffectivePolicies, destination: IpAddr) -> Option<PolicyName> {
    if is_never_served(destination) {
        return None;
    }
    let range = flat.ranges.iter().find(|(range, _)| range.contains(destination));
    match range.map(|(_, winner)| winner) {
        Some(Winner::Policy(policy)) => Some(policy.clone()),
        Some(Winner::InsideCluster(_)) | None => flat.catch_all.clone(),
    }
}

const GATEWAYS: &[Column] = &[
    column("gateway", "GATEWAY"),
    column("ready", "READY"),
    column("nodes", "NODES"),
    column("ipv4", "IPV4"),
    column("ipv6", "IPV6"),
    column("policies", "POLICIES"),
    column("waiting", "WAITING"),
    wide("problem", "PROBLEM"),
];

/// The state of every gateway.
pub(super) async fn status(client: Client) -> Result<QueryResult, QueryError> {
    let (_, model) = Objects::read(&client).await?.model(Families::default());
    let mut rows = Vec::new();
    for (name, checked) in &model.gateways.by_name {
        let (usage, eligible) = (model.planner.usage(name), model.planner.ready_nodes(name));
        let nodes = model.planner.view(name, 0).map(|view| view.nodes.len()).unwrap_or_default();
        let problem = checked.refusal(false);
        let ready = problem.is_none() && !eligible.is_empty();
        let used = |family: usize| {
            format!("{}/{}", usage.total[family].saturating_sub(usage.free[family]), usage.total[family])
        };
        rows.push(row([
            ("gateway", json!(&**name)),
            ("ready", json!(ready)),
            ("nodes", json!(format!("{}/{nodes}", eligible.len()))),
            ("ipv4", json!(used(0))),
            ("ipv6", json!(used(1))),
            ("policies", json!(usage.granted)),
            ("waiting", json!(usage.waiting)),
            ("problem", json!(problem.map(|problem| problem.message))),
        ]));
    }
    let is_healthy = |row: &&Row| row["ready"] == json!(true) && row["waiting"] == json!(0);
    let unhealthy = rows.len() - rows.iter().filter(is_healthy).count();
    let summary = match (rows.len(), unhealthy) {
        (0, _) => "no egress gateways".to_owned(),
        (all, 0) => format!("all {all} egress gateways are ready, and no policy waits for an address"),
        (all, unhealthy) => {
            format!("{unhealthy} of {all} egress gateways are not ready, or have policies that wait for an address")
        }
    };
    Ok(QueryResult { columns: GATEWAYS, rows, summary, yes: unhealthy == 0, warnings: Vec::new() })
}

/// Where the addresses of a node would move if it were lost.
async fn node_loss(client: Client, node: String) -> Result<QueryResult, QueryError> {
    let (_, mut model) = Objects::read(&client).await?.model(Families::default());
    let Some(mut lost) = model.planner.node(&node).cloned() else {
        return Err(QueryError::NotFound {
            what: format!("there is no node `{node}`"),
            hint: "list them: kubectl get nodes".to_owned(),
        });
    };
    lost.ready = false;
    let touched = model.planner.change(Change::Node(node.as_str().into(), Some(lost)));
    let rows: Vec<_> = touched.moves.iter().map(move_row).collect();
    let homeless = touched.moves.iter().filter(|moved| moved.to.is_none()).count();
    let summary = match (rows.len(), homeless) {
        (0, _) => format!("node {node} holds nothing: losing it would move nothing"),
        (count, 0) => format!("losing node {node} would move {count}, all to other nodes"),
        (count, homeless) => format!("losing node {node} would move {count}; {homeless} of them find no other node"),
    };
    Ok(QueryResult { columns: CHANGES, rows, summary, yes: homeless == 0, warnings: Vec::new() })
}

/// `NAMESPACE/NAME`, or the name of a cluster policy.
fn policy_name(text: &str) -> PolicyName {
    match text.split_once('/') {
        Some((namespace, name)) => PolicyName { namespace: Some(namespace.into()), name: name.into() },
        None => PolicyName { namespace: None, name: text.into() },
    }
}
