//! What `portolan plan`, `why` and `status` can ask of the mirror. Answers come from both clusters as they are now, by the
//! same planner that the operator acts on.

use std::collections::BTreeSet;

use kube::{Client, ResourceExt as _};
use portolan_api::mirror::RemoteCluster;
use portolan_api::well_known::conditions;
use portolan_core::mirror::mcs::{self, Outcome};
use portolan_core::mirror::{Action, Decision, Planner, Role, Row as TableRow, ServiceName, SliceAction};
use serde_json::{Value, json};

use super::doctor;
use super::snapshot::Objects;
use crate::runtime::capability::{Queries, Why};
use crate::runtime::conditions::find;
use crate::runtime::overlay::list_all;
use crate::runtime::query::{Column, QueryError, QueryResult, Row, column, row, wide};

/// What users can ask.
pub(super) const QUERIES: Queries = Queries {
    plan: |client, changes| Box::pin(plan(client, changes)),
    why: &[Why {
        words: &["service", "svc", "services"],
        about: "NAMESPACE/NAME of a Service here or in a remote cluster",
        explain: |client, name, _| Box::pin(why(client, name)),
    }],
    status: |client| Box::pin(status(client)),
    node_loss: None,
    doctor: |client, examination| Box::pin(doctor::examine(client, examination)),
};

/// What applying these objects would change.
async fn plan(client: Client, changes: Vec<Value>) -> Result<QueryResult, QueryError> {
    let objects = Objects::read(&client).await?;
    let mut changed = objects.clone();
    changed.overlay(changes).await?;
    let (before, _) = objects.planner();
    let (after, problems) = changed.planner();
    let mut rows = Vec::new();
    let names: BTreeSet<ServiceName> = before.names().into_iter().chain(after.names()).collect();
    for name in names {
        let (was, is) = (before.decide(&name), after.decide(&name));
        if was != is {
            rows.extend(changes_of(&name, &is));
        }
    }
    let warnings = problems.iter().map(|(name, problem)| format!("{name}: {}: {}", problem.reason, problem.message));
    Ok(QueryResult { warnings: warnings.collect(), ..QueryResult::of_changes(rows) })
}

/// What a decision does.
fn changes_of(name: &ServiceName, decision: &Decision) -> Vec<Row> {
    let what = format!("service {name}");
    let remote = decision.remote.as_deref().unwrap_or_default();
    let change = |what: &str, change: &str, why: &str| {
        row([
            ("what", json!(what)),
            ("change", json!(change)),
            ("from", Value::Null),
            ("to", json!(remote)),
            ("why", json!(why)),
            ("gateway", Value::Null),
        ])
    };
    let says = explained(decision.row);
    let mut rows = match &decision.action {
        Action::None => Vec::new(),
        Action::Add(_) => vec![change(&what, "mirrored", says)],
        Action::Update(_) => vec![change(&what, "changed", says)],
        Action::Recreate => vec![change(&what, "deleted and made again", "a field differs that cannot be changed")],
        Action::Delete => vec![change(&what, "deleted", says)],
    };
    for (slice, action) in &decision.slices {
        let done = match action {
            SliceAction::Write(want) => format!("{} endpoints", want.content.endpoints.len()),
            SliceAction::Delete => "deleted".to_owned(),
        };
        rows.push(change(&format!("endpointslice {}/{slice}", name.namespace), &done, ""));
    }
    rows.extend(decision.unmet.iter().map(|unmet| change(&what, unmet.reason.as_str(), &unmet.message)));
    rows
}

const STEPS: &[Column] = &[column("place", "PLACE"), column("name", "NAME"), column("says", "SAYS")];

/// Why a Service is or is not mirrored.
async fn why(client: Client, text: String) -> Result<QueryResult, QueryError> {
    let (namespace, short) = text.split_once('/').unwrap_or(("default", &text));
    let name = ServiceName::new(namespace, short);
    let objects = Objects::read(&client).await?;
    let (planner, problems) = objects.planner();
    let clusterset = objects.clusterset(&planner);
    let shared = clusterset.as_ref().and_then(|clusterset| clusterset.decisions.get(&name));
    let world = planner.world();
    let local = world.local.services.get(&name);
    let mut rows: Vec<Row> = Vec::new();
    for (remote, problem) in &problems {
        rows.push(step("remote", remote, &format!("{}: {}", problem.reason, problem.message)));
    }
    let mut is_source = false;
    for (remote, of) in &world.remotes {
        let Some(source) = of.rules.source_name(&name) else { continue };
        let says = match planner.qualifies(remote, &source) {
            Ok(()) => {
                is_source = true;
                "has it, and it is to be mirrored".to_owned()
            }
            Err(None) => "has no such Service".to_owned(),
            Err(Some(why)) => {
                is_source = true;
                format!("has it, but it is not mirrored: {}", why.as_str())
            }
        };
        rows.push(step("remote", remote, &says));
    }
    if local.is_none() && !is_source && shared.is_none() {
        return Err(QueryError::NotFound {
            what: format!("there is no Service {name}, neither here nor in a remote cluster that can be read"),
            hint: "name it NAMESPACE/NAME; list the remotes: kubectl get remoteclusters".to_owned(),
        });
    }
    let decision = planner.decide(&name);
    rows.push(step("here", "", &here(&planner, &name)));
    rows.push(step("decision", remote_of(&decision), explained(decision.row)));
    rows.extend(decision.unmet.iter().map(|unmet| step("unmet", unmet.reason.as_str(), &unmet.message)));
    for (slice, content) in world.local.slices.get(&name).into_iter().flatten() {
        let says = format!("{} endpoints of {}", content.content.endpoints.len(), content.remote);
        rows.push(step("endpoints", slice, &says));
    }
    rows.extend(shared.into_iter().flat_map(shared_steps));
    let pending = !decision.is_settled() || shared.is_some_and(|shared| !shared.is_settled());
    if pending {
        rows.push(step("pending", "", "the operator has something to write: does it run with mirror?"));
    }
    let yes = !pending && decision.unmet.is_empty() && matches!(decision.row, TableRow::Follow | TableRow::Frozen);
    let yes = yes || local.is_some_and(|local| local.role == Role::HandLabelled) && decision.unmet.is_empty();
    let yes =
        yes || !pending && shared.is_some_and(|shared| shared.outcome == Outcome::Imported && shared.unmet.is_empty());
    let summary = match shared {
        Some(shared) => format!("service {name}: {}", imported(&shared.outcome)),
        None => format!("service {name}: {}", explained(decision.row)),
    };
    Ok(QueryResult { columns: STEPS, rows, summary, yes, warnings: Vec::new() })
}

/// How the import of a name came about.
fn shared_steps(shared: &mcs::Decision) -> Vec<Row> {
    let mut rows = vec![step("import", "", &imported(&shared.outcome))];
    let mut exporters = shared.exporters.iter();
    rows.extend(exporters.next().map(|first| step("export", first, "is the oldest, and decides")));
    rows.extend(exporters.map(|other| step("export", other, "adds its ports and endpoints")));
    rows.extend(
        shared.excluded.iter().map(|excluded| {
            step("export", &excluded.cluster_id, &format!("does not count: {}", excluded.why.advice()))
        }),
    );
    let conflicts = shared.conflicts.iter();
    rows.extend(conflicts.map(|conflict| step("conflict", conflict.reason.as_str(), &conflict.message)));
    rows.extend(shared.unmet.iter().map(|unmet| step("unmet", unmet.reason.as_str(), &unmet.message)));
    rows
}

fn imported(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Imported => "it is imported from the clusters that export it".to_owned(),
        Outcome::Held(clusters) => {
            let clusters: Vec<&str> = clusters.iter().map(|id| &**id).collect();
            format!("its import stays as it is, as it is not known what {} exports", clusters.join(", "))
        }
        Outcome::NotImported(why) => format!("it is not imported: {}", why.as_str()),
    }
}

fn remote_of(decision: &Decision) -> &str {
    decision.remote.as_deref().unwrap_or_default()
}

fn here(planner: &Planner, name: &ServiceName) -> String {
    match planner.world().local.services.get(name) {
        None => "there is no such Service".to_owned(),
        Some(service) => match (service.role, &service.owner) {
            (Role::Foreign, _) => "the Service belongs to a user".to_owned(),
            (Role::HandLabelled, _) => "the Service asks for its endpoints to be kept".to_owned(),
            (Role::Mirror, Some(owner)) => format!("the Service is a mirror, made for {owner}"),
            (Role::Mirror, None) => "the Service is a mirror that Barrelman made".to_owned(),
        },
    }
}

/// The row of the decision table, in words.
const fn explained(row: TableRow) -> &'static str {
    match row {
        TableRow::Add => "a remote has it, and the name is free here",
        TableRow::UsersService => "the Service here is a user's, which always wins",
        TableRow::Frozen => "the mirror is frozen by an annotation or its namespace",
        TableRow::Follow => "the mirror follows its source",
        TableRow::Orphan => "the mirror has no source any more",
        TableRow::NotOurs => "no remote has it to mirror, and the Service here is not ours",
        TableRow::Nothing => "no remote has it to mirror",
        TableRow::OtherRemote => "another remote has the name",
        TableRow::Unknown => "the remote is not known well enough",
    }
}

fn step(place: &str, name: &str, says: &str) -> Row {
    row([("place", json!(place)), ("name", json!(name)), ("says", json!(says))])
}

const REMOTES: &[Column] = &[
    column("name", "NAME"),
    column("ready", "READY"),
    column("mirrored", "MIRRORED"),
    column("unmet", "UNMET"),
    column("nodes", "NODES"),
    column("problem", "PROBLEM"),
    wide("server", "SERVER"),
    wide("version", "VERSION"),
];

/// The state of every remote, as the operator has reported it.
pub(super) async fn status(client: Client) -> Result<QueryResult, QueryError> {
    let remotes: Vec<RemoteCluster> = list_all(&client, "remoteclusters").await?;
    let rows: Vec<Row> = remotes.iter().map(shown).collect();
    let ready = rows.iter().filter(|row| row["ready"] == true).count();
    let summary = match rows.len() {
        0 => "no remote clusters".to_owned(),
        all => format!("{ready} of {all} remote clusters are ready"),
    };
    Ok(QueryResult { columns: REMOTES, yes: ready == rows.len(), rows, summary, warnings: Vec::new() })
}

fn shown(remote: &RemoteCluster) -> Row {
    let status = remote.status.clone().unwrap_or_default();
    let ready = find(&status.conditions, conditions::READY);
    let problem = match ready {
        None => "the operator has not reported yet: does it run with mirror?".to_owned(),
        Some(condition) if condition.status == "True" => String::new(),
        Some(condition) => format!("{}: {}", condition.reason, condition.message),
    };
    let services = status.services.unwrap_or_default();
    let nodes = status.nodes.unwrap_or_default();
    row([
        ("name", json!(remote.name_any())),
        ("ready", json!(ready.is_some_and(|condition| condition.status == "True"))),
        ("mirrored", json!(services.mirrored)),
        ("unmet", json!(services.unmet)),
        ("nodes", json!(nodes.usable)),
        ("problem", json!(problem)),
        ("server", json!(status.server)),
        ("version", json!(status.server_version)),
    ])
}
