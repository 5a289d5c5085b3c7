//! Responses: objects in the requested format, and errors in the form that l7mp clients expect.

use portolan_core::mesh::TERM_HEADER;

use super::exchange::Response;
use super::format::{Style, by_four};
use crate::config::json::{Json, object};
use crate::config::refusal::{Class, Refusal};

/// The API version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Compatible with l7mp, including its quirks.
    V1,
    V2,
}

/// A response with a value.
pub(super) fn value(value: &Json, style: Style) -> Response {
    json(200, "OK", style.write(value))
}

/// The response to adds and deletes.
pub(super) fn done(style: Style) -> Response {
    value(&object([("status", 200_u64.into()), ("message", "OK".into())]), style)
}

/// An error with its content.
pub(crate) fn error(status: u16, message: &str, content: Json) -> Response {
    let body = object([("status", u64::from(status).into()), ("message", message.into()), ("content", content)]);
    json(status, message, by_four(&body))
}

/// The API has too much to do.
pub(crate) fn busy() -> Response {
    error(429, "Too Many Requests", "The API is busy: try again in a moment".into())
}

/// The request did not arrive in time.
pub(crate) fn request_timeout() -> Response {
    error(408, "Request Timeout", "The request took too long (admin.limits.api_request_ms)".into())
}

/// The body is larger than this limit.
pub(crate) fn body_too_large(limit: usize) -> Response {
    error(413, "Payload Too Large", format!("The body exceeds {limit} bytes (admin.limits.body)").into())
}

/// An unknown operation.
pub(super) fn unknown() -> Response {
    error(404, "Not Found", "Unknown API operation".into())
}

/// A refusal, with the status codes of the API version.
pub(super) fn refused(refusal: &Refusal, version: Version) -> Response {
    let content = || Json::from(refusal.content.as_str());
    match (refusal.class, version) {
        (Class::Invalid, _) => {
            let violations = Json::Array(refusal.violations.clone());
            error(422, "Unprocessable Entity: Input JSON schema validation failed", violations)
        }
        (Class::Missing, Version::V2) => error(404, "Not Found", content()),
        (Class::StaleTerm { highest }, _) => {
            let mut response = error(409, "Conflict", content());
            response.headers.push((TERM_HEADER, highest.to_string()));
            response
        }
        (Class::Conflict, Version::V2) => error(409, "Conflict", content()),
        (Class::Unimplemented, Version::V2) => error(501, "Not Implemented", content()),
        (Class::Bad | Class::Missing | Class::Conflict | Class::Unimplemented, _) => {
            error(400, "Bad Request", content())
        }
    }
}

/// A plain-text response, for health and metrics.
pub(super) fn text(status: u16, kind: &str, body: String) -> Response {
    let reason = if status == 200 { "OK" } else { "Service Unavailable" };
    whole(status, reason, kind, body)
}

fn json(status: u16, reason: &str, body: String) -> Response {
    whole(status, reason, "application/json", body)
}

fn whole(status: u16, reason: &str, kind: &str, body: String) -> Response {
    let headers = vec![("Content-Type", kind.to_owned()), ("Content-Length", body.len().to_string())];
    Response { status, reason: reason.to_owned(), headers, body: body.into_bytes() }
}
