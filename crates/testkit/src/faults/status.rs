//! The answers that the proxy makes up, as an API server words them.

use bytes::Bytes;
use http::{Response, header};
use serde_json::{Value, json};

use super::response::{ProxyResponse, full};

pub(super) fn conflict() -> ProxyResponse {
    let message = "the object has been modified; please apply your changes to the latest version and try again";
    answer(&status(409, "Conflict", message))
}

pub(super) fn gone() -> ProxyResponse {
    answer(&expired())
}

pub(super) fn server_error(code: u16) -> ProxyResponse {
    let reason = match code {
        422 => "Invalid",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    answer(&status(code, reason, "a fault made by the testkit"))
}

pub(super) fn bad_request(message: &str) -> ProxyResponse {
    answer(&status(400, "BadRequest", message))
}

pub(super) fn throttled(seconds: u32) -> ProxyResponse {
    let mut status = status(429, "TooManyRequests", "too many requests, please try again later");
    status["details"] = json!({ "retryAfterSeconds": seconds });
    let mut answer = answer(&status);
    answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    answer
}

/// A watch that is opened and says at once that its version has expired.
pub(super) fn gone_in_stream() -> ProxyResponse {
    json_answer(200, expired_event())
}

/// The line of a watch that says that its version has expired.
pub(super) fn expired_event() -> Bytes {
    format!("{}\n", json!({ "type": "ERROR", "object": expired() })).into()
}

fn expired() -> Value {
    status(410, "Expired", "too old resource version: made so by the testkit")
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    })
}

fn answer(status: &Value) -> ProxyResponse {
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    json_answer(code.expect("every status made here has a code"), status.to_string().into())
}

fn json_answer(code: u16, body: Bytes) -> ProxyResponse {
    Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, "application/json")
        .body(full(body))
        .expect("a status code and a fixed header make an answer")
}
