//! Configuration of TCP listeners and clusters.

use crate::config::socket::{Bind, Framing};
use serde::Deserialize;
use std::net::IpAddr;

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TcpListener {
    pub port: u16,
    #[serde(default, deserialize_with = "crate::config::parse::address")]
    pub address: Option<IpAddr>,
    #[serde(default)]
    pub framing: Framing,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct TcpCluster {
    #[serde(default)]
    pub port: Option<u16>,
    #[serde(default)]
    pub bind: Bind,
    #[serde(default)]
    pub framing: Framing,
}
