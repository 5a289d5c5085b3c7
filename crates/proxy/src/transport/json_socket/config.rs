//! Configuration of JSONSocket clusters; a JSONSocket listener is any other listener spec in a box.

use crate::config::types::ClusterSpec;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub struct JsonSocketCluster {
    /// UDP, TCP, WebSocket or UDS; endpoints and balancer are of this one.
    pub transport: Box<ClusterSpec>,
    /// Absent: `/labels` travels, if there are any; empty: nothing does.
    pub header: Option<Vec<HeaderItem>>,
    /// Zero: the header is sent once.
    pub retransmit_ms: u64,
}

/// One step of building the header that a JSONSocket client sends.
#[derive(Debug, Clone, PartialEq)]
pub enum HeaderItem {
    /// Copies a subtree of the metadata; to `/` replaces the header built so far.
    Copy {
        from: String,
        to: String,
    },
    Set {
        key: String,
        value: Value,
    },
}
