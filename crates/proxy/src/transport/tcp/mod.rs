//! TCP: a byte stream, or messages with a length prefix.

pub mod config;
mod connect;
mod listen;
