//! Streams the events of a watch, one line at a time, as the switches, the script and the rng say.

use std::{borrow::Cow, sync::Arc};

use bytes::{Bytes, BytesMut};
use fastrand::Rng;
use futures::{StreamExt, stream};
use http::Request;
use http_body_util::{BodyDataStream, BodyExt, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use serde::Deserialize;
use tokio::sync::watch::Receiver;

use super::{
    fault::Fault,
    forward,
    replica::{Admitted, Record, Replica, Switches},
    response::{Closed, ProxyResponse},
    script::Break,
    status,
};

/// Opens a watch; an answer that is no stream of events is passed on as it is.
pub(super) async fn open(
    replica: Arc<Replica>,
    admitted: Admitted,
    request: Request<Body>,
) -> Result<ProxyResponse, Closed> {
    // Before the request is sent: what is switched from here on concerns this watch.
    let switches = replica.switches();
    let answer = forward::send(&replica, admitted.record.number(), request).await?;
    admitted.record.answered(answer.status().as_u16());
    let success = answer.status().is_success();
    Ok(answer.map(|body| {
        if !success {
            return body.map_err(|_| Closed).boxed_unsync();
        }
        let events = Events::new(replica, admitted, switches, body);
        StreamBody::new(stream::unfold(events, Events::frame)).boxed_unsync()
    }))
}

struct Events {
    replica: Arc<Replica>,
    record: Record,
    path: String,
    upstream: BodyDataStream<Body>,
    buffer: BytesMut,
    switches: Receiver<Switches>,
    /// How often all watches had been cut when this one was opened.
    cuts: u64,
    /// The version the view was frozen at when this stream first held an event back.
    held_back_at: Option<u64>,
    cut_rate: f64,
    rng: Rng,
    /// What ends the stream before the next event.
    ending: Option<Break>,
}

enum NextFrame {
    Line(Bytes),
    Cut,
    End,
}

impl Events {
    fn new(replica: Arc<Replica>, admitted: Admitted, mut switches: Receiver<Switches>, body: Body) -> Self {
        let cuts = switches.borrow_and_update().cuts;
        let (cut_rate, rng) = admitted.injection.cut_watch;
        Self {
            replica,
            record: admitted.record,
            path: admitted.exchange.path,
            upstream: body.into_data_stream(),
            buffer: BytesMut::new(),
            switches,
            cuts,
            held_back_at: None,
            cut_rate,
            rng,
            ending: None,
        }
    }

    async fn frame(mut self) -> Option<(Result<Frame<Bytes>, Closed>, Self)> {
        match self.turn().await {
            NextFrame::Line(line) => Some((Ok(Frame::data(line)), self)),
            NextFrame::End => None,
            NextFrame::Cut => {
                self.record.fault(Fault::CutWatch);
                // While this waits, hyper writes out the events before the cut; they must arrive.
                tokio::task::yield_now().await;
                Some((Err(Closed), self))
            }
        }
    }

    async fn turn(&mut self) -> NextFrame {
        loop {
            let switches = *self.switches.borrow_and_update();
            match self.ending.take().or_else(|| self.interruption(switches)) {
                Some(Break::Cut) => return NextFrame::Cut,
                Some(Break::End) => {
                    self.record.fault(Fault::CutWatch);
                    return NextFrame::End;
                }
                Some(Break::Expire) => {
                    self.ending = Some(Break::End);
                    return NextFrame::Line(status::expired_event());
                }
                None => {}
            }
            let held = switches.held.is_some_and(|end| self.path.ends_with(end));
            if !held && let Some(line) = self.line() {
                if self.passes(&line, switches.frozen) {
                    return NextFrame::Line(line);
                }
                continue;
            }
            tokio::select! {
                biased;
                changed = self.switches.changed() => if changed.is_err() { return NextFrame::End },
                more = self.upstream.next(), if !held => match more {
                    Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
                    Some(Err(_)) => return NextFrame::Cut,
                    None => return NextFrame::End,
                },
            }
        }
    }

    fn interruption(&self, switches: Switches) -> Option<Break> {
        if switches.cuts != self.cuts {
            return Some(Break::Cut);
        }
        if self.held_back_at.is_some() && self.held_back_at != switches.frozen {
            return Some(Break::End);
        }
        self.replica.script_breaks(&self.path)
    }

    fn line(&mut self) -> Option<Bytes> {
        let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
        Some(self.buffer.split_to(end + 1).freeze())
    }

    fn passes(&mut self, line: &[u8], frozen: Option<u64>) -> bool {
        let Ok(event) = serde_json::from_slice::<Event>(line) else { return true };
        if event.kind == "ERROR" {
            return true;
        }
        if let Some(frozen) = frozen
            && event.version() > frozen
        {
            self.held_back_at = Some(frozen);
            return false;
        }
        let bookmark = event.kind == "BOOKMARK";
        if !self.replica.script_passes(&self.path, bookmark) {
            return false;
        }
        if !bookmark && self.rng.f64() < self.cut_rate {
            self.ending = Some(if self.rng.bool() { Break::Cut } else { Break::End });
        }
        true
    }
}

/// As much of an event as the proxy looks at.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    object: Object<'a>,
}

#[derive(Default, Deserialize)]
struct Object<'a> {
    #[serde(default, borrow)]
    metadata: Metadata<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(default, borrow)]
    resource_version: Cow<'a, str>,
}

impl Event<'_> {
    /// The version of the event's object; 0, which no freeze holds back, for one without.
    fn version(&self) -> u64 {
        self.object.metadata.resource_version.parse().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_tells_its_kind_and_version() {
        let line = br#"{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"name":"a","resourceVersion":"17"}}}"#;
        let event: Event = serde_json::from_slice(line).unwrap();
        assert_eq!((&*event.kind, event.version()), ("MODIFIED", 17));
        let bare: Event = serde_json::from_slice(br#"{"type":"ERROR","object":{"code":410}}"#).unwrap();
        assert_eq!((&*bare.kind, bare.version()), ("ERROR", 0));
    }
}
