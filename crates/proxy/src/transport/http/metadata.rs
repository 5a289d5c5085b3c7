//! What rules see of an HTTP request.

use crate::proto::http1::Head;
use serde_json::{Map, Value, json};
use std::net::SocketAddr;

/// The metadata of a session that began with this request.
pub(crate) fn http_metadata(head: &Head, local: SocketAddr, peer: Option<SocketAddr>) -> Value {
    let host = head.header("host").unwrap_or_default();
    let (path, query) = head.target().split_once('?').unwrap_or((head.target(), ""));
    let names = head.headers.iter().map(|(name, _)| name.clone());
    let headers: Map<String, Value> =
        names.map(|name| (name.clone(), Value::String(head.header(&name).unwrap_or_default()))).collect();
    let peer_ip = peer.map(|peer| peer.ip().to_string()).unwrap_or_default();
    json!({
        "IP": { "src_addr": peer_ip, "dst_addr": local.ip().to_string() },
        "TCP": { "src_port": peer.map_or(0, |peer| peer.port()), "dst_port": local.port() },
        "HTTP": {
            "version": head.version(), "method": head.method(),
            "url": {
                "url": head.target(), "href": format!("http://{host}{}", head.target()), "protocol": "http:",
                "host": host, "port": local.port(), "path": head.target(), "query": query, "pathname": path,
            },
            "headers": headers,
        },
    })
}
