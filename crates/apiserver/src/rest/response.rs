//! Responses: objects and lists in the shape and encoding that the client accepts, and failures.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};

use super::body::{Body, boxed};
use super::call::Call;
use super::negotiate::{self, Accepted, Form, Shape};
use super::table::{self, Include, Style};
use super::untyped;
use crate::kinds::Kind;
use crate::state::ServerState;
use crate::status::Failure;
use crate::store::Entry;

/// The result of a verb.
pub(super) enum Reply {
    /// An object of the kind, or a Status.
    Object { code: StatusCode, object: Value },
    /// An object of the kind as it is stored.
    Stored { code: StatusCode, entry: Arc<Entry> },
    /// A list of the kind: its metadata and its items.
    List { metadata: Value, items: Vec<Arc<Entry>> },
    /// The events of a watch.
    Stream(Body),
}

/// The response to a request for objects.
pub(super) fn response(call: &Call<'_>, said: Reply) -> Result<Response<Body>, Failure> {
    let (kind, accepted) = (call.kind(), call.accepted);
    let style = Style { include: Include::parse(&call.query)?, headers: true, now: call.now };
    let not_acceptable = |message| Err(Failure::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message));
    let (code, shown) = match said {
        Reply::Stored { code, entry } => {
            return match verbatim(kind, &entry).filter(|_| accepted == Accepted::JSON) {
                Some(json) => Ok(bytes(code, accepted.content_type(), json.clone())),
                None => response(call, Reply::Object { code, object: ServerState::decode(kind, &entry)? }),
            };
        }
        Reply::Stream(body) => {
            let protobuf = accepted.form == Form::Protobuf;
            let content_type = if protobuf { negotiate::PROTOBUF_STREAM } else { accepted.content_type() };
            return Ok(typed(Response::new(body), content_type));
        }
        Reply::Object { code, object } if object["kind"] == "Status" && object["apiVersion"] == "v1" => (code, object),
        Reply::Object { code, object } => match accepted.shape {
            Shape::Table => (code, table::table(kind, std::slice::from_ref(&object), &object["metadata"], style)),
            Shape::Partial => (code, table::partial(&object)),
            Shape::PartialList => return not_acceptable("a single object cannot be a PartialObjectMetadataList"),
            Shape::Plain | Shape::Discovery => (code, object),
        },
        Reply::List { metadata, items } => {
            if accepted == Accepted::JSON
                && let Some(json) = verbatim_list(kind, &metadata, &items)
            {
                return Ok(bytes(StatusCode::OK, accepted.content_type(), json));
            }
            let items = items.iter().map(|entry| ServerState::decode(kind, entry)).collect::<Result<Vec<_>, _>>()?;
            let shown = match accepted.shape {
                Shape::Table => table::table(kind, &items, &metadata, style),
                Shape::PartialList => table::partial_list(&items, &metadata),
                Shape::Partial => return not_acceptable("a list is not one object: ask for PartialObjectMetadataList"),
                Shape::Plain | Shape::Discovery => list(kind, metadata, items),
            };
            (StatusCode::OK, shown)
        }
    };
    Ok(value(code, &shown, accepted))
}

/// The bytes of an entry, if the object is stored in the version of `kind` and by its present schema: then they can be
/// sent unchanged.
pub(super) fn verbatim<'e>(kind: &Kind, entry: &'e Entry) -> Option<&'e Bytes> {
    if entry.revision < kind.defined_at {
        return None;
    }
    // The fields of stored objects are in order: this one is the first.
    let rest = entry.json.strip_prefix(b"{\"apiVersion\":\"")?.strip_prefix(kind.api_version().as_bytes())?;
    rest.starts_with(b"\"").then_some(&entry.json)
}

/// A list of a kind. Items of built-in kinds have no type; lists of custom kinds have `continue` even when it is empty.
fn list(kind: &Kind, mut metadata: Value, mut items: Vec<Value>) -> Value {
    if kind.custom && metadata.get("continue").is_none() {
        metadata["continue"] = "".into();
    }
    for item in items.iter_mut().filter_map(Value::as_object_mut).filter(|_| !kind.custom) {
        item.retain(|field, _| !["apiVersion", "kind"].contains(&field.as_str()));
    }
    json!({ "kind": kind.list_kind, "apiVersion": kind.api_version(), "metadata": metadata, "items": items })
}

/// The same list as text, joined from the stored texts; none if an item is stored in another version.
fn verbatim_list(kind: &Kind, metadata: &Value, items: &[Arc<Entry>]) -> Option<Vec<u8>> {
    let empty = list(kind, metadata.clone(), Vec::new()).to_string();
    let (before, after) = empty.split_once("\"items\":[]")?;
    let mut text = Vec::with_capacity(empty.len() + items.iter().map(|entry| entry.json.len() + 1).sum::<usize>());
    write!(text, "{before}\"items\":[").ok()?;
    for (place, entry) in items.iter().enumerate() {
        if place > 0 {
            text.push(b',');
        }
        let json = verbatim(kind, entry)?;
        if kind.custom {
            text.extend_from_slice(json);
        } else {
            untyped::push(&mut text, json)?;
        }
    }
    writeln!(text, "]{after}").ok()?;
    Some(text)
}

/// A response with a value.
pub(super) fn value(code: StatusCode, value: &Value, accepted: Accepted) -> Response<Body> {
    match negotiate::encode(value, accepted.form) {
        Some(encoded) => bytes(code, accepted.content_type(), encoded),
        None => bytes(code, Accepted::JSON.content_type(), format!("{value}\n")),
    }
}

/// The response of a failure; it has one shape whatever the client accepts.
pub(super) fn status(failure: &Failure, accepted: Accepted) -> Response<Body> {
    let mut response = value(failure.code, &failure.to_json(), Accepted { shape: Shape::Plain, ..accepted });
    if let Some(seconds) = failure.details.get("retryAfterSeconds").and_then(Value::as_u64) {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// A response of any content type.
pub(super) fn bytes(code: StatusCode, content_type: &'static str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = typed(Response::new(boxed(Full::new(bytes.into()))), content_type);
    *response.status_mut() = code;
    response
}

/// A document that clients keep, with its `ETag`; without its bytes when the client has them.
pub(super) fn cached(head: &Parts, content_type: &'static str, document: Vec<u8>) -> Response<Body> {
    let mut hasher = DefaultHasher::new();
    document.hash(&mut hasher);
    let tag = format!("\"{:016X}\"", hasher.finish());
    let known = head.headers.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok()).unwrap_or_default();
    let mut response = if known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag) {
        bytes(StatusCode::NOT_MODIFIED, content_type, Bytes::new())
    } else {
        bytes(StatusCode::OK, content_type, document)
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn typed(mut response: Response<Body>, content_type: &'static str) -> Response<Body> {
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
