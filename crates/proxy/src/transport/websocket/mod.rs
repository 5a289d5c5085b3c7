//! WebSocket: one message of the session per WebSocket message.

pub mod config;
mod connect;
mod frames;
mod listen;
