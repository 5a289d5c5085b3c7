//! The `scale` subresource: the count of a workload as an object of its own.

use http::StatusCode;
use serde_json::{Value, json};

use super::answer::{Call, Said};
use super::options::WriteOptions;
use super::read;
use super::write::{Books, Write, modified};
use crate::kinds::Kind;
use crate::object::get_meta;
use crate::patch::{self, PatchType, apply};
use crate::status::{About, Cause, Failure};

/// The Scale of an object.
pub(super) fn read(kind: &Kind, object: &Value) -> Result<Value, Failure> {
    let scale = kind.scale.as_ref().ok_or_else(Failure::no_such_path)?;
    let at = |path: &str| object.pointer(&path.replace('.', "/")).cloned();
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        let value = get_meta(object, field);
        if !value.is_null() {
            metadata[field] = value;
        }
    }
    let mut shown = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {}, "status": { "replicas": at(&scale.status_replicas).unwrap_or_else(|| 0.into()) },
    });
    if let Some(count) = at(&scale.spec_replicas).filter(|count| *count != 0) {
        shown["spec"]["replicas"] = count;
    }
    let selector = match &scale.label_selector {
        Some(path) => {
            at(path).map(|selector| selector.as_str().map_or_else(|| selector_text(&selector), str::to_owned))
        }
        None => None,
    };
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        shown["status"]["selector"] = selector.into();
    }
    Ok(shown)
}

/// `PUT` of a Scale.
pub(super) async fn update(call: &Call<'_>, options: WriteOptions, bytes: &[u8]) -> Result<Said, Failure> {
    let asked: Value = serde_json::from_slice(bytes).map_err(|fault| Failure::bad_request(fault.to_string()))?;
    write(call, options, |_| Ok(asked.clone())).await
}

/// `PATCH` of a Scale.
pub(super) async fn patch(
    call: &Call<'_>,
    options: WriteOptions,
    patch_type: PatchType,
    bytes: &[u8],
) -> Result<Said, Failure> {
    if patch_type == PatchType::Apply && call.kind().custom {
        return Err(Failure::unclassified(
            "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, \
             Kind=Scale) to proper version: request to convert CR to an invalid group/version: autoscaling/v1",
        ));
    }
    write(call, options, |shown| {
        let validation = patch::FieldValidation::Ignore;
        let patched = match patch_type {
            PatchType::Json => patch::json::patch(shown, bytes, validation)?,
            PatchType::Merge | PatchType::Strategic => patch::merge::patch(shown, bytes, validation)?,
            PatchType::Apply => return apply::decode(bytes),
        };
        Ok(patched.object)
    })
    .await
}

async fn write(
    call: &Call<'_>,
    options: WriteOptions,
    change: impl Fn(&Value) -> Result<Value, Failure>,
) -> Result<Said, Failure> {
    let kind = call.kind();
    let scale = kind.scale.as_ref().ok_or_else(Failure::no_such_path)?;
    let writing = Write { call, options };
    let about = About { group: &kind.group, resource: &kind.plural, name: &call.name };
    for _ in 0..5 {
        let (entry, old) = read::stored(call)?;
        let asked = change(&read(kind, &old)?)?;
        let version = get_meta(&asked, "resourceVersion");
        if version.as_str().is_some_and(|version| !version.is_empty() && version != entry.revision.to_string()) {
            return Err(modified(about));
        }
        let count = asked["spec"]["replicas"].as_i64().unwrap_or(0);
        if count < 0 && !kind.custom {
            let message = format!("Invalid value: {count}: must be greater than or equal to 0");
            let cause = Cause { reason: "FieldValueInvalid", message, field: "spec.replicas".to_owned() };
            let about = About { group: "autoscaling", resource: "Scale", name: &call.name };
            return Err(Failure::invalid(about, &[cause]));
        }
        let mut new = old.clone();
        let pointer = scale.spec_replicas.replace('.', "/");
        let (parent, field) = pointer.rsplit_once('/').unwrap_or(("", "replicas"));
        if let Some(parent) = new.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.insert(field.to_owned(), count.into());
        }
        let manager = writing.manager();
        apply::scaled(&writing.books(&manager), &scale.spec_replicas, &old, &mut new);
        let mut warnings = Vec::new();
        if let Some(object) = writing.replace(&old, entry.revision, new, &mut warnings, Books::Kept).await? {
            return Ok(Said::Object { code: StatusCode::OK, object: read(kind, &object)?, warnings });
        }
    }
    Err(modified(about))
}

/// A label selector as text: `app=web,tier in (a,b)`.
fn selector_text(selector: &Value) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        parts.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for rule in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = rule["key"].as_str().unwrap_or_default();
        let values: Vec<&str> = rule["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        parts.push(match rule["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    parts.sort();
    parts.join(",")
}
