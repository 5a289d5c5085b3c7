//! Commands from other threads to a worker.

use super::flow::FlowKey;
use super::port::{ListenerState, Port};
use super::slab::Key;
use super::sync::Member;
use crate::config::engine::{Ending, SessionDump, SessionFilter};
use crate::rest::exchange::Response;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

pub(crate) enum Command {
    /// Serve a port; also one that is served already and has another listener.
    Attach(Arc<Port>),
    /// No new sessions by this port; the known ones are served on.
    Detach(Arc<Port>),
    /// End sessions of a listener that went and takes them along.
    EndOf(Arc<ListenerState>),
    List {
        filter: SessionFilter,
        from: u64,
        limit: usize,
        reply: SyncSender<Vec<(u64, SessionDump)>>,
    },
    /// Looks at a bounded number of sessions from a sequence number on, and treats those that fit.
    Sweep {
        filter: SessionFilter,
        from: u64,
        how: SweepAction,
        reply: SyncSender<SweepResult>,
    },
    GroupMessages(Vec<(Member, Vec<u8>)>),
    /// A JSONSocket client is done with the session of a flow.
    CloseNotice {
        flow: FlowKey,
        token: u64,
    },
    Answer {
        session: Key,
        response: Box<Response>,
    },
    Resolved {
        session: Key,
        stage: usize,
        addresses: Arc<[IpAddr]>,
    },
    Drain,
    Stop,
    /// Breaks the worker, to see that it comes back.
    #[cfg(test)]
    Fault,
}

/// What is done to sessions that fit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SweepAction {
    Count,
    End(Ending),
    /// Marks what leaves by the filter's listener or cluster with a code point.
    Mark(u8),
}

/// What a sweep found, and where the next one begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SweepResult {
    pub worker: usize,
    pub count: usize,
    pub next: Option<u64>,
}
