//! JSONSocket: a JSON header before the data, over any other transport.

mod close_notice;
pub mod config;
mod connect;
mod listen;
