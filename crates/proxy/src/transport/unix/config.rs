//! Configuration of Unix-domain listeners and clusters.

use crate::config::options::Admin;
use crate::config::reader::{SpecReader, inside};
use crate::config::refusal::Refusal;
use crate::config::socket::Framing;
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct UdsListener {
    pub filename: PathBuf,
    #[serde(default, rename = "type")]
    pub kind: UdsType,
    /// Permissions of the socket file.
    #[serde(default, deserialize_with = "crate::config::parse::file_mode")]
    pub mode: Option<u32>,
    #[serde(default)]
    pub framing: Framing,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UdsType {
    #[default]
    Stream,
    Seqpacket,
    Datagram,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct UdsCluster {
    /// Used where the endpoint names no path.
    #[serde(default)]
    pub filename: Option<PathBuf>,
    #[serde(default, rename = "type")]
    pub kind: UdsType,
    #[serde(default)]
    pub framing: Framing,
}

impl UdsListener {
    pub(crate) fn read(read: &SpecReader<'_>, admin: &Admin) -> Result<Self, Refusal> {
        read.requires("filename")?;
        let uds: Self = read.all()?;
        inside(&uds.filename, &admin.uds_dirs, "listener", "filename", "admin.uds_dirs")?;
        Ok(uds)
    }
}

impl UdsCluster {
    pub(crate) fn read(read: &SpecReader<'_>, admin: &Admin) -> Result<Self, Refusal> {
        let uds: Self = read.all()?;
        if let Some(filename) = &uds.filename {
            inside(filename, &admin.uds_dirs, "cluster", "filename", "admin.uds_dirs")?;
        }
        Ok(uds)
    }
}
