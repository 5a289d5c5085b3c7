//! Queries about egress: what a change would move, the state of the gateways, what the loss of a node would move.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use portolan_api::well_known::conditions::READY;
use portolan_core::egress::{Binding, Change, Move, Plan, PolicyName};
use serde_json::{Value, json};

use super::events::because;
use super::model::{Model, each_policy, namespace_labels};
use super::observe::Cache;
use super::snapshot::Objects;
use super::status::{obstacles, shrunk};
use super::validate::{Families, resolve};
use super::{doctor, why};
use crate::runtime::capability::{Queries, Why};
use crate::runtime::conditions::find;
use crate::runtime::query::{CHANGES, Column, QueryError, QueryResult, Row, column, part, row};
use crate::runtime::store::Key;

/// What users can ask.
pub(super) const QUERIES: Queries = Queries {
    plan: |client, changes| Box::pin(plan(client, changes)),
    why: &[
        Why {
            words: &["eip", "addr", "addressclaim"],
            about: "an egress address",
            explain: |client, name, _| Box::pin(why::address(client, name)),
        },
        Why {
            words: &["policy", "egp", "egresspolicy"],
            about: "NAMESPACE/NAME of an EgressPolicy",
            explain: |client, name, _| Box::pin(why::policy(client, name)),
        },
        Why {
            words: &["egcp", "clusterpolicy", "egressclusterpolicy"],
            about: "NAME of an EgressClusterPolicy",
            explain: |client, name, _| Box::pin(why::cluster_policy(client, name)),
        },
        Why {
            words: &["pod"],
            about: "NAMESPACE/NAME of a pod, and the destination of its packets",
            explain: |client, name, destination| Box::pin(why::pod(client, name, destination)),
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
    rows.extend(pool_rows(before, after));
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

/// Gateways whose pool has other addresses, and those whose pool lacks addresses that are in use.
fn pool_rows(before: &Model, after: &Model) -> Vec<Row> {
    let size = |model: &Model, gateway: &str| {
        model.gateways.by_name.contains_key(gateway).then(|| {
            let counted = ["IPv4", "IPv6"].into_iter().zip(model.planner.usage(gateway).total);
            let parts: Vec<String> =
                counted.filter(|(_, count)| *count > 0).map(|(family, count)| format!("{count} {family}")).collect();
            if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
        })
    };
    let mut rows = Vec::new();
    for name in after.gateways.by_name.keys() {
        let (was, will) = (size(before, name), size(after, name));
        let shrunk = shrunk(after, name).filter(|_| shrunk(before, name).is_none());
        if was == will && shrunk.is_none() {
            continue;
        }
        let why = shrunk.map_or_else(|| "spec.ippools has other addresses".to_owned(), |problem| problem.message);
        rows.push(row([
            ("what", json!(format!("gateway {name}"))),
            ("change", json!("pool")),
            ("from", json!(was)),
            ("to", json!(will)),
            ("why", json!(why)),
            ("gateway", json!(&**name)),
        ]));
    }
    rows
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

const GATEWAYS: &[Column] = &[
    column("gateway", "GATEWAY"),
    column("ready", "READY"),
    column("nodes", "NODES"),
    column("ipv4", "IPV4"),
    column("ipv6", "IPV6"),
    column("policies", "POLICIES"),
    column("problem", "PROBLEM"),
];

/// The policies that name a gateway, as their conditions report them.
#[derive(Debug, Default)]
struct Policies {
    all: u64,
    ready: u64,
    /// Of the first policy that is not ready.
    problem: Option<String>,
}

/// The state of every gateway, also of those that policies name and that do not exist.
pub(super) async fn status(client: Client) -> Result<QueryResult, QueryError> {
    let (cache, model) = Objects::read(&client).await?.model(Families::default());
    let mut policies = policies_by_gateway(&cache, &model);
    let mut rows = Vec::new();
    for name in model.gateways.by_name.keys() {
        let named = policies.remove(&**name).unwrap_or_default();
        rows.push(gateway_row(&cache, &model, name, &named));
    }
    for (name, named) in policies {
        let problem = named.problem.or_else(|| Some("there is no such gateway".to_owned()));
        rows.push(row([
            ("gateway", json!((!name.is_empty()).then_some(name))),
            ("ready", json!("False")),
            ("nodes", Value::Null),
            ("ipv4", Value::Null),
            ("ipv6", Value::Null),
            ("policies", part("ready", named.ready, named.all)),
            ("problem", json!(problem)),
        ]));
    }
    let unhealthy = rows.iter().filter(|row| !row["problem"].is_null()).count();
    let summary = match (rows.len(), unhealthy) {
        (0, _) => "no egress gateways".to_owned(),
        (1, 0) => "the egress gateway and its policies are ready".to_owned(),
        (all, 0) => format!("all {all} egress gateways and their policies are ready"),
        (all, unhealthy) => {
            format!("{unhealthy} of {all} egress gateways are not ready, or have policies that are not")
        }
    };
    Ok(QueryResult { columns: GATEWAYS, rows, summary, yes: unhealthy == 0, warnings: Vec::new() })
}

fn gateway_row(cache: &Cache, model: &Model, name: &str, named: &Policies) -> Row {
    let seen = cache.gateways.get(&Key::of_cluster(name));
    let conditions = seen.as_ref().and_then(|seen| seen.status.as_ref()).map(|status| status.conditions.as_slice());
    let conditions = conditions.unwrap_or_default();
    let ready = find(conditions, READY).map_or("Unknown", |ready| ready.status.as_str());
    let (usage, nodes) = (model.planner.usage(name), model.planner.view(name, 0).unwrap_or_default().nodes.len());
    let used =
        |family: usize| part("used", usage.total[family].saturating_sub(usage.free[family]), usage.total[family]);
    row([
        ("gateway", json!(name)),
        ("ready", json!(ready)),
        ("nodes", part("ready", model.planner.ready_nodes(name).len(), nodes)),
        ("ipv4", used(0)),
        ("ipv6", used(1)),
        ("policies", part("ready", named.ready, named.all)),
        ("problem", json!(unmet(conditions).or_else(|| named.problem.clone()))),
    ])
}

/// The first condition that is not met, with its reason.
fn unmet(conditions: &[Condition]) -> Option<String> {
    if conditions.is_empty() {
        return Some("no status yet: is the operator running with egress?".to_owned());
    }
    let unmet = conditions.iter().find(|condition| condition.status != "True")?;
    Some(format!("{}: {}", unmet.reason, unmet.message))
}

/// By the name of the gateway; policies without one are under the empty name.
fn policies_by_gateway(cache: &Cache, model: &Model) -> BTreeMap<String, Policies> {
    let mut found: BTreeMap<String, Policies> = BTreeMap::new();
    each_policy(cache, |view| {
        let gateway = resolve(view, &namespace_labels(cache, view), &model.gateways).unwrap_or_default();
        let named = found.entry(gateway.to_string()).or_default();
        named.all += 1;
        match unmet(view.status.map(|status| status.conditions.as_slice()).unwrap_or_default()) {
            None => named.ready += 1,
            Some(problem) => {
                named.problem.get_or_insert_with(|| format!("policy {}: {problem}", view.name()));
            }
        }
    });
    found
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
