//! Mesh answers: what proxies would be told, and why an object is as it is.

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
use serde_json::{Map, Value, json};

use super::observe::{Cache, key};
use super::owner::{Owner, display};
use super::snapshot::Objects;
use crate::answers::{Answer, Column, Unanswered, column, row};
use crate::runtime::conditions::find;

/// What applying these objects would change, before it does.
pub(crate) async fn plan(client: &Client, changes: Vec<Value>) -> Result<Answer, Unanswered> {
    let objects = Objects::read(client).await?;
    let mut changed = objects.clone();
    changed.overlay(changes)?;
    let of = |objects: Objects| {
        let settings = objects.settings();
        Resolver::new(objects.cache().world(&settings)).plan()
    };
    Ok(Answer::of_changes(difference(&of(objects), &of(changed))))
}

fn difference(before: &Plan, after: &Plan) -> Vec<Map<String, Value>> {
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
            (None, Some(_)) => ("generated", "a name makes it necessary"),
            (Some(_), None) => ("removed", "nobody names it any more"),
            (Some(was), Some(is)) if was.spec != is.spec => ("changed", "what it stands for is another"),
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

/// What a proxy of ours would be told.
fn calls(before: &ProxyConfig, after: &ProxyConfig) -> Vec<ProxyCall> {
    let ownership = Ownership::default();
    let mut held = ObservedConfig::default();
    held.learn(None, before, &ownership);
    diff(after, &held, ProxyImplementation::Portolan, &ownership).calls
}

fn operations(pod: &ObjectName, call: &ProxyCall) -> Vec<Map<String, Value>> {
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
            ("delete", "listener", true) => "its sessions end, as it removes orphan sessions",
            ("delete", "endpoint", _) => "its sessions go elsewhere as their route retries, or end",
            ("drain", ..) | ("delete", "listener", false) => "no new sessions; live ones go on",
            ("put", "listener", _) => "sessions that still fit go on",
            _ => "live sessions go on",
        };
        change(&what, &format!("{operation} {kind}"), Some(word("name")), why)
    });
    told.collect()
}

fn change(what: &str, change: &str, to: Option<&str>, why: &str) -> Map<String, Value> {
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

/// Why an object is as it is: every name in it with the step that decided, and where it should be.
pub(crate) async fn why(client: &Client, kind: MeshKind, text: &str) -> Result<Answer, Unanswered> {
    let (namespace, short) = text.split_once('/').unwrap_or(("default", text));
    let name = ObjectName::new(namespace, short);
    let objects = Objects::read(client).await?;
    let settings = objects.settings();
    let cache = objects.cache();
    let resolver = Resolver::new(cache.world(&settings));
    let what = display(&(kind, name.clone()));
    let Some(standing) = resolver.origin(kind, &name) else {
        return Err(Unanswered::NotFound {
            what: format!("there is no {what}"),
            hint: format!("name it NAMESPACE/NAME; see which there are: kubectl get {}s.l7mp.io -A", kind.word()),
        });
    };
    let mut rows = vec![read(&resolver, kind, &name)];
    if standing == ObjectOrigin::Generated {
        let annotations = resolver.world().objects.get(&(kind, name.clone())).map(|object| object.annotations.clone());
        let users = annotations.as_ref().and_then(|all| all.get("l7mp.io/generated-for")).unwrap_or("nobody");
        rows.push(step("generated", None, None, &format!("it is generated for {users}; edit it, and it is yours")));
        let summary = format!("{what} is generated");
        return Ok(Answer { columns: STEPS, rows, summary, yes: true, warnings: Vec::new() });
    }
    for ResolvedReference { path: place, name, step: number, meaning } in resolver.explain(kind, &name) {
        rows.push(step(&place, name.as_deref(), number, &meaning));
    }
    let verdict = resolver.status(kind, &name).unwrap_or_default();
    rows.extend(judged(&verdict));
    for pod in resolver.proxy_pods(kind, &name) {
        rows.push(step("proxy", Some(&pod.to_string()), None, "its proxy should hold it"));
    }
    let status = status(&cache, kind, &name).unwrap_or_default();
    let programmed = find(&status.conditions, conditions::PROGRAMMED);
    let is_in_force = programmed.is_some_and(|condition| condition.status == "True");
    if let Some(condition) = programmed {
        rows.push(step("status", Some(&condition.reason), None, &condition.message));
    }
    let summary = match (problem(&verdict), programmed) {
        (Some(note), _) => format!("{what} is not in force: {note}"),
        (None, None) => format!("{what} has no status yet: does the operator run with the mesh?"),
        (None, Some(_)) if is_in_force => format!("{what} is in force"),
        (None, Some(condition)) => format!("{what} is not in force everywhere: {}", condition.reason),
    };
    let yes = problem(&verdict).is_none() && is_in_force;
    Ok(Answer { columns: STEPS, rows, summary, yes, warnings: Vec::new() })
}

fn judged(verdict: &ObjectStatus) -> Vec<Map<String, Value>> {
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
        generated.iter().map(|object| step("generates", Some(&display(object)), None, "a name makes it necessary")),
    );
    rows.extend(used_by.iter().map(|object| step("used by", Some(&display(object)), None, "names it")));
    let more = users.saturating_sub(used_by.len());
    if more > 0 {
        rows.push(step("used by", None, None, &format!("{more} more")));
    }
    rows
}

/// What was written, brought to the normal form. A table has no room for it.
fn read(resolver: &Resolver, kind: MeshKind, name: &ObjectName) -> Map<String, Value> {
    let spec =
        resolver.world().objects.get(&(kind, name.clone())).map(|object| object.spec.clone()).unwrap_or_default();
    let read = match kind {
        MeshKind::VirtualService => normalize::virtual_service(&spec).outcome.map(|one| one.to_value()),
        MeshKind::Route => normalize::route(&spec).outcome.map(|one| one.to_value()),
        MeshKind::Target => normalize::target(&spec).outcome.map(|one| one.to_value()),
        MeshKind::Rule => normalize::rule(&spec).outcome.map(|one| one.to_value()),
        MeshKind::Service => Ok(Value::Null),
    };
    let mut row = step("spec", None, None, "as it is read: -o yaml shows it whole");
    row.insert("normal".to_owned(), read.unwrap_or_default());
    row
}

fn step(place: &str, name: Option<&str>, number: Option<u8>, says: &str) -> Map<String, Value> {
    row([("place", json!(place)), ("name", json!(name)), ("step", json!(number)), ("says", json!(says))])
}

fn status(cache: &Cache, kind: MeshKind, name: &ObjectName) -> Option<MeshStatus> {
    let key = key(name);
    match kind {
        MeshKind::VirtualService => cache.virtual_services.get(&key)?.status().cloned(),
        MeshKind::Route => cache.routes.get(&key)?.status().cloned(),
        MeshKind::Target => cache.targets.get(&key)?.status().cloned(),
        MeshKind::Rule => cache.rules.get(&key)?.status().cloned(),
        MeshKind::Service => None,
    }
}
