//! The AdmissionReview that is sent, and its response.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use json_patch::Patch;
use serde_json::{Map, Value, json};

use super::attributes::Attributes;
use super::hook::{Hook, Target};
use crate::object::uid;
use crate::status::Failure;

const API_VERSION: &str = "admission.k8s.io/v1";

/// What a webhook answered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) warnings: Vec<String>,
    /// Why it denied the request.
    pub(super) refusal: Option<Failure>,
    pub(super) patch: Option<Patch>,
}

/// An internal failure, or one of a webhook.
pub(super) fn internal(why: &str) -> Failure {
    let mut failure = Failure::internal(format!("Internal error occurred: {why}"));
    failure.details.insert("causes".to_owned(), json!([{ "message": why }]));
    failure
}

/// The AdmissionReview for one webhook, with its uid.
pub(super) fn request(
    hook: &Hook,
    target: &Target,
    attributes: &Attributes<'_>,
    object: &Value,
) -> Result<(String, Bytes), String> {
    if !hook.reads_v1 {
        return Err("it does not accept AdmissionReview v1, the only version there is here".to_owned());
    }
    let uid = uid();
    let mut request = facts(target, attributes);
    request["uid"] = json!(uid);
    request["object"] = target.convert(attributes, object);
    request["oldObject"] = attributes.old.map_or(Value::Null, |old| target.convert(attributes, old));
    let review = json!({ "kind": "AdmissionReview", "apiVersion": API_VERSION, "request": request });
    Ok((uid, review.to_string().into()))
}

/// The request without uid and objects.
fn facts(target: &Target, attributes: &Attributes<'_>) -> Value {
    let kind = |version: &str| json!({ "group": attributes.group, "version": version, "kind": attributes.kind });
    let resource =
        |version: &str| json!({ "group": attributes.group, "version": version, "resource": attributes.resource });
    let mut request = json!({
        "kind": kind(&target.version),
        "resource": resource(&target.version),
        "requestKind": kind(attributes.version),
        "requestResource": resource(attributes.version),
        "operation": attributes.operation.as_str(),
        "userInfo": attributes.user.to_json(),
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    });
    for (field, value) in [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", attributes.name),
        ("namespace", attributes.namespace),
    ] {
        if !value.is_empty() {
            request[field] = json!(value);
        }
    }
    request
}

/// Reads the answer to the review `uid`; the error says why it is none.
pub(super) fn answer(hook: &Hook, uid: &str, body: &[u8]) -> Result<Answer, String> {
    let review: Value = serde_json::from_slice(body).map_err(|why| format!("its answer is no JSON: {why}"))?;
    let response = &review["response"];
    if review["apiVersion"] != API_VERSION || review["kind"] != "AdmissionReview" || !response.is_object() {
        return Err(format!("its answer is no AdmissionReview of {API_VERSION} with a response"));
    }
    if response["uid"] != uid {
        return Err(format!("it answered another review: expected response.uid={uid:?}, got {}", response["uid"]));
    }
    let has = |field: &str| response.get(field).is_some_and(|value| !value.is_null());
    if has("patch") != has("patchType") || (has("patch") && (!hook.mutating || response["patchType"] != "JSONPatch")) {
        return Err("a patch needs the patchType JSONPatch and a mutating webhook".to_owned());
    }
    let warnings = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut answer = Answer { warnings: warnings.map(str::to_owned).collect(), ..Answer::default() };
    if response["allowed"] != true {
        answer.refusal = Some(denied(&hook.name, &response["status"]));
    } else if let Some(patch) = response["patch"].as_str() {
        let patch = STANDARD.decode(patch).map_err(|why| format!("its patch is no base64: {why}"))?;
        answer.patch = Some(serde_json::from_slice(&patch).map_err(|why| format!("its patch cannot be read: {why}"))?);
    }
    Ok(answer)
}

/// Applies a patch completely or not at all.
pub(super) fn apply(patch: &Patch, object: &mut Value) -> Result<(), Failure> {
    if object.is_null() {
        return Err(internal("an admission webhook cannot modify what is deleted"));
    }
    json_patch::patch(object, patch).map_err(|why| internal(&format!("the patch of an admission webhook: {why}")))?;
    if object.is_object() { Ok(()) } else { Err(internal("the patch of an admission webhook left no object")) }
}

/// The `Status` of a denial, with missing fields filled in.
fn denied(hook: &str, status: &Value) -> Failure {
    let text = |field: &str| status[field].as_str().unwrap_or_default();
    let by = format!("admission webhook {hook:?} denied the request");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", why) | (why, _) => format!("{by}: {why}"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400);
    let code = code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::BAD_REQUEST);
    Failure {
        code,
        reason: text("reason").to_owned().into(),
        message,
        details: status["details"].as_object().cloned().unwrap_or_else(Map::new),
        bare_details: false,
        next_page: None,
    }
}
