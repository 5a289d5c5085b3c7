//! The interface between the configuration and the data plane.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::snapshot::Snapshot;
use super::types::{Endpoint, Listener, Name, ObjectId};

/// The running data plane. Calls come from one thread at a time and may block it briefly; they never stop packets.
pub trait Engine: Send + Sync {
    /// Applies a configuration completely or not at all: sockets of added and changed listeners are opened first, then
    /// all workers switch. Existing sessions continue, even if their objects were deleted.
    fn apply(&self, next: Arc<Snapshot>) -> Result<(), BindError>;

    /// One page of sessions, oldest first, including finished ones that are still tracked.
    fn sessions(&self, filter: &SessionFilter, page: &Page) -> SessionPage;

    /// How many live sessions fit the filter; finished ones do not count.
    fn count(&self, filter: &SessionFilter) -> usize;

    /// Ends or disconnects the matching live sessions, and returns their number.
    fn end(&self, filter: &SessionFilter, how: Ending) -> usize;

    /// Counters since the start.
    fn stats(&self) -> Stats;
}

/// An engine without sockets, for checking a configuration.
#[derive(Debug, Default)]
pub struct NullEngine;

impl Engine for NullEngine {
    fn apply(&self, _: Arc<Snapshot>) -> Result<(), BindError> {
        Ok(())
    }

    fn sessions(&self, _: &SessionFilter, _: &Page) -> SessionPage {
        SessionPage::default()
    }

    fn count(&self, _: &SessionFilter) -> usize {
        0
    }

    fn end(&self, _: &SessionFilter, _: Ending) -> usize {
        0
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// A listener's socket could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("listener \"{listener}\": {call} {code} {at}")]
pub struct BindError {
    pub listener: Name,
    /// `UDP`, `TCP`, `WebSocket`, ...: the one of the socket, not `JSONSocket`.
    pub protocol: &'static str,
    /// The system call, for example `bind`.
    pub call: &'static str,
    /// `9.9.9.9:5999`, or the path of a socket file.
    pub at: String,
    /// The error's symbol, for example `EADDRNOTAVAIL`.
    pub code: String,
}

/// Which sessions: every field that is set must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    pub name: Option<String>,
    /// Accepted by it; also if the listener is deleted.
    pub listener: Option<ObjectId>,
    /// Matched there, including lists reached by `apply`.
    pub rulelist: Option<ObjectId>,
    pub rule: Option<ObjectId>,
    pub route: Option<ObjectId>,
    /// Has a stage of it: destination, ingress or egress.
    pub cluster: Option<ObjectId>,
    pub endpoint: Option<ObjectId>,
}

/// A part of a long list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Page size; `None` is all.
    pub limit: Option<usize>,
    /// The `next` of the previous page.
    pub from: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct SessionPage {
    pub sessions: Vec<SessionDump>,
    /// Pass this as [`Page::from`] for the next page; `None` at the end.
    pub next: Option<String>,
}

/// How sessions are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// An END event with this content: `Session removed from the API`, `Listener deleted from API`, ...
    End(&'static str),
    /// The stage at the filter's endpoint is disconnected, and `retry` applies.
    Disconnect,
}

/// A session as it is at this moment.
#[derive(Debug, Clone)]
pub struct SessionDump {
    pub name: String,
    /// With or without `name`; the API leaves it out.
    pub metadata: Value,
    pub source: SourceDump,
    /// Absent before routing.
    pub destination: Option<StageDump>,
    pub ingress: Vec<StageDump>,
    pub egress: Vec<StageDump>,
    /// `INIT`, `CONNECTED`, `DISCONNECTED`, `FINALIZING`, `DESTROYED`.
    pub status: &'static str,
    pub events: Vec<EventDump>,
    pub traffic: Traffic,
    /// Since 1970.
    pub created: Duration,
    pub idle: Duration,
}

#[derive(Debug, Clone)]
pub struct SourceDump {
    /// The listener's name.
    pub origin: Name,
    /// The listener that accepted the session, even if it is deleted.
    pub listener: Arc<Listener>,
    /// `INIT`, `RETRYING`, `CONNECTED`, `READY`, `DISCONNECTED`, `FINALIZING`, `END`.
    pub status: &'static str,
}

#[derive(Debug, Clone)]
pub struct StageDump {
    /// The cluster's name.
    pub origin: Name,
    pub end: StageEnd,
    pub status: &'static str,
}

/// The remote end of a stage.
#[derive(Debug, Clone)]
pub enum StageEnd {
    None,
    Virtual,
    Endpoint(Arc<Endpoint>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct EventDump {
    /// `INIT`, `LOOKUP SUCCESS`, `CONNECT`, `DISCONNECT`, `ERROR`, `END`, `DESTROY`.
    pub event: &'static str,
    /// Since 1970.
    pub at: Duration,
    pub message: String,
    pub content: String,
}

/// Packets and bytes, from the client's side: `in` is what it sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    pub packets_in: u64,
    pub packets_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

/// All counters. Deleted objects may be omitted.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Sockets of all listeners in force are open.
    pub bound: bool,
    pub sessions_active: u64,
    pub sessions_total: u64,
    /// By reason: a bounded set of words.
    pub sessions_ended: Vec<(&'static str, u64)>,
    pub traffic: Traffic,
    /// By cause: `kernel_queue`, `setup_queue`, `send`, `rate`, `cap`, `no_route`, `loop`.
    pub drops: Vec<(&'static str, u64)>,
    /// Sessions or messages refused, by limit.
    pub limits: Vec<(&'static str, u64)>,
    /// Lines that were to be logged and were not.
    pub log_lines_dropped: u64,
    pub retries: u64,
    pub segments_in: u64,
    pub segments_out: u64,
    /// Sessions by listener: name and protocol.
    pub listeners: Vec<ByObject>,
    /// Stages by cluster: name and protocol.
    pub clusters: Vec<ByObject>,
    /// Traffic through Metric clusters.
    pub metered: Vec<Metered>,
    /// Matches by rule.
    pub rules: Vec<(Name, u64)>,
    /// Stages refused by a circuit: cluster, limit, how many.
    pub circuits: Vec<(Name, &'static str, u64)>,
    /// Whether an endpoint accepts sessions: cluster, endpoint, yes or no.
    pub endpoints: Vec<(Name, Name, bool)>,
    pub connect_seconds: Histogram,
    pub setup_seconds: Histogram,
    /// Share of the last second that each worker was busy, 0 to 1.
    pub workers_busy: Vec<f64>,
    pub worker_restarts: u64,
}

#[derive(Debug, Clone)]
pub struct ByObject {
    pub name: Name,
    pub protocol: &'static str,
    pub total: u64,
}

#[derive(Debug, Clone)]
pub struct Metered {
    pub cluster: Name,
    /// Only with `admin.metrics_per_session`.
    pub session: Option<String>,
    /// Metric names in the cluster's spec, if any.
    pub byte_counter: Option<String>,
    pub packet_counter: Option<String>,
    pub bytes: u64,
    pub packets: u64,
}

/// Observations by upper bound, not cumulative; what is above the last bound is `over`.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// Upper bound in seconds, and how many.
    pub buckets: Vec<(f64, u64)>,
    pub over: u64,
    pub sum: f64,
}
