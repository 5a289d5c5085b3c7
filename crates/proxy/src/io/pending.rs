//! Connections whose first request has not arrived yet: WebSocket and HTTP clients.

use super::link::Stream;
use super::port::ListenerState;
use std::net::SocketAddr;
use std::sync::Arc;

/// A connection that waits for its request.
pub(crate) struct PendingConnection {
    pub stream: Stream,
    pub listener: Arc<ListenerState>,
    pub local: SocketAddr,
    pub peer: Option<SocketAddr>,
    pub read: Vec<u8>,
    pub since: u64,
    /// It is closed once the queued bytes are sent.
    pub closing: bool,
}
