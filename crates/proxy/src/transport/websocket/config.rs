//! Configuration of WebSocket listeners and clusters.

use crate::config::socket::Bind;
use serde::Deserialize;
use std::net::IpAddr;

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct WsListener {
    pub port: u16,
    #[serde(default, deserialize_with = "crate::config::parse::address")]
    pub address: Option<IpAddr>,
    /// Only requests with this path prefix are accepted.
    #[serde(default, deserialize_with = "crate::config::parse::url_path")]
    pub path: Option<String>,
    #[serde(default, deserialize_with = "crate::config::parse::tokens")]
    pub subprotocols: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct WsCluster {
    #[serde(default)]
    pub port: Option<u16>,
    #[serde(default)]
    pub bind: Bind,
    #[serde(default, deserialize_with = "crate::config::parse::url_path")]
    pub path: Option<String>,
    #[serde(default, deserialize_with = "crate::config::parse::tokens")]
    pub subprotocols: Vec<String>,
}
