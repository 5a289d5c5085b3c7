//! A new client, before it has a session.

use super::link::Link;
use super::port::{ListenerState, Port};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;

/// A client that wants a session.
pub(crate) struct Incoming {
    pub listener: Arc<ListenerState>,
    pub port: Option<Arc<Port>>,
    pub local: SocketAddr,
    pub peer: Option<SocketAddr>,
    pub source: Link,
    pub metadata: Option<Value>,
    /// The DSCP of its first packet, if the listener reads it.
    pub dscp: Option<u8>,
}
