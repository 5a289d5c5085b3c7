//! Changes as they happen, as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use portolan_core::gateway::namespace_of;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::context::Context;
use super::feed::{Event, Opening, Subscription};
use super::reason;
use super::refusal::{Refusal, Refused};
use super::reply::Reply;

/// A comment is sent when nothing else was.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Then the client must log in again.
const LONGEST: Duration = Duration::from_mins(30);

struct Watching {
    first: Option<Bytes>,
    opening: VecDeque<Event>,
    subscription: Subscription,
    end: Instant,
    stop: CancellationToken,
}

pub(super) fn begin(
    context: &Context,
    account: &str,
    service: Option<&str>,
    headers: &HeaderMap,
    hang_up: CancellationToken,
) -> Refused<Reply> {
    if let Some(service) = service {
        context.service(account, service)?;
    }
    let since = since(headers)?;
    let begun = context.feed.subscribe(&namespace_of(account), service, since, hang_up);
    let Some((opening, subscription)) = begun else {
        let problem = "the account has as many watches as it may have: close one";
        return Err(Refusal::new(reason::TOO_MANY_WATCHES, problem));
    };
    let (first, opening) = match opening {
        Opening::Since(events) => (": resumed\n\n", events),
        Opening::Everything { after_gap: true, objects } => ("event: reset\ndata: {}\n\n", objects),
        Opening::Everything { after_gap: false, objects } => (": everything\n\n", objects),
    };
    let watching = Watching {
        first: Some(Bytes::from_static(first.as_bytes())),
        opening: opening.into(),
        subscription,
        end: Instant::now() + LONGEST,
        stop: context.stop.clone(),
    };
    let frames = stream::unfold(watching, async |mut watching| {
        let bytes = watching.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(bytes)), watching))
    });
    let mut reply = Response::new(StreamBody::new(frames).boxed_unsync());
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    reply.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

/// The last event that the client has seen.
fn since(headers: &HeaderMap) -> Refused<Option<u64>> {
    let Some(id) = headers.get("last-event-id").filter(|id| !id.is_empty()) else { return Ok(None) };
    let id = id.to_str().ok().and_then(|id| id.trim().parse().ok());
    id.map(Some).ok_or_else(|| Refusal::malformed("Last-Event-ID", "send the id of the last event, a number"))
}

impl Watching {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        // made one by one as they are read, so that a large account costs no memory
        if let Some(event) = self.opening.pop_front() {
            return Some(event.frame());
        }
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            () = tokio::time::sleep_until(self.end) => None,
            frame = self.subscription.backlog.next() => frame,
            () = tokio::time::sleep(SIGN_OF_LIFE) => Some(Bytes::from_static(b":\n\n")),
        }
    }
}
