//! What `portolan plan` and `status` can ask of gateway.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Client, ResourceExt as _};
use portolan_core::gateway::{ConditionKind, ObjectName, Plan, Verdicts, World, account_of, settle};
use serde_json::{Value, json};

use super::doctor;
use super::snapshot::Objects;
use super::why::why;
use crate::runtime::capability::{Queries, Why};
use crate::runtime::clock::Clock;
use crate::runtime::conditions::find;
use crate::runtime::query::{Column, QueryError, QueryResult, Row, column, row, wide};

/// What users can ask.
pub(super) const QUERIES: Queries = Queries {
    plan: |client, changes| Box::pin(plan(client, changes)),
    why: &[Why {
        words: &["lb", "loadbalancer", "loadbalancers"],
        about: "ACCOUNT/NAME of a LoadBalancer",
        explain: |client, name, _| Box::pin(async move { why(&Objects::read(&client).await?, &name) }),
    }],
    status: |client| Box::pin(status(client)),
    node_loss: None,
    doctor: |client, examination| Box::pin(doctor::examine(client, examination)),
};

/// What applying these objects would change.
async fn plan(client: Client, changes: Vec<Value>) -> Result<QueryResult, QueryError> {
    let objects = Objects::read(&client).await?;
    let mut changed = objects.clone();
    changed.overlay(&changes)?;
    let now = Clock::start().now();
    let settled = |objects: Objects| settle(World { now, ..objects.model().world });
    let ((before, was), (after, is)) = (settled(objects), settled(changed));
    let mut rows = numbers(&before, &after);
    rows.extend(differences(&was, &is));
    let warnings = rows.iter().any(is_of_flags).then(|| UNKNOWN_FLAGS.to_owned()).into_iter().collect();
    Ok(QueryResult { warnings, ..QueryResult::of_changes(rows) })
}

const UNKNOWN_FLAGS: &str = "the operator's flags are not known here: limits, denied ranges and images are judged by their defaults \
     (--gateway-max-..., --gateway-endpoint-deny, --gateway-direct-allow, --gateway-envoy-image-allow)";

/// True if an operator with other flags may decide otherwise.
fn is_of_flags(row: &Row) -> bool {
    ["QuotaExceeded", "AddressDenied", "ImageNotAllowed"].iter().any(|reason| row["change"] == *reason)
}

/// Keys that objects would get.
fn numbers(before: &World, after: &World) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, account) in &after.accounts {
        let was = before.accounts.get(name).and_then(|account| account.key);
        if let Some(key) = account.key.filter(|key| Some(*key) != was) {
            let why = "the next key that no account had";
            rows.push(change(&format!("Account {name}"), "gets a key", None, Some(&key.to_string()), why));
        }
    }
    for (name, balancer) in &after.load_balancers {
        let was = before.load_balancers.get(name).and_then(|balancer| balancer.key);
        if let Some(key) = balancer.key.filter(|key| Some(*key) != was) {
            let why = "the next key of its account";
            rows.push(change(&named("LoadBalancer", name), "gets a key", None, Some(&key.to_string()), why));
        }
    }
    rows
}

fn differences(before: &Plan, after: &Plan) -> Vec<Row> {
    let mut rows = Vec::new();
    let addresses: BTreeSet<_> = before.claims.keys().chain(after.claims.keys()).collect();
    for address in addresses {
        let holders = |plan: &Plan| -> BTreeSet<String> {
            let holders = plan.claims.get(address).into_iter().flat_map(|claim| claim.holders.values());
            holders.map(|holding| format!("{}/{}", holding.account, holding.name)).collect()
        };
        let (was, is) = (holders(before), holders(after));
        for holder in is.difference(&was) {
            let pool = after.claims.get(address).map(|claim| claim.pool.to_string()).unwrap_or_default();
            let why = format!("the lowest free address of pool {pool}, or the one that it asks for");
            rows.push(change(
                &format!("LoadBalancer {holder}"),
                "gets an address",
                None,
                Some(&address.to_string()),
                &why,
            ));
        }
        for holder in was.difference(&is) {
            let why = "it does not need it any more";
            rows.push(change(
                &format!("LoadBalancer {holder}"),
                "loses its address",
                Some(&address.to_string()),
                None,
                why,
            ));
        }
    }
    for (name, is) in &after.accounts {
        let was = before.accounts.get(name).map(|planned| &planned.verdicts);
        rows.extend(problems(&format!("Account {name}"), was, &is.verdicts));
    }
    for (name, is) in &after.prefixes {
        let what = format!("ServicePrefix {name}");
        let was = before.prefixes.get(name);
        rows.extend(problems(&what, was.map(|planned| &planned.verdicts), &is.verdicts));
        let count = was.map(|planned| planned.capacity.to_string());
        if count.as_ref() != Some(&is.capacity.to_string()) {
            let now = is.capacity.to_string();
            rows.push(change(&what, "addresses", count.as_deref(), Some(&now), "what its pools can give"));
        }
    }
    for (name, is) in &after.groups {
        let was = before.groups.get(name).map(|planned| &planned.verdicts);
        rows.extend(problems(&named("ServiceGroup", name), was, &is.verdicts));
    }
    for (name, is) in &after.load_balancers {
        let was = before.load_balancers.get(name).map(|planned| &planned.verdicts);
        rows.extend(problems(&named("LoadBalancer", name), was, &is.verdicts));
    }
    for (load_balancer, endpoints) in &after.endpoints {
        for (name, is) in endpoints.iter() {
            let was = before.endpoint(load_balancer, name).map(|planned| &planned.verdicts);
            let name = ObjectName { namespace: Arc::clone(&load_balancer.namespace), name: Arc::clone(name) };
            rows.extend(problems(&named("Endpoint", &name), was, &is.verdicts));
        }
    }
    rows.extend(listeners(before, after));
    rows
}

/// What Envoys would listen on, and how many endpoints would be behind it.
fn listeners(before: &Plan, after: &Plan) -> Vec<Row> {
    let units: BTreeSet<_> = before.units.keys().chain(after.units.keys()).collect();
    let mut rows = Vec::new();
    for id in units {
        let of = |plan: &Plan| plan.units.get(id).map(|unit| unit.listeners.clone()).unwrap_or_default();
        let (was, is) = (of(before), of(after));
        let ports: BTreeSet<_> = was.keys().chain(is.keys()).copied().collect();
        for port in ports {
            let count = |listeners: &std::collections::BTreeMap<_, portolan_core::gateway::unit::Listener>| {
                listeners.get(&port).map(|listener| listener.endpoints.len().to_string())
            };
            let (was, is) = (count(&was), count(&is));
            if was != is {
                let what = format!("Envoy {id} {port}");
                rows.push(change(
                    &what,
                    "endpoints",
                    was.as_deref(),
                    is.as_deref(),
                    "its listener follows the objects",
                ));
            }
        }
    }
    rows
}

/// Problems that an object does not have now. What only waits for the next step is none.
fn problems(what: &str, was: Option<&Verdicts>, is: &Verdicts) -> Vec<Row> {
    let new = is.0.iter().filter(|verdict| verdict.kind != ConditionKind::Ready).filter_map(|verdict| {
        let problem = verdict.problem.as_ref()?;
        let is_new = was.and_then(|was| was.problem(verdict.kind)) != Some(problem);
        (is_new && !problem.is_transient()).then(|| change(what, problem.reason(), None, None, &problem.to_string()))
    });
    new.collect()
}

fn named(kind: &str, name: &ObjectName) -> String {
    format!("{kind} {}/{}", account_of(&name.namespace).unwrap_or(&name.namespace), name.name)
}

fn change(what: &str, change: &str, from: Option<&str>, to: Option<&str>, why: &str) -> Row {
    row([
        ("what", json!(what)),
        ("change", json!(change)),
        ("from", json!(from)),
        ("to", json!(to)),
        ("why", json!(why)),
        ("gateway", Value::Null),
    ])
}

const COLUMNS: &[Column] = &[
    column("kind", "KIND"),
    column("account", "ACCOUNT"),
    column("name", "NAME"),
    column("address", "ADDRESS"),
    column("endpoints", "ENDPOINTS"),
    column("ready", "READY"),
    column("problem", "PROBLEM"),
    wide("ports", "PORTS"),
    wide("key", "KEY"),
];

/// The state of all objects of provider and tenants, as their conditions have it.
pub(super) async fn status(client: Client) -> Result<QueryResult, QueryError> {
    Ok(shown(&Objects::read(&client).await?))
}

fn shown(objects: &Objects) -> QueryResult {
    let mut rows = Vec::new();
    for account in &objects.accounts {
        let conditions = account.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        rows.push(stated("Account", &account.name_any(), "", conditions));
    }
    for prefix in &objects.prefixes {
        let conditions = prefix.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        let mut row = stated("ServicePrefix", "", &prefix.name_any(), conditions);
        row.insert("address".to_owned(), json!(prefix.spec.pool));
        rows.push(row);
    }
    for group in &objects.groups {
        let namespace = group.namespace().unwrap_or_default();
        let conditions = group.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        rows.push(stated("ServiceGroup", account_of(&namespace).unwrap_or(&namespace), &group.name_any(), conditions));
    }
    for balancer in &objects.load_balancers {
        let namespace = balancer.namespace().unwrap_or_default();
        let conditions = balancer.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        let account = account_of(&namespace).unwrap_or(&namespace);
        let mut row = stated("LoadBalancer", account, &balancer.name_any(), conditions);
        let ports: Vec<String> = balancer.spec.public_ports.iter().map(|port| port.port.to_string()).collect();
        let own = || {
            let of_namespace = objects.endpoints.iter().filter(|one| one.namespace().as_deref() == Some(&*namespace));
            of_namespace.filter(|one| one.spec.load_balancer == balancer.name_any())
        };
        let conditions = |endpoint: &portolan_api::gateway::Endpoint| {
            endpoint.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default()
        };
        let served = own().filter(|one| is_true(&conditions(one), ConditionKind::Programmed)).count();
        row.insert("address".to_owned(), json!(balancer.spec.public_address));
        row.insert("endpoints".to_owned(), json!(format!("{served}/{}", own().count())));
        row.insert("ports".to_owned(), json!(ports.join(",")));
        row.insert("key".to_owned(), json!(balancer.spec.gue_key));
        rows.push(row);
    }
    let ready = rows.iter().filter(|row| row["ready"] == "True").count();
    let summary = format!("{ready} of {} objects are ready", rows.len());
    QueryResult { columns: COLUMNS, yes: ready == rows.len(), rows, summary, warnings: Vec::new() }
}

fn is_true(conditions: &[Condition], kind: ConditionKind) -> bool {
    find(conditions, kind.as_str()).is_some_and(|condition| condition.status == "True")
}

fn stated(kind: &str, account: &str, name: &str, conditions: &[Condition]) -> Row {
    let ready = find(conditions, ConditionKind::Ready.as_str());
    let problem = match ready {
        None => Some("it has no status yet: does the operator run with gateway?".to_owned()),
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(format!("{}: {}", ready.reason, ready.message)),
    };
    row([
        ("kind", json!(kind)),
        ("account", json!(account)),
        ("name", json!(name)),
        ("ready", json!(ready.map_or("Unknown", |ready| &ready.status))),
        ("problem", json!(problem)),
    ])
}
