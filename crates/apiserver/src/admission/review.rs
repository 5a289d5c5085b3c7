//! The AdmissionReview that is sent, and what its answer means.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use json_patch::{Patch, PatchOperation};
use serde_json::{Map, Value, json};

use super::Attributes;
use super::hook::{Hook, Target};
use crate::status::Failure;

const GROUP: &str = "admission.k8s.io";

/// What a webhook answered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) warnings: Vec<String>,
    /// It denied the request, with these words.
    pub(super) refusal: Option<Failure>,
    pub(super) patch: Option<Patch>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It could not be asked: failurePolicy decides.
    Calling(String),
    /// The request is refused whatever the policy.
    Refuse(Failure),
}

/// A failure of ours or of a webhook, as kube-apiserver words it.
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
) -> Result<(String, Bytes), Trouble> {
    let Some(version) = hook.reviews.iter().find(|version| matches!(version.as_str(), "v1" | "v1beta1")) else {
        let why =
            "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        return Err(Trouble::Calling(why.to_owned()));
    };
    let uid = uuid();
    let mut request = facts(target, attributes);
    request["uid"] = json!(uid);
    request["object"] = target.convert(attributes, object);
    request["oldObject"] = attributes.old.map_or(Value::Null, |old| target.convert(attributes, old));
    let review = json!({ "kind": "AdmissionReview", "apiVersion": format!("{GROUP}/{version}"), "request": request });
    let body = serde_json::to_vec(&review).map_err(|error| Trouble::Calling(error.to_string()))?;
    Ok((uid, body.into()))
}

/// The request without uid and objects: what CEL calls `request`, too.
pub(super) fn facts(target: &Target, attributes: &Attributes<'_>) -> Value {
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

/// Reads the answer to the review `uid`.
pub(super) fn answer(hook: &Hook, uid: &str, body: &[u8]) -> Result<Answer, Trouble> {
    let calling = |why: String| Trouble::Calling(format!("failed to call webhook: {why}"));
    let invalid = |why: String| Trouble::Calling(format!("received invalid webhook response: {why}"));
    let review = decode(body).map_err(calling)?;
    let (api_version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    let v1 = hook.reviews.iter().find(|version| matches!(version.as_str(), "v1" | "v1beta1")).is_none_or(|v| v == "v1");
    let response = &review["response"];
    if !response.is_object() {
        return Err(invalid("webhook response was absent".to_owned()));
    }
    let patch_type = response.get("patchType").and_then(Value::as_str);
    let patch = STANDARD.decode(text(&response["patch"])).map_err(|error| calling(base64_text(&error)))?;
    if v1 {
        let got = text(&response["uid"]);
        if got != uid {
            return Err(invalid(format!("expected response.uid={uid:?}, got {got:?}")));
        }
        if (api_version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let want = "admission.k8s.io/v1, Kind=AdmissionReview";
            return Err(invalid(format!("expected webhook response of {want}, got {group}/{version}, Kind={kind}")));
        }
        if let Some(why) = patch_fault(hook.mutating, !patch.is_empty(), patch_type) {
            return Err(invalid(why));
        }
    }
    let warnings = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut answer = Answer { warnings: warnings.map(str::to_owned).collect(), ..Answer::default() };
    if response["allowed"] != true {
        answer.refusal = Some(denied(&hook.name, &response["status"]));
        return Ok(answer);
    }
    if !hook.mutating || patch.is_empty() {
        return Ok(answer);
    }
    let patch: Patch = serde_json::from_slice(&patch).map_err(|error| {
        Trouble::Calling(format!("received undecodable patch in webhook response: {}", json_text(&patch, &error)))
    })?;
    match patch_type {
        _ if patch.0.is_empty() => {}
        Some(other) if other != "JSONPatch" => {
            return Err(Trouble::Calling(format!("unsupported patch type {other:?}")));
        }
        Some(_) | None => answer.patch = Some(patch),
    }
    Ok(answer)
}

/// Applies a patch whole or not at all.
pub(super) fn apply(patch: &Patch, object: &mut Value) -> Result<(), Failure> {
    let result = json_patch::patch(object, patch);
    let error = match result {
        Ok(()) if object.is_object() => return Ok(()),
        Ok(()) => return Err(internal("the patch of an admission webhook left no object")),
        Err(error) => error,
    };
    let why = match patch.0.get(error.operation) {
        Some(PatchOperation::Remove(remove)) => {
            let key = remove.path.tokens().last().map(|token| token.decoded().into_owned()).unwrap_or_default();
            let path = &remove.path;
            format!("error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value")
        }
        Some(PatchOperation::Test(test)) => format!("testing value {} failed: test failed", test.path),
        Some(_) | None => error.to_string(),
    };
    Err(internal(&why))
}

/// A random uid.
pub(super) fn uuid() -> String {
    let random = fastrand::u128(..);
    // Version 4, variant 1.
    let id = (random & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{id:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn decode(body: &[u8]) -> Result<Value, String> {
    let head = "couldn't get version/kind; json parse error: ";
    let review = match serde_json::from_slice::<Value>(body) {
        Ok(review) => review,
        Err(error) if error.is_eof() => return Err(format!("{head}unexpected end of JSON input")),
        // The real server then tries YAML, to which a line of text is a string.
        Err(_) => Value::String(String::new()),
    };
    let type_ = match review {
        Value::Object(_) => None,
        Value::String(_) => Some("string"),
        Value::Array(_) => Some("array"),
        Value::Bool(_) => Some("bool"),
        Value::Number(_) | Value::Null => Some("number"),
    };
    if let Some(type_) = type_ {
        let go =
            r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        return Err(format!("{head}json: cannot unmarshal {type_} into Go value of type {go}"));
    }
    let (api_version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    let known = matches!(api_version, "" | "admission.k8s.io/v1" | "admission.k8s.io/v1beta1")
        && matches!(kind, "" | "AdmissionReview");
    if !known {
        let scheme = "pkg/runtime/scheme.go:111";
        return Err(format!("no kind {kind:?} is registered for version {api_version:?} in scheme {scheme:?}"));
    }
    Ok(review)
}

fn patch_fault(mutating: bool, patch: bool, patch_type: Option<&str>) -> Option<String> {
    let why = match (mutating, patch, patch_type) {
        (true, true, None) => "webhook returned response.patch but not response.patchType",
        (true, false, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, true, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, true, _) => "validating webhook may not return response.patch",
        (false, false, Some(_)) => "validating webhook may not return response.patchType",
        (true, true, Some(_)) | (true | false, false, None) => return None,
    };
    Some(why.to_owned())
}

/// The `Status` of a denial, made whole.
fn denied(hook: &str, status: &Value) -> Failure {
    let by = format!("admission webhook {hook:?} denied the request");
    let reason = text(&status["reason"]);
    let message = match (text(&status["message"]), reason) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400);
    let code = code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::BAD_REQUEST);
    Failure {
        code,
        reason: reason.to_owned().into(),
        message,
        details: status["details"].as_object().cloned().unwrap_or_else(Map::new),
        bare_details: false,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn base64_text(error: &base64::DecodeError) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(length) => *length,
        base64::DecodeError::InvalidPadding => 0,
    };
    format!("illegal base64 data at input byte {at}")
}

/// The words of Go's JSON for what is no JSON at all.
fn json_text(bytes: &[u8], error: &serde_json::Error) -> String {
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(byte) if error.is_syntax() && !b"[{\"-0123456789tfn".contains(byte) => {
            format!("invalid character '{}' looking for beginning of value", char::from(*byte))
        }
        Some(_) | None if error.is_eof() => "unexpected end of JSON input".to_owned(),
        Some(_) | None => error.to_string(),
    }
}
