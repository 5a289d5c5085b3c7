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
    /// Serve a port; also one that is served already and got another listener.
    Attach(Arc<Port>),
    /// Accept no new sessions on this port; existing ones continue.
    Detach(Arc<Port>),
    /// The last session of a port without a listener has ended.
    CloseUnused(u32),
    /// End the sessions of a deleted listener.
    EndOf(Arc<ListenerState>),
    List {
        filter: SessionFilter,
        from: u64,
        limit: usize,
        reply: SyncSender<Vec<(u64, SessionDump)>>,
    },
    /// Visits a bounded number of sessions from a sequence number on, and applies `how` to those that match.
    Sweep {
        filter: SessionFilter,
        from: u64,
        how: SweepAction,
        reply: SyncSender<SweepResult>,
    },
    GroupMessages(Vec<(Member, Vec<u8>)>),
    /// A JSONSocket client has ended the session of a flow.
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
    /// Makes the worker panic, to test its restart.
    #[cfg(test)]
    Fault,
}

/// What is done to matching sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SweepAction {
    Count,
    End(Ending),
    /// Sets the DSCP of packets to the filter's listener or cluster.
    Mark(u8),
}

/// The outcome of a sweep, and where the next one begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SweepResult {
    pub worker: usize,
    pub count: usize,
    pub next: Option<u64>,
}
