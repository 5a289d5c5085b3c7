//! Configuration of JSONSocket clusters; a JSONSocket listener is any other listener spec in a box.

use crate::config::json::Json;
use crate::config::reader::SpecReader;
use crate::config::refusal::Refusal;
use crate::transport::spec::TransportCluster;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub struct JsonSocketCluster {
    /// Endpoints and balancer are of this one.
    pub transport: TransportCluster,
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

impl JsonSocketCluster {
    pub(crate) fn read(read: &SpecReader<'_>, transport: TransportCluster) -> Result<Self, Refusal> {
        let header = header(read.spec)?;
        let retransmit_ms = read.nested::<u32>("handshake", "retransmit_ms")?.unwrap_or(0).into();
        Ok(Self { transport, header, retransmit_ms })
    }
}

fn header(spec: &Json) -> Result<Option<Vec<HeaderItem>>, Refusal> {
    let Some(given) = spec.get("header") else { return Ok(None) };
    let items = given.as_array().and_then(|items| items.iter().map(header_item).collect());
    items.map(Some).ok_or_else(|| Refusal::bad("Cannot add cluster: Property spec.header is invalid"))
}

fn header_item(item: &Json) -> Option<HeaderItem> {
    if let Some(set) = item.get("set") {
        let key = set.get("key")?.as_str()?.to_owned();
        return Some(HeaderItem::Set { key, value: set.get("value").map(Json::to_value).unwrap_or_default() });
    }
    let path = item.get("path")?;
    if let Some(from) = path.as_str() {
        return Some(HeaderItem::Copy { from: from.to_owned(), to: "/".to_owned() });
    }
    let from = path.get("from")?.as_str()?.to_owned();
    let to = path.get("to").and_then(Json::as_str).unwrap_or("/").to_owned();
    Some(HeaderItem::Copy { from, to })
}
