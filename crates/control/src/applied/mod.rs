//! The objects that `kubectl apply` would leave of those in files: what plans are made for.

mod merge;

use kube::api::{Api, DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::{Client, Error};
use serde_json::{Map, Value, json};

use crate::runtime::capability::Kind;
use crate::runtime::query::QueryError;
use merge::Lists;

/// How objects are applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Apply {
    /// As `kubectl apply` does it: a merge with what it applied last. Needs no right to write.
    #[default]
    ClientSide,
    /// As `kubectl apply --server-side` does it: the API server says what it would store.
    ServerSide {
        /// Fields of other managers are taken over.
        force_conflicts: bool,
    },
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What applying `file` would leave on the API server. `earlier` is the result of the same object, given twice.
pub(crate) async fn applied(
    client: &Client,
    kind: &Kind,
    file: &Value,
    earlier: Option<&Value>,
    apply: Apply,
) -> Result<Value, QueryError> {
    let name = file["metadata"]["name"].as_str().filter(|name| !name.is_empty()).ok_or_else(|| {
        let what = format!("a {} has no name", kind.kind);
        QueryError::Invalid { what, hint: "set metadata.name: only objects with a name can be applied".to_owned() }
    })?;
    let api = match file["metadata"]["namespace"].as_str().filter(|_| kind.namespaced) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource()),
        None => Api::all_with(client.clone(), &kind.resource()),
    };
    let annotations = &file["metadata"]["annotations"];
    if !annotations.is_object() && !annotations.is_null() {
        let what = format!("metadata.annotations of {} `{name}` is no map", kind.kind);
        return Err(QueryError::Invalid { what, hint: "write annotations as `name: text`".to_owned() });
    }
    let file = without_status(file);
    let live = match earlier {
        Some(earlier) => Some(earlier.clone()),
        None => read(&api, name).await?,
    };
    if let Apply::ServerSide { force_conflicts } = apply
        && earlier.is_none()
        && let Some(mut stored) = server_side(&api, kind, name, &file, force_conflicts).await?
    {
        // kubectl also takes over what it applied itself as a client
        if let Some(live) = live {
            merge::remove_unlisted(&last_applied(&live), &file, &owned_by_others(&live), &mut stored);
        }
        return Ok(stored);
    }
    let file = with_last_applied(file);
    Ok(match live {
        Some(live) => merge::three_way(Lists::of_group(kind.group), &last_applied(&live), &file, &live),
        None => file,
    })
}

/// What `kubectl apply` sends: what it applies is also an annotation, which has annotations too.
fn with_last_applied(mut file: Value) -> Value {
    let annotations = &mut file["metadata"]["annotations"];
    if annotations.is_null() {
        *annotations = Value::Object(Map::new());
    }
    let text = file.to_string();
    file["metadata"]["annotations"][LAST_APPLIED] = json!(text);
    file
}

/// Applying writes no status.
fn without_status(file: &Value) -> Value {
    let mut file = file.clone();
    if let Some(object) = file.as_object_mut() {
        object.remove("status");
    }
    file
}

async fn read(api: &Api<DynamicObject>, name: &str) -> Result<Option<Value>, QueryError> {
    let unreachable = |cause| QueryError::Unreachable { what: "the object to apply to", cause: Box::new(cause) };
    let found = api.get_opt(name).await.map_err(unreachable)?;
    Ok(found.map(|object| serde_json::to_value(object).unwrap_or_default()))
}

/// What the API server would store; none if it does not know the namespace or the kind yet.
async fn server_side(
    api: &Api<DynamicObject>,
    kind: &Kind,
    name: &str,
    file: &Value,
    force_conflicts: bool,
) -> Result<Option<Value>, QueryError> {
    let mut file = file.clone();
    file["apiVersion"] = kind.resource().api_version.into();
    let params = PatchParams {
        dry_run: true,
        force: force_conflicts,
        field_manager: Some("kubectl".to_owned()),
        field_validation: Some(ValidationDirective::Strict),
    };
    match api.patch(name, &params, &Patch::Apply(&file)).await {
        Ok(stored) => Ok(Some(serde_json::to_value(stored).unwrap_or_default())),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        // 500 is what Kubernetes says of a field that the schema does not have
        Err(Error::Api(status)) if (400..=500).contains(&status.code) && status.code != 429 => {
            let hint = match status.code {
                401 | 403 => "plan without --server-side: it only reads".to_owned(),
                409 => "to take these fields over: --force-conflicts".to_owned(),
                _ => format!("see its fields: kubectl explain {}", kind.plural),
            };
            let what = format!("applying {} `{name}` would be refused: {}", kind.kind, status.message);
            Err(QueryError::Invalid { what, hint })
        }
        Err(cause) => Err(QueryError::Unreachable { what: "what the API server would store", cause: Box::new(cause) }),
    }
}

/// What `kubectl apply` applied last.
fn last_applied(live: &Value) -> Value {
    let text = live["metadata"]["annotations"][LAST_APPLIED].as_str();
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The fields of an object that belong to others than kubectl.
fn owned_by_others(live: &Value) -> Vec<&Value> {
    let is_kubectl = |manager: &Value| {
        manager["manager"] == "kubectl-client-side-apply"
            || manager["manager"] == "kubectl" && manager["operation"] == "Apply"
    };
    let managers = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    managers.filter(|manager| !is_kubectl(manager)).map(|manager| &manager["fieldsV1"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_of_others_stay_when_the_file_has_none() {
        let file = json!({ "metadata": { "name": "x" }, "spec": {} });
        let mut live = with_last_applied(file.clone());
        live["metadata"]["annotations"]["owner"] = json!("somebody");
        let result = merge::three_way(Lists::Custom, &last_applied(&live), &with_last_applied(file), &live);
        assert_eq!(result, live);
    }
}
