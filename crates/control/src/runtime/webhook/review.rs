//! Admission reviews: which handler sees which request, and what is answered. Pure, no network.
//!
//! A handler sees a typed object and has no side effects. What it cannot break: an object of ours that is being
//! deleted is admitted without asking, so that clean-up always ends; an old object that no longer decodes is
//! left out, so that it can be repaired; a panic is answered with 500 for that request alone.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use http::StatusCode;
use k8s_openapi::ByteString;
use kube::Resource;
use kube::api::DynamicObject;
use kube::core::admission::{AdmissionRequest, META_API_VERSION_V1, META_KIND};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::metrics::Outcome;
use super::patch;
use crate::runtime::decode::from_text;
use crate::runtime::tasks::panic_text;

/// What the user is told although the request is admitted.
pub type Warnings = Vec<String>;

/// Why a request is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// What is wrong and what to do, as the user of kubectl will read it.
    pub message: String,
    /// The HTTP status of the user's request.
    pub code: u16,
    /// The same for programs, CamelCase.
    pub reason: &'static str,
}

/// The handlers by path.
pub struct Webhooks {
    handlers: BTreeMap<&'static str, Handler>,
}

type Handler = Box<dyn Fn(Request) -> Result<Verdict, Failure> + Send + Sync>;

/// What a review ended in: a body for the API server, and a word for the metrics.
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    pub(super) body: Result<Value, Failure>,
}

/// A request that gets no review, only an HTTP status and a text.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

enum Verdict {
    Allowed(Warnings),
    Defaulted(Vec<Value>),
    Denied(Denied),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    kind: String,
    request: Option<Map<String, Value>>,
}

/// A request whose objects are kept as they came.
struct Request {
    attributes: Value,
    object: Value,
    old_object: Value,
}

impl Denied {
    /// The object must be edited (422).
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 422, reason: "Invalid" }
    }

    /// The change is not allowed, whatever the object says (403).
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 403, reason: "Forbidden" }
    }
}

impl Webhooks {
    /// No handler yet.
    pub fn new() -> Self {
        Self { handlers: BTreeMap::new() }
    }

    /// Lets `check` admit or deny what is sent to `path` (like `/validate-egresspolicy`), which must be free.
    #[must_use]
    pub fn validate<K>(
        self,
        path: &'static str,
        check: impl Fn(&AdmissionRequest<K>) -> Result<Warnings, Denied> + Send + Sync + 'static,
    ) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.handle(path, move |request| {
            if request.being_deleted() {
                return Ok(Verdict::Allowed(Warnings::new()));
            }
            let mut typed: AdmissionRequest<K> = request.attributes()?;
            typed.object = match decode(&request.object) {
                Ok(object) => object,
                Err(denied) => return Ok(Verdict::Denied(denied)),
            };
            typed.old_object = decode(&request.old_object).unwrap_or_default();
            Ok(check(&typed).map_or_else(Verdict::Denied, Verdict::Allowed))
        })
    }

    /// Lets `fill` set defaults on what is sent to `path`, which must be free; fields that `K` lacks survive.
    #[must_use]
    pub fn default<K>(self, path: &'static str, fill: impl Fn(&mut K) + Send + Sync + 'static) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Serialize,
    {
        self.handle(path, move |request| {
            if request.being_deleted() {
                return Ok(Verdict::Allowed(Warnings::new()));
            }
            let _: AdmissionRequest<K> = request.attributes()?;
            let mut object: K = match decode(&request.object) {
                Ok(Some(object)) => object,
                Ok(None) => return Ok(Verdict::Allowed(Warnings::new())),
                Err(denied) => return Ok(Verdict::Denied(denied)),
            };
            let before = serde_json::to_value(&object).map_err(|cause| unwritable(&cause))?;
            fill(&mut object);
            let after = serde_json::to_value(&object).map_err(|cause| unwritable(&cause))?;
            let operations = patch::between(&request.object, &before, &after);
            Ok(if operations.is_empty() { Verdict::Allowed(Warnings::new()) } else { Verdict::Defaulted(operations) })
        })
    }

    fn handle(
        mut self,
        path: &'static str,
        handler: impl Fn(Request) -> Result<Verdict, Failure> + Send + Sync + 'static,
    ) -> Self {
        assert!(path.starts_with('/'), "a webhook's path starts with a slash: {path}");
        assert!(self.handlers.insert(path, Box::new(handler)).is_none(), "two webhooks share the path {path}");
        self
    }

    /// The path as registered, or nothing.
    pub(super) fn path(&self, path: &str) -> Option<&'static str> {
        self.handlers.get_key_value(path).map(|(registered, _)| *registered)
    }

    /// Answers the body of a request to `path`.
    pub(super) fn answer(&self, path: &str, body: &[u8]) -> Answer {
        let Some(handler) = self.handlers.get(path) else {
            return Answer::malformed(StatusCode::NOT_FOUND, format!("no webhook at `{path}`"));
        };
        let (uid, request) = match parse(body) {
            Ok(parsed) => parsed,
            Err(text) => return Answer::malformed(StatusCode::BAD_REQUEST, text),
        };
        match catch_unwind(AssertUnwindSafe(|| handler(request))) {
            Ok(Ok(verdict)) => verdict.answer(&uid),
            Ok(Err(failure)) => Answer { outcome: Outcome::Malformed, body: Err(failure) },
            Err(panic) => {
                tracing::error!(path, message = panic_text(&*panic), "a webhook's handler panicked");
                let text = "the webhook failed on this request: this is a bug, its log says where".to_owned();
                let failure = Failure { status: StatusCode::INTERNAL_SERVER_ERROR, text };
                Answer { outcome: Outcome::Panicked, body: Err(failure) }
            }
        }
    }
}

impl Default for Webhooks {
    fn default() -> Self {
        Self::new()
    }
}

impl Answer {
    pub(super) fn malformed(status: StatusCode, text: impl Into<String>) -> Self {
        Self { outcome: Outcome::Malformed, body: Err(Failure { status, text: text.into() }) }
    }
}

impl Verdict {
    fn answer(self, uid: &str) -> Answer {
        let (outcome, response) = match self {
            Self::Allowed(warnings) if warnings.is_empty() => (Outcome::Allowed, json!({"uid": uid, "allowed": true})),
            Self::Allowed(warnings) => (Outcome::Allowed, json!({"uid": uid, "allowed": true, "warnings": warnings})),
            Self::Defaulted(operations) => {
                let patch = ByteString(Value::Array(operations).to_string().into_bytes());
                let response = json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch});
                (Outcome::Defaulted, response)
            }
            Self::Denied(Denied { message, code, reason }) => {
                let status = json!({"status": "Failure", "message": message, "code": code, "reason": reason});
                (Outcome::Denied, json!({"uid": uid, "allowed": false, "status": status}))
            }
        };
        let review = json!({"apiVersion": META_API_VERSION_V1, "kind": META_KIND, "response": response});
        Answer { outcome, body: Ok(review) }
    }
}

impl Request {
    fn being_deleted(&self) -> bool {
        self.object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
    }

    /// Reads all but the objects, and makes sure that they are of the kind this path is for.
    fn attributes<K>(&self) -> Result<AdmissionRequest<K>, Failure>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let bad = |text| Failure { status: StatusCode::BAD_REQUEST, text };
        let request = AdmissionRequest::<DynamicObject>::deserialize(&self.attributes)
            .map_err(|cause| bad(format!("the AdmissionReview's request is not one: {cause}")))?;
        let (sent, expected) = (&request.kind, (K::group(&()), K::kind(&())));
        if (sent.group.as_str(), sent.kind.as_str()) != (&*expected.0, &*expected.1) {
            return Err(bad(format!(
                "this path is for {} of group `{}`, not for {} of group `{}`: fix the rules of the webhook configuration",
                expected.1, expected.0, sent.kind, sent.group
            )));
        }
        Ok(AdmissionRequest {
            types: request.types,
            uid: request.uid,
            kind: request.kind,
            resource: request.resource,
            sub_resource: request.sub_resource,
            request_kind: request.request_kind,
            request_resource: request.request_resource,
            request_sub_resource: request.request_sub_resource,
            name: request.name,
            namespace: request.namespace,
            operation: request.operation,
            user_info: request.user_info,
            object: None,
            old_object: None,
            dry_run: request.dry_run,
            options: request.options,
        })
    }
}

fn parse(body: &[u8]) -> Result<(String, Request), String> {
    let review: Review = serde_json::from_slice(body).map_err(|cause| format!("not an AdmissionReview: {cause}"))?;
    if (review.api_version.as_str(), review.kind.as_str()) != (META_API_VERSION_V1, META_KIND) {
        let Review { api_version, kind, .. } = review;
        return Err(format!("expected {META_KIND} of {META_API_VERSION_V1}, not {kind} of {api_version}"));
    }
    let mut attributes = review.request.ok_or("the AdmissionReview has no request")?;
    let uid = attributes.get("uid").and_then(Value::as_str).ok_or("the AdmissionReview's request has no uid")?;
    let uid = uid.to_owned();
    let object = attributes.remove("object").unwrap_or_default();
    let old_object = attributes.remove("oldObject").unwrap_or_default();
    Ok((uid, Request { attributes: Value::Object(attributes), object, old_object }))
}

fn decode<K>(object: &Value) -> Result<Option<K>, Denied>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    if object.is_null() {
        return Ok(None);
    }
    let read: serde_json::Result<K> = from_text(object);
    read.map(Some).map_err(|cause| Denied::invalid(format!("this is not a {} as we know it: {cause}", K::kind(&()))))
}

fn unwritable(cause: &serde_json::Error) -> Failure {
    Failure { status: StatusCode::INTERNAL_SERVER_ERROR, text: format!("the object cannot be written: {cause}") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn a_validated_request_is_allowed_with_warnings_or_denied_with_message_and_code() {
        let (outcome, response) = reviewed("/validate", &review(&map(&json!({"size": "3"}))));
        assert_eq!((outcome, response), (Outcome::Allowed, json!({"uid": "u1", "allowed": true})));

        let (outcome, response) = reviewed("/validate", &review(&map(&json!({"size": "old"}))));
        let warned = json!({"uid": "u1", "allowed": true, "warnings": ["size `old` goes away"]});
        assert_eq!((outcome, response), (Outcome::Allowed, warned));

        let (outcome, response) = reviewed("/validate", &review(&map(&json!({"size": "none"}))));
        let status = json!({"status": "Failure", "code": 422, "reason": "Invalid", "message": "size: give a number"});
        assert_eq!((outcome, response), (Outcome::Denied, json!({"uid": "u1", "allowed": false, "status": status})));
    }

    #[test]
    fn defaults_become_a_patch_and_what_the_type_lacks_is_left_alone() {
        let mut object = map(&json!({"given": "1"}));
        object["metadata"]["unknown"] = json!(true);
        let (outcome, response) = reviewed("/default", &review(&object));
        assert_eq!((outcome, &response["patchType"]), (Outcome::Defaulted, &json!("JSONPatch")));
        let patch: ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
        let patch: Value = serde_json::from_slice(&patch.0).unwrap();
        assert_eq!(patch, json!([{"op": "add", "path": "/data/size", "value": "1"}]));

        let (outcome, response) = reviewed("/default", &review(&map(&json!({"size": "7"}))));
        assert_eq!((outcome, response), (Outcome::Allowed, json!({"uid": "u1", "allowed": true})));
    }

    #[test]
    fn an_object_that_does_not_decode_is_denied_with_the_reason() {
        let object = map(&json!({"size": 3}));
        for path in ["/validate", "/default"] {
            let (outcome, response) = reviewed(path, &review(&object));
            assert_eq!((outcome, &response["status"]["code"]), (Outcome::Denied, &json!(422)), "{path}");
            let message = response["status"]["message"].as_str().unwrap();
            assert!(message.contains("ConfigMap") && message.contains("expected a string"), "{message}");
        }
    }

    #[test]
    fn an_old_object_that_does_not_decode_can_be_repaired_and_deleted() {
        let mut update = review(&map(&json!({"size": "3"})));
        update["request"]["oldObject"] = map(&json!({"size": 3}));
        update["request"]["operation"] = json!("UPDATE");
        assert_eq!(reviewed("/validate", &update).0, Outcome::Allowed);

        let mut delete = review(&Value::Null);
        delete["request"]["oldObject"] = map(&json!({"size": 3}));
        delete["request"]["operation"] = json!("DELETE");
        for path in ["/validate", "/default"] {
            assert_eq!(reviewed(path, &delete).0, Outcome::Allowed, "{path}");
        }
    }

    #[test]
    fn an_object_being_deleted_is_admitted_whatever_it_holds() {
        for data in [json!({"size": "none"}), json!({"size": 3}), json!({"size": "panic"})] {
            let mut object = map(&data);
            object["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
            for path in ["/validate", "/default"] {
                assert_eq!(reviewed(path, &review(&object)).0, Outcome::Allowed, "{path} {data}");
            }
        }
    }

    #[test]
    fn a_panic_answers_500_for_that_request_alone() {
        let webhooks = webhooks();
        let answer = webhooks.answer("/validate", &bytes(&review(&map(&json!({"size": "panic"})))));
        assert_eq!(answer.outcome, Outcome::Panicked);
        assert_eq!(answer.body.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
        let answer = webhooks.answer("/validate", &bytes(&review(&map(&json!({"size": "3"})))));
        assert_eq!(answer.outcome, Outcome::Allowed);
    }

    #[test]
    fn what_is_no_review_of_our_kind_is_refused_with_a_clear_text() {
        let mut beta = review(&map(&json!({})));
        beta["apiVersion"] = json!("admission.k8s.io/v1beta1");
        let mut secret = review(&map(&json!({})));
        secret["request"]["kind"]["kind"] = json!("Secret");
        let mut nameless = review(&map(&json!({})));
        nameless["request"].as_object_mut().unwrap().remove("uid");
        let mut strange = review(&map(&json!({})));
        strange["request"]["operation"] = json!("EXPLODE");
        let empty = json!({"apiVersion": META_API_VERSION_V1, "kind": META_KIND});
        for (body, expected) in [
            (b"garbage".to_vec(), "not an AdmissionReview"),
            (Vec::new(), "not an AdmissionReview"),
            (b"[".repeat(100_000), "not an AdmissionReview"),
            (bytes(&json!([1])), "not an AdmissionReview"),
            (bytes(&beta), "v1beta1"),
            (bytes(&empty), "no request"),
            (bytes(&nameless), "no uid"),
            (bytes(&strange), "EXPLODE"),
            (bytes(&secret), "this path is for ConfigMap"),
        ] {
            let answer = webhooks().answer("/validate", &body);
            assert_eq!(answer.outcome, Outcome::Malformed, "{expected}");
            let failure = answer.body.unwrap_err();
            assert_eq!(failure.status, StatusCode::BAD_REQUEST, "{expected}");
            assert!(failure.text.contains(expected), "{}", failure.text);
        }
        let answer = webhooks().answer("/elsewhere", b"{}");
        assert_eq!(answer.body.unwrap_err().status, StatusCode::NOT_FOUND);
    }

    fn webhooks() -> Webhooks {
        Webhooks::new()
            .validate("/validate", |request: &AdmissionRequest<ConfigMap>| {
                let data = request.object.as_ref().and_then(|object| object.data.clone()).unwrap_or_default();
                match data.get("size").map(String::as_str) {
                    Some("none") => Err(Denied::invalid("size: give a number")),
                    Some("old") => Ok(vec!["size `old` goes away".to_owned()]),
                    Some("panic") => panic!("on purpose"),
                    _ => Ok(Warnings::new()),
                }
            })
            .default("/default", |object: &mut ConfigMap| {
                let data = object.data.get_or_insert_with(BTreeMap::new);
                data.entry("size".to_owned()).or_insert_with(|| "1".to_owned());
            })
    }

    fn reviewed(path: &str, review: &Value) -> (Outcome, Value) {
        let answer = webhooks().answer(path, &bytes(review));
        let mut body = answer.body.unwrap();
        assert_eq!(body["kind"], META_KIND);
        (answer.outcome, body["response"].take())
    }

    fn review(object: &Value) -> Value {
        json!({
            "apiVersion": META_API_VERSION_V1,
            "kind": META_KIND,
            "request": {
                "uid": "u1",
                "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                "resource": {"group": "", "version": "v1", "resource": "configmaps"},
                "name": "one",
                "namespace": "here",
                "operation": "CREATE",
                "userInfo": {"username": "someone"},
                "object": object,
                "oldObject": null,
                "dryRun": false,
            },
        })
    }

    fn map(data: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data})
    }

    fn bytes(value: &Value) -> Vec<u8> {
        value.to_string().into_bytes()
    }
}
