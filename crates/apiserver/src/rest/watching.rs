//! Watches: events as they come, one JSON object a line.
//!
//! A selector looks at the object before and after each write: what comes into view is ADDED, what leaves it DELETED.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::answer::{Call, Said, boxed};
use super::negotiate::{self, Shape};
use super::options::{ListOptions, watch_revision};
use super::select;
use super::table::{self, Include, Style};
use crate::server::{Inner, ServedKind};
use crate::status::Failure;
use crate::store::{Entry, Event, Watch};

/// How often a quiet watch tells how far it has come.
const BOOKMARKS_EVERY: Duration = Duration::from_mins(1);
/// A watch without a limit of its own ends after between one and two of these, as Kubernetes does it.
const LONGEST: Duration = Duration::from_mins(30);
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Opens a watch.
pub(super) fn watch(call: &Call<'_>, options: &ListOptions) -> Result<Said, Failure> {
    negotiate::accept_watch(call.accepted, call.header(http::header::ACCEPT))?;
    let store = &call.server.store;
    let namespace = Some(call.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let asked = watch_revision(&options.resource_version)?;
    let initial = options.send_initial_events == Some(true)
        || (options.send_initial_events.is_none() && matches!(options.resource_version.as_str(), "" | "0"));
    let (from, first) = if initial {
        let snapshot = store.list(&call.served.resource, namespace);
        (snapshot.revision, snapshot.entries)
    } else {
        (asked.unwrap_or_else(|| store.revision()), Vec::new())
    };
    let watch = store.watch(&call.served.resource, namespace, from).map_err(|expired| {
        Failure::expired(format!("too old resource version: {} ({})", expired.requested, expired.oldest))
    })?;
    let seconds =
        options.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
    let limit = seconds.map_or_else(|| LONGEST.mul_f64(1.0 + fastrand::f64()), Duration::from_secs);
    let now = Instant::now();
    let events = Events {
        served: call.served.clone(),
        labels: options.labels.clone(),
        fields: options.fields.clone(),
        watch,
        first: first.into_iter(),
        mark_end: options.send_initial_events == Some(true) && options.bookmarks,
        shape: call.accepted.shape,
        include: Include::parse(&call.query)?,
        headers: true,
        bookmarks: options.bookmarks,
        next_bookmark: now + BOOKMARKS_EVERY,
        end: now + limit,
        over: false,
    };
    let lines = stream::unfold(events, |mut events| async move {
        let line = events.next().await?;
        Some((Ok::<_, std::convert::Infallible>(Frame::data(line)), events))
    });
    Ok(Said::Stream(boxed(StreamBody::new(lines.fuse()))))
}

#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
struct Events {
    served: Arc<ServedKind>,
    labels: select::LabelSelector,
    fields: select::FieldSelector,
    watch: Watch,
    /// Objects that are there already.
    first: std::vec::IntoIter<Arc<Entry>>,
    /// Whether the end of those is to be marked.
    mark_end: bool,
    shape: Shape,
    include: Include,
    /// Only the first table has its columns.
    headers: bool,
    bookmarks: bool,
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
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARKS_EVERY;
                    return Some(self.bookmark(false));
                }
            };
            match event {
                Ok(event) => {
                    if let Some(line) = self.tell(&event) {
                        return Some(line);
                    }
                }
                Err(expired) => {
                    self.over = true;
                    let message = format!("too old resource version: {} ({})", expired.requested, expired.oldest);
                    return Some(line("ERROR", &Failure::expired(message).to_json()));
                }
            }
        }
    }

    /// What an event is to someone who sees only what is selected.
    fn tell(&mut self, event: &Event) -> Option<Bytes> {
        let before = event.before.as_ref().and_then(|before| self.selected(before));
        let after = event.after().and_then(|after| self.selected(after));
        match (before, after) {
            (None, None) => None,
            (None, Some(after)) => Some(self.line("ADDED", after)),
            (Some(_), Some(after)) => Some(self.line("MODIFIED", after)),
            (Some(mut before), None) => {
                // The last object that was in view, at the revision at which it left.
                if event.deleted {
                    before = Inner::decode(&self.served.kind, &event.entry).unwrap_or(before);
                }
                crate::object::set_meta(&mut before, "resourceVersion", event.revision().to_string());
                Some(self.line("DELETED", before))
            }
        }
    }

    fn selected(&self, entry: &Entry) -> Option<Value> {
        if !self.labels.matches_bytes(&entry.json) {
            return None;
        }
        let object = Inner::decode(&self.served.kind, entry).ok()?;
        self.fields.matches(&object).then_some(object)
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
        let style = |version| Style { version, include: self.include, headers: self.headers, now: Timestamp::now() };
        let shown = match self.shape {
            Shape::Table(version) => {
                let metadata = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
                let table = table::table(&self.served.kind, &[object], &metadata, style(version));
                self.headers = false;
                table
            }
            Shape::Partial(version) | Shape::PartialList(version) => table::partial(&object, version),
            Shape::Plain | Shape::Discovery => object,
        };
        line(kind, &shown)
    }
}

/// The type comes first: clients that read as they go count on it.
fn line(kind: &str, object: &Value) -> Bytes {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
}
