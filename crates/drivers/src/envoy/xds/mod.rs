//! Delta xDS: gives Envoys their resources, over one aggregated gRPC stream each.
//!
//! ```text
//! server  accepts connections of one unit  -->  grpc     messages on an HTTP/2 stream
//!    '--> session  one stream with its clock -->  machine  what to send, without I/O  -->  subscription  of one kind
//!    '--> progress what became of the unit, over all streams
//! ```
//!
//! A socket belongs to one unit, so who connects to it is that unit's Envoy; a connection over another transport
//! is served likewise, once it has proven whose it is.

mod grpc;
mod machine;
mod progress;
mod server;
mod session;
mod subscription;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use portolan_core::gateway::unit::UnitId;
use tokio::sync::watch;

use super::resources::Snapshot;
pub(super) use progress::Progress;
pub(super) use server::{serve, serve_connection};

/// What the Envoys of a unit are to have.
#[derive(Debug, Clone)]
pub(super) enum Order {
    /// Exactly these resources.
    Serve(Arc<Snapshot>),
    /// These until it ends: no listeners, so that no connection is accepted.
    Drain(Arc<Snapshot>),
    /// What they have: another replica leads.
    StandBy,
    /// Nothing: it ends at once.
    Stop,
}

/// Where the streams of a unit get their orders from, and report to.
#[derive(Clone)]
pub(super) struct Feed {
    /// Whose Envoy may connect.
    pub(super) unit: UnitId,
    /// What it is to have.
    pub(super) orders: watch::Receiver<Order>,
    /// What became of it.
    pub(super) progress: Arc<Progress>,
}
