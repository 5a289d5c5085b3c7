//! Answers.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;
pub(super) type Reply = Response<Body>;

pub(super) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

pub(super) fn json(status: StatusCode, body: &Value) -> Reply {
    let mut reply = Response::new(whole(body.to_string()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

/// The view of an object in its version.
pub(super) fn shown(status: StatusCode, body: &Value, version: Option<&String>) -> Reply {
    let mut reply = json(status, body);
    let tag = version.and_then(|version| HeaderValue::from_str(&format!("\"{version}\"")).ok());
    if let Some(tag) = tag {
        reply.headers_mut().insert(header::ETAG, tag);
    }
    reply
}

/// Sends the client to what it made.
pub(super) fn found(path: &str) -> Reply {
    let mut reply = Response::new(whole(Bytes::new()));
    *reply.status_mut() = StatusCode::FOUND;
    if let Ok(location) = HeaderValue::from_str(path) {
        reply.headers_mut().insert(header::LOCATION, location);
    }
    reply
}
