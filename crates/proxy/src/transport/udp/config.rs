//! Configuration of UDP listeners and clusters.

use crate::config::reader::SpecReader;
use crate::config::refusal::Refusal;
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
    pub(crate) fn read(read: &SpecReader<'_>) -> Result<Self, Refusal> {
        let mut udp: Self = read.with_port()?;
        udp.apply_mode(None)?;
        Ok(udp)
    }

    /// Uses a mode unless the spec has one; a singleton needs a complete peer address.
    pub(crate) fn apply_mode(&mut self, mode: Option<UdpMode>) -> Result<(), Refusal> {
        self.options.mode = self.options.mode.or(mode);
        if self.mode() == UdpMode::Server || self.names_peer() {
            return Ok(());
        }
        Err(Refusal::bad(
            "Singleton mode requested but either connect.address or connect.port is not defined (or neither): \
             no remote to connect to",
        ))
    }

    /// The effective mode: a complete peer address makes a singleton.
    pub fn mode(&self) -> UdpMode {
        self.options.mode.unwrap_or(if self.names_peer() { UdpMode::Singleton } else { UdpMode::Server })
    }

    const fn names_peer(&self) -> bool {
        self.connect.address.is_some() && self.connect.port.is_some()
    }
}
