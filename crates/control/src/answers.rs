//! What users ask of a cluster: what would change (`plan`), why is it so (`why`), how does it stand (`status`).
//!
//! Each capability answers for its own kinds, from the same pure plan that its controller acts on; nothing is written.
//! An answer is a table, so that every one of them prints, and reads as JSON, alike.

use kube::Client;
use portolan_core::mesh::control::types::MeshKind;
use serde_json::{Map, Value};

use crate::{egress, mesh};

/// A column of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The name in JSON.
    pub key: &'static str,
    /// The heading in a table.
    pub title: &'static str,
    /// Shown only when asked for more.
    pub wide: bool,
}

/// A table of what was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub columns: &'static [Column],
    pub rows: Vec<Map<String, Value>>,
    /// One sentence that sums it up.
    pub summary: String,
    /// Whether the answer is yes: nothing would change, it is healthy, it was found.
    pub yes: bool,
    /// What is wrong with the question and was made right.
    pub warnings: Vec<String>,
}

pub(crate) const fn column(key: &'static str, title: &'static str) -> Column {
    Column { key, title, wide: false }
}

pub(crate) const fn wide(key: &'static str, title: &'static str) -> Column {
    Column { key, title, wide: true }
}

/// What would change.
pub(crate) const CHANGES: &[Column] = &[
    column("what", "WHAT"),
    column("change", "CHANGE"),
    column("from", "FROM"),
    column("to", "TO"),
    column("why", "WHY"),
    wide("gateway", "GATEWAY"),
];

impl Answer {
    /// What would change; yes if nothing does.
    pub(crate) fn of_changes(rows: Vec<Map<String, Value>>) -> Self {
        let summary = match rows.len() {
            0 => "nothing would change".to_owned(),
            1 => "one thing would change".to_owned(),
            count => format!("{count} things would change"),
        };
        Self { columns: CHANGES, yes: rows.is_empty(), rows, summary, warnings: Vec::new() }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The question cannot be answered as it is put.
    #[error("{what}")]
    Unclear { what: String, hint: String },
    /// There is no such thing.
    #[error("{what}")]
    NotFound { what: String, hint: String },
    /// The cluster did not answer.
    #[error("reading {what} failed: {cause}")]
    Unreachable { what: &'static str, cause: Box<kube::Error> },
}

/// What would change if these objects were applied. Objects of several capabilities may stand side by side; those that
/// no plan looks at are left out, unless there are no others.
pub async fn plan(client: &Client, changes: Vec<Value>) -> Result<Answer, Unanswered> {
    let mut warnings = Vec::new();
    let (mut of_egress, mut of_mesh, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for mut change in changes {
        warnings.extend(spelled_right(&mut change));
        placed(&mut change);
        match change["kind"].as_str().unwrap_or_default() {
            "VirtualService" | "Route" | "Target" | "Rule" | "Service" | "EndpointSlice" => of_mesh.push(change),
            "Namespace" | "Pod" => {
                of_egress.push(change.clone());
                of_mesh.push(change);
            }
            "EgressGateway"
            | "EgressPolicy"
            | "EgressClusterPolicy"
            | "EgressTunnel"
            | "EgressClusterInfo"
            | "AddressClaim"
            | "Node" => of_egress.push(change),
            _ => others.push(change),
        }
    }
    if of_egress.is_empty() && of_mesh.is_empty() {
        of_egress = std::mem::take(&mut others);
    }
    let mut kinds: Vec<&str> = others.iter().filter_map(|change| change["kind"].as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    warnings.extend(kinds.iter().map(|kind| format!("what a {kind} would do is not planned: it is left out")));
    let mut rows = Vec::new();
    if !of_egress.is_empty() {
        rows.extend(egress::answers::plan(client, of_egress).await?.rows);
    }
    if !of_mesh.is_empty() {
        rows.extend(mesh::answers::plan(client, of_mesh).await?.rows);
    }
    Ok(Answer { warnings, ..Answer::of_changes(rows) })
}

/// The mesh's document writes an apiVersion that no server can store.
fn spelled_right(change: &mut Value) -> Option<String> {
    let old = change["apiVersion"].as_str().filter(|version| *version == "l7mp.io/MSM/v1")?.to_owned();
    change["apiVersion"] = "l7mp.io/v1".into();
    let (kind, name) = (change["kind"].as_str()?, change["metadata"]["name"].as_str()?);
    Some(format!("{kind} `{name}`: apiVersion `{old}` cannot be stored: write `l7mp.io/v1`"))
}

/// What lives in a namespace and names none lives in `default`, as with kubectl.
fn placed(change: &mut Value) {
    const OF_CLUSTER: [&str; 7] = [
        "EgressGateway",
        "EgressClusterPolicy",
        "EgressTunnel",
        "EgressClusterInfo",
        "AddressClaim",
        "Node",
        "Namespace",
    ];
    let is_of_cluster = change["kind"].as_str().is_some_and(|kind| OF_CLUSTER.contains(&kind));
    if !is_of_cluster && let Some(metadata) = change["metadata"].as_object_mut() {
        metadata.entry("namespace").or_insert("default".into());
    }
}

/// Why something is as it is. `rest` is what else the question names, such as a destination.
pub async fn why(client: &Client, kind: &str, name: &str, rest: Option<&str>) -> Result<Answer, Unanswered> {
    match kind {
        "eip" | "addr" | "addressclaim" => egress::answers::why_address(client, name).await,
        "policy" | "egp" | "egcp" | "egresspolicy" | "egressclusterpolicy" => {
            egress::answers::why_policy(client, name).await
        }
        "pod" => egress::answers::why_pod(client, name, rest).await,
        "vsvc" | "virtualservice" | "virtualservices" => {
            mesh::answers::why(client, MeshKind::VirtualService, name).await
        }
        "route" | "rte" | "routes" => mesh::answers::why(client, MeshKind::Route, name).await,
        "target" | "tr" | "targets" => mesh::answers::why(client, MeshKind::Target, name).await,
        "rule" | "rules" => mesh::answers::why(client, MeshKind::Rule, name).await,
        other => Err(Unanswered::Unclear {
            what: format!("there is no answer for `{other}`"),
            hint: "ask for eip, policy, pod, vsvc, route, target or rule".to_owned(),
        }),
    }
}

/// How a capability stands; or how it would without a node.
pub async fn status(client: &Client, capability: &str, without: Option<&str>) -> Result<Answer, Unanswered> {
    match capability {
        "egress" => egress::answers::status(client, without).await,
        other => Err(Unanswered::Unclear {
            what: format!("capability `{other}` has no status"),
            hint: "ask for egress".to_owned(),
        }),
    }
}

/// A row from names and values.
pub(crate) fn row<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
