//! The queries of `portolan plan`, `why` and `status`, over a table of capabilities. Each capability answers for its own
//! kinds; this file finds the one to ask.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use serde_json::Value;

use crate::applied::{Apply, applied};
use crate::doctor::Definitions;
use crate::runtime::capability::{Capability, Kind, Why, find, names};
use crate::runtime::query::{QueryError, QueryResult};

/// The result of one capability.
#[derive(Debug)]
pub struct Section {
    pub capability: &'static str,
    /// The cluster serves the kinds of ours that it uses.
    pub installed: bool,
    pub result: QueryResult,
}

/// What would change if these objects were applied as `kubectl apply` does it.
pub async fn plan(table: &[&Capability], client: &Client, changes: Vec<Value>) -> Result<QueryResult, QueryError> {
    plan_applied(table, client, changes, Apply::default()).await
}

/// What would change if these objects were applied. One file may hold objects of several capabilities; objects that no
/// capability plans are skipped with a warning, unless there are no others.
pub async fn plan_applied(
    table: &[&Capability],
    client: &Client,
    changes: Vec<Value>,
    apply: Apply,
) -> Result<QueryResult, QueryError> {
    let mut planned: Vec<(&Capability, Vec<Value>)> = table.iter().map(|one| (*one, Vec::new())).collect();
    let mut skipped = BTreeSet::new();
    let mut results: BTreeMap<String, Value> = BTreeMap::new();
    for change in changes {
        let of = |capability: &Capability| capability.kinds.iter().find(|kind| kind.planned && is_of(kind, &change));
        let Some(kind) = planned.iter().find_map(|(capability, _)| of(capability)) else {
            skipped.insert(change["kind"].as_str().unwrap_or("object without a kind").to_owned());
            continue;
        };
        let change = in_namespace(kind, client.default_namespace(), change.clone());
        let metadata = &change["metadata"];
        let identity = format!("{}.{} {}/{}", kind.plural, kind.group, metadata["namespace"], metadata["name"]);
        let result = applied(client, kind, &change, results.get(&identity), apply).await?;
        for (_, theirs) in planned.iter_mut().filter(|(capability, _)| of(capability).is_some()) {
            theirs.push(result.clone());
        }
        results.insert(identity, result);
    }
    planned.retain(|(_, theirs)| !theirs.is_empty());
    if planned.is_empty() && !skipped.is_empty() {
        let skipped: Vec<String> = skipped.into_iter().collect();
        return Err(QueryError::Invalid {
            what: format!("no capability plans changes to {}", skipped.join(", ")),
            hint: format!("give objects of these kinds: {}", planned_kinds(table)),
        });
    }
    let mut warnings: Vec<String> =
        skipped.iter().map(|kind| format!("{kind} skipped: no capability plans changes to it")).collect();
    let mut rows = Vec::new();
    for (capability, theirs) in planned {
        let result = (capability.queries.plan)(client.clone(), theirs).await?;
        rows.extend(result.rows);
        warnings.extend(result.warnings);
    }
    Ok(QueryResult { warnings, ..QueryResult::of_changes(rows) })
}

/// An object without an apiVersion is known by its kind alone.
fn is_of(kind: &Kind, object: &Value) -> bool {
    let same_group = object["apiVersion"].as_str().is_none_or(|version| {
        let group = version.split_once('/').map_or("", |(group, _)| group);
        group == kind.group
    });
    same_group && object["kind"] == kind.kind
}

/// As with kubectl, an object that names no namespace is in that of the client.
fn in_namespace(kind: &Kind, namespace: &str, mut object: Value) -> Value {
    if kind.namespaced
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.entry("namespace").or_insert(namespace.into());
    }
    object
}

fn planned_kinds(table: &[&Capability]) -> String {
    let kinds = table.iter().flat_map(|capability| capability.kinds).filter(|kind| kind.planned);
    kinds.map(|kind| kind.kind).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

/// Explains the state of an object. `destination` is where its packets go, for objects that send some.
pub async fn why(
    table: &[&Capability],
    client: &Client,
    kind: &str,
    name: &str,
    destination: Option<&str>,
) -> Result<QueryResult, QueryError> {
    let Some(why) = questions(table).find(|why| why.words.contains(&kind)) else {
        return Err(QueryError::Invalid {
            what: format!("`{kind}` cannot be explained"),
            hint: format!("ask for {}", list_of(&why_words(table), "or")),
        });
    };
    (why.explain)(client.clone(), name.to_owned(), destination.map(str::to_owned)).await
}

/// Every question that can be asked with `why`.
pub fn questions<'a>(table: &[&'a Capability]) -> impl Iterator<Item = &'a Why> {
    table.iter().flat_map(|capability| capability.queries.why)
}

/// The first word of each question.
pub fn why_words(table: &[&Capability]) -> Vec<&'static str> {
    questions(table).filter_map(|why| why.words.first().copied()).collect()
}

/// The state of one capability, or of all.
pub async fn status(
    table: &[&Capability],
    client: &Client,
    capability: Option<&str>,
) -> Result<Vec<Section>, QueryError> {
    let mut sections = Vec::new();
    for capability in chosen(table, capability)? {
        let definitions = Definitions::of(client, capability).await?;
        let installed = definitions.has_first();
        let mut result = if installed { (capability.queries.status)(client.clone()).await? } else { not_installed() };
        if installed {
            let missing = definitions.missing.iter();
            result.warnings.extend(missing.map(|kind| format!("the cluster does not serve {}", kind.kind)));
        }
        sections.push(Section { capability: capability.name, installed, result });
    }
    Ok(sections)
}

fn not_installed() -> QueryResult {
    let summary =
        "not installed; to install its definitions: portolan crds | kubectl apply --server-side -f -".to_owned();
    QueryResult { columns: &[], rows: Vec::new(), summary, yes: false, warnings: Vec::new() }
}

/// What the loss of a node would change, for one capability or for all that depend on nodes.
pub async fn node_loss(
    table: &[&Capability],
    client: &Client,
    capability: Option<&str>,
    node: &str,
) -> Result<Vec<Section>, QueryError> {
    let mut sections = Vec::new();
    for capability in chosen(table, capability)? {
        if let Some(node_loss) = capability.queries.node_loss {
            let result = node_loss(client.clone(), node.to_owned()).await?;
            sections.push(Section { capability: capability.name, installed: true, result });
        }
    }
    if sections.is_empty() {
        let able = table.iter().filter(|one| one.queries.node_loss.is_some()).map(|one| one.name);
        return Err(QueryError::Invalid {
            what: format!("{} does not depend on nodes", capability.unwrap_or("this")),
            hint: format!("simulate the loss of a node for {}", list_of(&able.collect::<Vec<_>>(), "or")),
        });
    }
    Ok(sections)
}

pub(crate) fn chosen<'a>(table: &[&'a Capability], name: Option<&str>) -> Result<Vec<&'a Capability>, QueryError> {
    let Some(name) = name else { return Ok(table.to_vec()) };
    find(table, name).map(|found| vec![found]).ok_or_else(|| QueryError::Invalid {
        what: format!("there is no capability `{name}`"),
        hint: format!("ask for {}, or for none of them to see all", list_of(&names(table), "or")),
    })
}

/// `a, b or c`.
pub fn list_of(words: &[&str], conjunction: &str) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} {conjunction} {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_listed_as_in_a_sentence() {
        assert_eq!(list_of(&["a", "b", "c"], "or"), "a, b or c");
        assert_eq!(list_of(&["a"], "or"), "a");
    }

    #[test]
    fn an_object_is_of_a_kind_only_in_its_group() {
        let kind = Kind::namespaced("l7mp.io", "v1", "Route", "routes");
        let object = |version: &str| serde_json::json!({ "apiVersion": version, "kind": "Route", "metadata": {} });
        assert!(is_of(&kind, &object("l7mp.io/v1")));
        assert!(is_of(&kind, &object("l7mp.io/MSM/v1")), "the mesh corrects it");
        assert!(!is_of(&kind, &object("route.openshift.io/v1")));
        assert_eq!(in_namespace(&kind, "shop", object("l7mp.io/v1"))["metadata"]["namespace"], "shop");
    }
}
