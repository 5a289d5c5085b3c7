//! Watches: a stream of events, one JSON object per line, or in protobuf each with its length before it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::body::boxed;
use super::call::Call;
use super::negotiate::{Accepted, Form, Shape};
use super::options::{ListOptions, revision};
use super::response::{Reply, verbatim};
use super::table::{self, Include, Style};
use crate::clock::Clock;
use crate::crd::ServedKind;
use crate::object::set_meta;
use crate::protobuf;
use crate::state::ServerState;
use crate::status::Failure;
use crate::store::{Entry, Event, Expired, Watch};

/// The interval of bookmarks.
const BOOKMARKS_EVERY: Duration = Duration::from_mins(1);
/// A watch without `timeoutSeconds` ends after one to two times this long, as in kube-apiserver.
const LONGEST: Duration = Duration::from_mins(30);
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Opens a watch.
pub(super) fn watch(call: &Call<'_>, options: &ListOptions) -> Result<Reply, Failure> {
    if call.accepted.form == Form::Yaml {
        return Err(Failure::new(
            http::StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            "watches are available in JSON and protobuf only",
        ));
    }
    let store = &call.server.store;
    let namespace = Some(call.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let asked = revision(&options.resource_version)?;
    let (from, first) = if options.send_initial_events {
        let snapshot = store.list(&call.served.resource, namespace);
        (snapshot.revision, snapshot.entries)
    } else {
        (asked.unwrap_or_else(|| store.revision()), Vec::new())
    };
    let watch = store.watch(&call.served.resource, namespace, from).map_err(|expired| too_old(&expired))?;
    let seconds =
        options.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
    let limit = seconds.map_or_else(|| LONGEST.mul_f64(1.0 + fastrand::f64()), Duration::from_secs);
    let now = Instant::now();
    let events = Events {
        served: call.served.clone(),
        clock: call.server.clock.clone(),
        stopping: call.server.stopping.clone(),
        options: options.clone(),
        watch,
        first: first.into_iter(),
        mark_end: options.send_initial_events && options.bookmarks,
        accepted: call.accepted,
        include: Include::parse(&call.query)?,
        headers: true,
        next_bookmark: now + BOOKMARKS_EVERY,
        end: now + limit,
        over: false,
    };
    let lines = stream::unfold(events, |mut events| async move {
        let line = events.next().await?;
        Some((Ok::<_, std::convert::Infallible>(Frame::data(line)), events))
    });
    Ok(Reply::Stream(boxed(StreamBody::new(lines.fuse()))))
}

struct Events {
    served: Arc<ServedKind>,
    clock: Clock,
    stopping: CancellationToken,
    options: ListOptions,
    watch: Watch,
    /// Objects that exist already.
    first: std::vec::IntoIter<Arc<Entry>>,
    /// Whether a bookmark marks the end of those.
    mark_end: bool,
    accepted: Accepted,
    include: Include,
    /// Only the first table has column definitions.
    headers: bool,
    next_bookmark: Instant,
    end: Instant,
    over: bool,
}

impl Events {
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        while let Some(entry) = self.first.next() {
            if let Some(object) = self.selected(&entry) {
                return Some(self.line("ADDED", object));
            }
        }
        if std::mem::take(&mut self.mark_end) {
            return Some(self.bookmark(true));
        }
        loop {
            let event = tokio::select! {
                event = self.watch.next() => event,
                () = tokio::time::sleep_until(self.end) => return None,
                () = self.stopping.cancelled() => return None,
                () = tokio::time::sleep_until(self.next_bookmark), if self.options.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARKS_EVERY;
                    return Some(self.bookmark(false));
                }
            };
            match event {
                Ok(event) => {
                    if let Some(line) = self.encode(&event) {
                        return Some(line);
                    }
                }
                Err(expired) => {
                    self.over = true;
                    return Some(encoded(self.accepted.form, "ERROR", &too_old(&expired).to_json()));
                }
            }
        }
    }

    /// The event as a client with this selector sees it.
    fn encode(&mut self, event: &Event) -> Option<Bytes> {
        let sees_all = self.options.select_all();
        if sees_all
            && self.accepted == Accepted::JSON
            && let Some(json) = verbatim(&self.served.kind, &event.entry)
        {
            let kind = match &event.before {
                _ if event.deleted => "DELETED",
                None => "ADDED",
                Some(_) => "MODIFIED",
            };
            return Some(line(kind, json));
        }
        let before = event.before.as_ref().and_then(|before| self.selected(before));
        let after = event.after().and_then(|after| self.selected(after));
        match (before, after) {
            (None, None) => None,
            (None, Some(after)) => Some(self.line("ADDED", after)),
            (Some(_), Some(after)) => Some(self.line("MODIFIED", after)),
            (Some(mut before), None) => {
                // The last object that matched, at the revision at which it stopped matching.
                if event.deleted {
                    before = ServerState::decode(&self.served.kind, &event.entry).unwrap_or(before);
                }
                set_meta(&mut before, "resourceVersion", event.revision().to_string());
                Some(self.line("DELETED", before))
            }
        }
    }

    fn selected(&self, entry: &Entry) -> Option<Value> {
        let object = ServerState::decode(&self.served.kind, entry).ok()?;
        self.options.select(&object).then_some(object)
    }

    fn bookmark(&mut self, end_of_initial: bool) -> Bytes {
        let kind = &self.served.kind;
        let mut object = json!({
            "kind": kind.kind, "apiVersion": kind.api_version(),
            "metadata": { "resourceVersion": self.watch.position().to_string() },
        });
        if end_of_initial {
            object["metadata"]["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
        }
        self.line("BOOKMARK", object)
    }

    fn line(&mut self, kind: &str, object: Value) -> Bytes {
        let shown = match self.accepted.shape {
            Shape::Table => {
                let style = Style { include: self.include, headers: self.headers, now: self.clock.now() };
                self.headers = false;
                table::table(&self.served.kind, std::slice::from_ref(&object), &object["metadata"], style)
            }
            Shape::Partial | Shape::PartialList => table::partial(&object),
            Shape::Plain | Shape::Discovery => object,
        };
        encoded(self.accepted.form, kind, &shown)
    }
}

fn too_old(expired: &Expired) -> Failure {
    Failure::expired(expired.to_string())
}

/// An event in the encoding of the client.
fn encoded(form: Form, kind: &str, object: &Value) -> Bytes {
    match (form == Form::Protobuf).then(|| protobuf::encode(object)).flatten() {
        Some(encoded) => protobuf::watch_event(kind, &encoded).into(),
        None => line(kind, object.to_string().as_bytes()),
    }
}

/// The type comes first: streaming clients rely on it.
fn line(kind: &str, object: &[u8]) -> Bytes {
    [b"{\"type\":\"", kind.as_bytes(), b"\",\"object\":", object, b"}\n"].concat().into()
}
