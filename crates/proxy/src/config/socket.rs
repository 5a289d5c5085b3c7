//! Settings that several transports share.

use serde::Deserialize;
use std::net::IpAddr;

/// How message boundaries are kept on a byte stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Framing {
    #[default]
    None,
    /// A big-endian length of two bytes before each message.
    Len16,
    /// A big-endian length of four bytes before each message.
    Len32,
}

/// Where sockets to endpoints are bound. Several addresses give several times the ports.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Bind {
    #[serde(default, rename = "address", deserialize_with = "super::parse::addresses")]
    pub addresses: Vec<IpAddr>,
    #[serde(default)]
    pub port: Option<u16>,
}
