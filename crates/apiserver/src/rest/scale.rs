//! The `scale` subresource: the replica count of a workload as an object of its own.

use http::header;
use serde_json::{Value, json};

use super::body::decode;
use super::negotiate;
use super::pipeline::{FieldManagement, WriteRequest};
use super::response::Reply;
use crate::kinds::Kind;
use crate::object::{get_meta, set_meta};
use crate::patch::{self, PatchType, apply};
use crate::state::ServerState;
use crate::status::{About, Cause, Failure};

/// The Scale of an object.
pub(super) fn read(kind: &Kind, object: &Value) -> Result<Value, Failure> {
    let scale = kind.scale.as_ref().ok_or_else(Failure::no_such_path)?;
    let at = |path: &str| object.pointer(&path.replace('.', "/"));
    let mut shown = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {}, "spec": {},
        "status": { "replicas": at(&scale.status_replicas).cloned().unwrap_or_else(|| 0.into()) },
    });
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        set_meta(&mut shown, field, get_meta(object, field));
    }
    if let Some(count) = at(&scale.spec_replicas).filter(|count| **count != 0) {
        shown["spec"]["replicas"] = count.clone();
    }
    let selector = scale.label_selector.as_deref().and_then(at).map(selector_text).unwrap_or_default();
    if !selector.is_empty() {
        shown["status"]["selector"] = selector.into();
    }
    Ok(shown)
}

/// `PUT` of a Scale.
pub(super) async fn update(write: &WriteRequest<'_, '_>, bytes: &[u8]) -> Result<Reply, Failure> {
    let form = negotiate::content(write.call.header(header::CONTENT_TYPE))?;
    let asked = decode(form, bytes, ("autoscaling/v1", "Scale"))?;
    scaled(write, |_| Ok(asked.clone())).await
}

/// `PATCH` of a Scale.
pub(super) async fn patch(write: &WriteRequest<'_, '_>, patch_type: PatchType, bytes: &[u8]) -> Result<Reply, Failure> {
    scaled(write, |shown| match patch_type {
        PatchType::Json => patch::json::patch(shown, bytes),
        PatchType::Merge | PatchType::Strategic => patch::merge::patch(shown, bytes),
        PatchType::Apply => apply::decode(bytes),
    })
    .await
}

/// Sets the count that `change` makes of the Scale, and returns the resulting Scale.
async fn scaled(
    write: &WriteRequest<'_, '_>,
    change: impl Fn(&Value) -> Result<Value, Failure>,
) -> Result<Reply, Failure> {
    let kind = write.call.kind();
    let path = &kind.scale.as_ref().ok_or_else(Failure::no_such_path)?.spec_replicas;
    let changed = |old: &Value| {
        let asked = change(&read(kind, old)?)?;
        let count = asked["spec"]["replicas"].as_i64().unwrap_or(0);
        if count < 0 && !kind.custom {
            let message = format!("Invalid value: {count}: must be greater than or equal to 0");
            let cause = Cause { reason: "FieldValueInvalid", message, field: "spec.replicas".to_owned() };
            let about = About { group: "autoscaling", resource: "Scale", name: &write.call.name };
            return Err(Failure::invalid(about, &[cause]));
        }
        let mut new = old.clone();
        let pointer = path.replace('.', "/");
        let (parent, field) = pointer.rsplit_once('/').unwrap_or(("", "replicas"));
        if let Some(parent) = new.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.insert(field.to_owned(), count.into());
        }
        apply::track_scale(&write.field_manager(), path, old, &mut new);
        set_meta(&mut new, "resourceVersion", get_meta(&asked, "resourceVersion"));
        Ok(new)
    };
    let (code, object) = match write.change(FieldManagement::Done, changed).await? {
        Reply::Object { code, object } => (code, object),
        Reply::Stored { code, entry } => (code, ServerState::decode(kind, &entry)?),
        other @ (Reply::List { .. } | Reply::Stream(_)) => return Ok(other),
    };
    Ok(Reply::Object { code, object: read(kind, &object)? })
}

/// The labels of a selector as text, such as `app=web,tier=front`; custom kinds store the text, and a
/// `ReplicationController` the labels alone.
fn selector_text(selector: &Value) -> String {
    let labels = selector.get("matchLabels").unwrap_or(selector).as_object().into_iter().flatten();
    let labels: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    selector.as_str().map_or_else(|| labels.join(","), str::to_owned)
}
