//! HTTP/1.1 listeners: a session per request, and requests to the API.

mod api;
pub mod config;
mod listen;
pub(crate) mod metadata;
pub(crate) mod response;
