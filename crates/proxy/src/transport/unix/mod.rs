//! Unix-domain sockets: streams, sequenced packets and datagrams.

pub mod config;
mod connect;
mod listen;
pub(crate) mod path;
