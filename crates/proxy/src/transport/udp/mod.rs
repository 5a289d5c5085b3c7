//! UDP: a session per flow, with a fast path for sessions between two UDP sockets.

pub mod config;
mod connect;
mod listen;
