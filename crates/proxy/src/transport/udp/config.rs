//! Configuration of UDP listeners and clusters.

use crate::config::socket::Bind;
use serde::Deserialize;
use std::net::IpAddr;

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct UdpListener {
    pub port: u16,
    #[serde(default, deserialize_with = "crate::config::parse::address")]
    pub address: Option<IpAddr>,
    #[serde(default)]
    pub connect: Peer,
    #[serde(default)]
    pub options: UdpOptions,
}

/// The one peer that a UDP listener talks to, as far as it is named.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Peer {
    #[serde(default, deserialize_with = "crate::config::parse::address")]
    pub address: Option<IpAddr>,
    #[serde(default)]
    pub port: Option<u16>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct UdpOptions {
    #[serde(default)]
    pub mode: Option<UdpMode>,
}

/// Whether a UDP listener makes a session per peer, or has the one session with its one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UdpMode {
    Server,
    Singleton,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct UdpCluster {
    #[serde(default)]
    pub port: Option<u16>,
    #[serde(default)]
    pub bind: Bind,
}

impl UdpListener {
    /// The effective mode: a complete peer address makes a singleton.
    pub fn mode(&self) -> UdpMode {
        let named = self.connect.address.is_some() && self.connect.port.is_some();
        self.options.mode.unwrap_or(if named { UdpMode::Singleton } else { UdpMode::Server })
    }
}
