//! Configuration of HTTP listeners.

use serde::Deserialize;
use std::net::IpAddr;

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct HttpListener {
    pub port: u16,
    #[serde(default, deserialize_with = "crate::config::parse::address")]
    pub address: Option<IpAddr>,
    #[serde(default, deserialize_with = "crate::config::parse::url_path")]
    pub path: Option<String>,
}
