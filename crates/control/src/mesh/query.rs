//! Queries about the mesh: what a change would do to each proxy, why an object has its status, the state of all objects.

use std::collections::BTreeSet;

use kube::Client;
use kube::core::object::HasStatus;
use portolan_api::mesh::MeshStatus;
use portolan_api::well_known::conditions;
use portolan_core::mesh::control::types::{MeshKind, ObjectName};
use portolan_core::mesh::control::wire::ProxyConfig;
use portolan_core::mesh::control::{
    CallMethod, Diagnostic, ObjectOrigin, ObjectStatus, ObservedConfig, Ownership, Plan, ProxyCall,
    ProxyImplementation, ResolvedReference, Resolver, diff, normalize,
};
use serde_json::{Value, json};

use super::doctor;
use super::observe::{Cache, key};
use super::owner::{Owner, display};
use super::snapshot::Objects;
use crate::runtime::capability::{Queries, Why};
use crate::runtime::conditions::find;
use crate::runtime::query::{Column, QueryError, QueryResult, Row, column, part, row, wide};

/// What users can ask.
pub(super) const QUERIES: Queries = Queries {
    plan: |client, changes| Box::pin(plan(client, changes)),
    why: &[
        Why {
            words: &["vsvc", "virtualservice", "virtualservices"],
            about: "NAMESPACE/NAME of a VirtualService",
            explain: |client, name, _| Box::pin(why(client, MeshKind::VirtualService, name)),
        },
        Why {
            words: &["route", "rte", "routes"],
            about: "NAMESPACE/NAME of a Route",
            explain: |client, name, _| Box::pin(why(client, MeshKind::Route, name)),
        },
        Why {
            words: &["target", "tr", "targets"],
            about: "NAMESPACE/NAME of a Target",
            explain: |client, name, _| Box::pin(why(client, MeshKind::Target, name)),
        },
        Why {
            words: &["rule", "rules"],
            about: "NAMESPACE/NAME of a Rule",
            explain: |client, name, _| Box::pin(why(client, MeshKind::Rule, name)),
        },
    ],
    status: |client| Box::pin(status(client)),
    node_loss: None,
    doctor: |client, examination| Box::pin(doctor::examine(client, examination)),
};

/// What applying these objects would change.
async fn plan(client: Client, mut changes: Vec<Value>) -> Result<QueryResult, QueryError> {
    let warnings = changes.iter_mut().filter_map(correct_api_version).collect();
    let objects = Objects::read(&client).await?;
    let mut changed = objects.clone();
    changed.overlay(changes)?;
    let plan_of = |objects: Objects| {
        let settings = objects.settings();
        Resolver::new(objects.cache().world(&settings)).plan()
    };
    let rows = difference(&plan_of(objects), &plan_of(changed));
    Ok(QueryResult { warnings, ..QueryResult::of_changes(rows) })
}

/// l7mp's documentation writes an apiVersion that no API server can store.
fn correct_api_version(change: &mut Value) -> Option<String> {
    let old = change["apiVersion"].as_str().filter(|version| *version == "l7mp.io/MSM/v1")?.to_owned();
    change["apiVersion"] = "l7mp.io/v1".into();
    let (kind, name) = (change["kind"].as_str()?, change["metadata"]["name"].as_str()?);
    Some(format!("{kind} `{name}`: apiVersion `{old}` cannot be stored: write `l7mp.io/v1`"))
}

fn difference(before: &Plan, after: &Plan) -> Vec<Row> {
    let mut rows = Vec::new();
    for (object, verdict) in &after.statuses {
        let was = before.statuses.get(object).and_then(problem);
        if let Some(note) = problem(verdict).filter(|note| was.as_ref() != Some(note)) {
            rows.push(change(&display(object), note.reason.as_str(), None, &note.message));
        }
    }
    let generated: BTreeSet<&Owner> = before.generated.keys().chain(after.generated.keys()).collect();
    for object in generated {
        let (what, why) = match (before.generated.get(object), after.generated.get(object)) {
            (None, Some(_)) => ("generated", "a reference requires it"),
            (Some(_), None) => ("removed", "no object refers to it any more"),
            (Some(was), Some(is)) if was.spec != is.spec => ("changed", "the object it is generated from changed"),
            (Some(_), Some(_)) | (None, None) => continue,
        };
        rows.push(change(&display(object), what, None, why));
    }
    let nothing = ProxyConfig::default();
    let pods: BTreeSet<&ObjectName> = before.desired.keys().chain(after.desired.keys()).collect();
    for pod in pods {
        let of = |plan: &'_ Plan| plan.desired.get(pod).cloned().unwrap_or_else(|| nothing.clone());
        rows.extend(calls(&of(before), &of(after)).iter().flat_map(|call| operations(pod, call)));
    }
    rows
}

/// The requests that one of our proxies would get.
fn calls(before: &ProxyConfig, after: &ProxyConfig) -> Vec<ProxyCall> {
    let ownership = Ownership::default();
    let mut held = ObservedConfig::default();
    held.learn(None, before, &ownership);
    diff(after, &held, ProxyImplementation::Portolan, &ownership).calls
}

fn operations(pod: &ObjectName, call: &ProxyCall) -> Vec<Row> {
    let what = format!("proxy {pod}");
    let Some(operations) = call.body.as_ref().and_then(|body| body["ops"].as_array()) else {
        let verb = match call.method {
            CallMethod::Post => "POST",
            CallMethod::Delete => "DELETE",
        };
        return vec![change(&what, verb, Some(&call.path), "")];
    };
    let told = operations.iter().map(|one| {
        let word = |key: &str| one[key].as_str().unwrap_or_default();
        let (operation, kind) = (word("op"), word("kind"));
        let why = match (operation, kind, one["recursive"] == true) {
            ("delete", "listener", true) => "its sessions end: removeOrphanSessions is set",
            ("delete", "endpoint", _) => "its sessions fail over if their route retries, else end",
            ("drain", ..) | ("delete", "listener", false) => "no new sessions; open sessions continue",
            ("put", "listener", _) => "sessions that still match continue",
            _ => "open sessions continue",
        };
        change(&what, &format!("{operation} {kind}"), Some(word("name")), why)
    });
    told.collect()
}

fn change(what: &str, change: &str, to: Option<&str>, why: &str) -> Row {
    row([
        ("what", json!(what)),
        ("change", json!(change)),
        ("from", Value::Null),
        ("to", json!(to)),
        ("why", json!(why)),
        ("gateway", Value::Null),
    ])
}

fn problem(verdict: &ObjectStatus) -> Option<Diagnostic> {
    verdict.first_invalid().or_else(|| verdict.unresolved().next()).cloned()
}

const STEPS: &[Column] =
    &[column("place", "PLACE"), column("name", "NAME"), column("step", "STEP"), column("says", "SAYS")];

/// Why an object has its status: each reference with the step that resolved it, and the proxies that should hold it.
async fn why(client: Client, kind: MeshKind, text: String) -> Result<QueryResult, QueryError> {
    let (namespace, short) = text.split_once('/').unwrap_or(("default", &text));
    let name = ObjectName::new(namespace, short);
    let objects = Objects::read(&client).await?;
    let settings = objects.settings();
    let cache = objects.cache();
    let resolver = Resolver::new(cache.world(&settings));
    let what = display(&(kind, name.clone()));
    let Some(standing) = resolver.origin(kind, &name) else {
        return Err(QueryError::NotFound {
            what: format!("there is no {what}"),
            hint: format!("name it NAMESPACE/NAME; list them: kubectl get {}s.l7mp.io -A", kind.word()),
        });
    };
    let mut rows = vec![read(&resolver, kind, &name)];
    if standing == ObjectOrigin::Generated {
        let annotations = resolver.world().objects.get(&(kind, name.clone())).map(|object| object.annotations.clone());
        let users = annotations.as_ref().and_then(|all| all.get("l7mp.io/generated-for")).unwrap_or("nobody");
        rows.push(step(
            "generated",
            None,
            None,
            &format!("generated for {users}; once edited, the operator leaves it alone"),
        ));
        let summary = format!("{what} is generated");
        return Ok(QueryResult { columns: STEPS, rows, summary, yes: true, warnings: Vec::new() });
    }
    for ResolvedReference { path: place, name, step: number, meaning } in resolver.explain(kind, &name) {
        rows.push(step(&place, name.as_deref(), number, &meaning));
    }
    let verdict = resolver.status(kind, &name).unwrap_or_default();
    let judged: Vec<Row> = judged(&verdict).into_iter().filter(|row| !is_said(&rows, row)).collect();
    rows.extend(judged);
    for pod in resolver.proxy_pods(kind, &name) {
        rows.push(step("proxy", Some(&pod.to_string()), None, "its proxy should be programmed with it"));
    }
    let status = status_of(&cache, kind, &name).unwrap_or_default();
    let programmed = find(&status.conditions, conditions::PROGRAMMED);
    let is_programmed = programmed.is_some_and(|condition| condition.status == "True");
    if let Some(condition) = programmed.filter(|condition| rows.iter().all(|row| row["says"] != *condition.message)) {
        rows.push(step("status", Some(&condition.reason), None, &condition.message));
    }
    let summary = match (problem(&verdict), programmed) {
        (Some(note), _) => format!("{what} is not programmed: {note}"),
        (None, None) => format!("{what} has no status yet: is the operator running with mesh?"),
        (None, Some(_)) if is_programmed => format!("{what} is programmed"),
        (None, Some(condition)) => format!("{what} is not programmed on all proxies: {}", condition.reason),
    };
    let yes = problem(&verdict).is_none() && is_programmed;
    Ok(QueryResult { columns: STEPS, rows, summary, yes, warnings: Vec::new() })
}

/// Whether the step of a reference says already what is unmet.
fn is_said(rows: &[Row], unmet: &Row) -> bool {
    let Some((_, problem)) = unmet["says"].as_str().and_then(|says| says.split_once(": ")) else { return false };
    unmet["place"] == "unmet" && rows.iter().any(|row| row["says"].as_str().is_some_and(|says| says.ends_with(problem)))
}

fn judged(verdict: &ObjectStatus) -> Vec<Row> {
    let ObjectStatus {
        refused, unmet, diagnostics: notes, matched, naked, endpoints, generated, used_by, users, ..
    } = verdict;
    let mut rows: Vec<_> =
        refused.iter().map(|note| step("refused", Some(note.reason.as_str()), None, &note.message)).collect();
    rows.extend(unmet.iter().map(|note| step("unmet", Some(note.reason.as_str()), None, &note.message)));
    rows.extend(notes.iter().map(|note| step("note", Some(note.reason.as_str()), None, &note.message)));
    if *matched > 0 {
        rows.push(step("selector", None, None, &format!("{matched} pods match, {naked} of them run no proxy")));
    }
    if *endpoints > 0 {
        rows.push(step("endpoints", None, None, &format!("{endpoints} addresses")));
    }
    rows.extend(
        generated.iter().map(|object| step("generates", Some(&display(object)), None, "a reference requires it")),
    );
    rows.extend(used_by.iter().map(|object| step("used by", Some(&display(object)), None, "refers to it")));
    let more = users.saturating_sub(used_by.len());
    if more > 0 {
        rows.push(step("used by", None, None, &format!("{more} more")));
    }
    rows
}

/// The spec in its normal form, for JSON and YAML: a table has no room for it.
fn read(resolver: &Resolver, kind: MeshKind, name: &ObjectName) -> Row {
    let spec =
        resolver.world().objects.get(&(kind, name.clone())).map(|object| object.spec.clone()).unwrap_or_default();
    let read = match kind {
        MeshKind::VirtualService => normalize::virtual_service(&spec).outcome.map(|one| one.to_value()),
        MeshKind::Route => normalize::route(&spec).outcome.map(|one| one.to_value()),
        MeshKind::Target => normalize::target(&spec).outcome.map(|one| one.to_value()),
        MeshKind::Rule => normalize::rule(&spec).outcome.map(|one| one.to_value()),
        MeshKind::Service => Ok(Value::Null),
    };
    let mut row = step("spec", None, None, "-o yaml shows it in its normal form");
    row.insert("normal".to_owned(), read.unwrap_or_default());
    row
}

fn step(place: &str, name: Option<&str>, number: Option<u8>, says: &str) -> Row {
    row([("place", json!(place)), ("name", json!(name)), ("step", json!(number)), ("says", json!(says))])
}

const OBJECTS: &[Column] = &[
    column("kind", "KIND"),
    column("namespace", "NAMESPACE"),
    column("name", "NAME"),
    column("accepted", "ACCEPTED"),
    column("resolved", "RESOLVED"),
    column("programmed", "PROGRAMMED"),
    column("proxies", "PROXIES"),
    column("problem", "PROBLEM"),
    wide("unreachable", "UNREACHABLE"),
    wide("usedBy", "USED BY"),
];

/// The state of every object that users wrote, as its status reports it.
pub(super) async fn status(client: Client) -> Result<QueryResult, QueryError> {
    let objects = Objects::read(&client).await?;
    let settings = objects.settings();
    let cache = objects.cache();
    let resolver = Resolver::new(cache.world(&settings));
    let (mut rows, mut programmed) = (Vec::new(), 0);
    for (kind, name) in resolver.world().objects.keys() {
        if *kind == MeshKind::Service || resolver.origin(*kind, name) == Some(ObjectOrigin::Generated) {
            continue;
        }
        let status = status_of(&cache, *kind, name).unwrap_or_default();
        programmed += usize::from(state(&status, conditions::PROGRAMMED) == "True");
        rows.push(status_row(*kind, name, &status));
    }
    let summary = match (rows.len(), programmed) {
        (0, _) => "no mesh objects".to_owned(),
        (all, programmed) if all == programmed => format!("all {all} mesh objects are programmed"),
        (all, programmed) => format!("{} of {all} mesh objects are not programmed", all - programmed),
    };
    Ok(QueryResult { columns: OBJECTS, yes: programmed == rows.len(), rows, summary, warnings: Vec::new() })
}

fn status_row(kind: MeshKind, name: &ObjectName, status: &MeshStatus) -> Row {
    let MeshStatus { conditions, proxies, used_by, .. } = status;
    let types = [conditions::ACCEPTED, conditions::RESOLVED_REFS, conditions::PROGRAMMED];
    let mut unmet = types.iter().filter_map(|kind| find(conditions, kind)).filter(|one| one.status != "True");
    let problem = match unmet.next() {
        Some(condition) => Some(format!("{}: {}", condition.reason, condition.message)),
        None if conditions.is_empty() => Some("no status yet: is the operator running with mesh?".to_owned()),
        None => None,
    };
    row([
        ("kind", json!(kind.as_str())),
        ("namespace", json!(&*name.namespace)),
        ("name", json!(&*name.name)),
        ("accepted", json!(state(status, conditions::ACCEPTED))),
        ("resolved", json!(state(status, conditions::RESOLVED_REFS))),
        ("programmed", json!(state(status, conditions::PROGRAMMED))),
        ("proxies", json!(proxies.as_ref().map(|proxies| part("programmed", proxies.programmed, proxies.matched)))),
        ("problem", json!(problem)),
        ("unreachable", json!(proxies.as_ref().map(|proxies| proxies.unreachable))),
        ("usedBy", json!((!used_by.is_empty()).then(|| used_by.join(", ")))),
    ])
}

fn state<'a>(status: &'a MeshStatus, kind: &str) -> &'a str {
    find(&status.conditions, kind).map_or("Unknown", |condition| condition.status.as_str())
}

fn status_of(cache: &Cache, kind: MeshKind, name: &ObjectName) -> Option<MeshStatus> {
    let key = key(name);
    match kind {
        MeshKind::VirtualService => cache.virtual_services.get(&key)?.status().cloned(),
        MeshKind::Route => cache.routes.get(&key)?.status().cloned(),
        MeshKind::Target => cache.targets.get(&key)?.status().cloned(),
        MeshKind::Rule => cache.rules.get(&key)?.status().cloned(),
        MeshKind::Service => None,
    }
}
