//! Errors in the shape of a Kubernetes `Status`: reason, code, message, details with causes.

use std::borrow::Cow;

use http::StatusCode;
use serde_json::{Map, Value, json};

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub code: StatusCode,
    /// One word for programs; empty for unknown. Ours are static, a webhook's may be any.
    pub reason: Cow<'static, str>,
    pub message: String,
    /// name, group, kind (the plural, for most), uid, causes, retryAfterSeconds.
    pub details: Map<String, Value>,
    /// Whether `details` is written even when it is empty, as answers of the router itself have it.
    pub bare_details: bool,
    /// Where an expired list can be continued at the present state.
    pub next_page: Option<String>,
}

/// One validation error of an object, as listed in `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueRequired`, `FieldValueInvalid`, `FieldManagerConflict` and so on.
    pub reason: &'static str,
    pub message: String,
    /// Path such as `spec.ports[0].port`.
    pub field: String,
}

/// What a request is about, for messages and details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About<'a> {
    pub group: &'a str,
    /// The plural, such as `pods`; the kind for `Invalid`.
    pub resource: &'a str,
    pub name: &'a str,
}

impl About<'_> {
    /// `pods "x"`, or `tickets.testkit.portolan.dev "x"`.
    fn named(&self) -> String {
        format!("{} {:?}", self.qualified(), self.name)
    }

    fn qualified(&self) -> String {
        if self.group.is_empty() { self.resource.to_owned() } else { format!("{}.{}", self.resource, self.group) }
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, value) in [("name", self.name), ("group", self.group), ("kind", self.resource)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), value.into());
            }
        }
        details
    }
}

impl Failure {
    /// A failure without details.
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: Cow::Borrowed(reason),
            message: message.into(),
            details: Map::new(),
            bare_details: false,
            next_page: None,
        }
    }

    /// A refusal by the router: it knows neither group nor kind, and writes empty details.
    pub fn generic(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { bare_details: true, ..Self::new(code, reason, message) }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// An error that Kubernetes does not classify.
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// There is nothing at this path.
    pub fn no_such_path() -> Self {
        Self::generic(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
    }

    /// The path is known, the method is not.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::generic(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    pub fn not_found(about: About<'_>) -> Self {
        Self::of(about, StatusCode::NOT_FOUND, "NotFound", format!("{} not found", about.named()))
    }

    /// The kind does not support the verb; `about` has no name here.
    pub fn verb_not_supported(about: About<'_>, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind {:?}", about.qualified());
        Self::of(about, StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    pub fn already_exists(about: About<'_>) -> Self {
        Self::of(about, StatusCode::CONFLICT, "AlreadyExists", format!("{} already exists", about.named()))
    }

    pub fn conflict(about: About<'_>, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {}: {why}", about.named());
        Self::of(about, StatusCode::CONFLICT, "Conflict", message)
    }

    pub fn forbidden(about: About<'_>, why: &str) -> Self {
        Self::of(about, StatusCode::FORBIDDEN, "Forbidden", format!("{} is forbidden: {why}", about.named()))
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// An object that breaks rules; `about.resource` is its kind here, as Kubernetes has it.
    pub fn invalid(about: About<'_>, causes: &[Cause]) -> Self {
        let mut lines: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        // The message names each error once, the causes as often as it was found.
        lines.dedup();
        let faults = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} is invalid: {faults}", about.named());
        let mut failure = Self::of(about, StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        failure.details.insert("causes".to_owned(), causes.iter().map(Cause::to_json).collect());
        failure
    }

    fn of(about: About<'_>, code: StatusCode, reason: &'static str, message: String) -> Self {
        Self { details: about.details(), ..Self::new(code, reason, message) }
    }

    /// The `Status` object.
    pub fn to_json(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.as_ref().into();
        }
        if let Some(next) = &self.next_page {
            status["metadata"]["continue"] = next.as_str().into();
        }
        if self.bare_details || !self.details.is_empty() {
            status["details"] = Value::Object(self.details.clone());
        }
        status
    }
}

impl Cause {
    pub(crate) fn to_json(&self) -> Value {
        json!({ "reason": self.reason, "message": self.message, "field": self.field })
    }
}
