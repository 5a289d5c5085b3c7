//! What a client is told instead of what it asked for.

use http::HeaderValue;
use http::header::{self, HeaderName};
use kube::core::Status;
use portolan_core::gateway::Problem;
use serde_json::{Map, Value, json};

use super::reason::{self, Reason};
use super::reply::{Reply, json as json_reply};

/// An answer that is an error.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) reason: Reason,
    pub(super) text: String,
    pub(super) more: Box<More>,
}

/// The rarer parts of a refusal.
#[derive(Debug)]
pub(super) struct More {
    pub(super) details: Value,
    /// More members of the body.
    beside: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

pub(super) type Refused<T> = Result<T, Refusal>;

impl Refusal {
    pub(super) fn new(reason: Reason, text: impl Into<String>) -> Self {
        let more = Box::new(More { details: json!({}), beside: Map::new(), headers: Vec::new() });
        Self { reason, text: text.into(), more }
    }

    /// A value that breaks a rule.
    pub(super) fn invalid(field: impl Into<String>, problem: &str) -> Self {
        let field = field.into();
        let text = format!("{field}: {problem}");
        Self::new(reason::INVALID, text).details(json!({ "fields": [{ "field": field, "problem": problem }] }))
    }

    /// A body that is not what it should be at all.
    pub(super) fn malformed(field: &str, problem: &str) -> Self {
        let text = if field.is_empty() { problem.to_owned() } else { format!("{field}: {problem}") };
        Self::new(reason::BAD_REQUEST, text).details(json!({ "field": field }))
    }

    pub(super) fn missing(what: &str, name: &str) -> Self {
        Self::new(reason::NOT_FOUND, format!("{what} `{name}` does not exist"))
    }

    pub(super) fn not_ready(text: impl Into<String>) -> Self {
        Self::new(reason::NOT_READY, text)
    }

    pub(super) fn details(mut self, details: Value) -> Self {
        self.more.details = details;
        self
    }

    /// Adds a member to the body.
    pub(super) fn beside(mut self, name: &str, value: Value) -> Self {
        self.more.beside.insert(name.to_owned(), value);
        self
    }

    pub(super) fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.more.headers.push((name, value));
        }
        self
    }

    pub(super) fn retry_after(mut self, seconds: u64) -> Self {
        self.reason.retry = Some(u32::try_from(seconds).unwrap_or(u32::MAX));
        self
    }

    pub(super) fn reply(self) -> Reply {
        let Self { reason, text, more } = self;
        let More { details, beside, headers } = *more;
        let mut body = beside;
        body.insert("error".to_owned(), text.into());
        body.insert("reason".to_owned(), reason.word.into());
        body.insert("details".to_owned(), details);
        let mut reply = json_reply(reason.status, &Value::Object(body));
        if let Some(seconds) = reason.retry {
            reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        for (name, value) in headers {
            reply.headers_mut().insert(name, value);
        }
        reply
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::new(Reason::of_condition(problem.reason()), problem.to_string())
    }
}

/// What the API server says of an object that it refuses.
impl From<&Status> for Refusal {
    fn from(status: &Status) -> Self {
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let fields: Vec<Value> =
            causes.map(|cause| json!({ "field": cause.field, "problem": cause.message })).collect();
        let reason = match status.code {
            400 | 422 => reason::INVALID,
            403 => reason::FORBIDDEN,
            404 => reason::NOT_FOUND,
            409 => reason::CONFLICT,
            _ => return Self::not_ready("the API server does not answer as it should: try again"),
        };
        let refusal = Self::new(reason, status.message.clone());
        if fields.is_empty() { refusal } else { refusal.details(json!({ "fields": fields })) }
    }
}
