//! Sockets and clocks around the state machines of `proto`.
//!
//! ```text
//!   DataPlane --ring--> Worker (one per core): epoll
//!                         port ---- udp ----> fast path: flow table, gather, send
//!                           |                     |
//!                         pending (WS, HTTP)   relay <--> stream, link
//!                           |                     |
//!                         setup --> connect --> life (proto::session)
//! ```
//! A worker shares nothing with the others on the packet path. A session belongs to the worker that its client's
//! packets arrive at; only Sync groups cross over, batch by batch.
#![expect(unsafe_code, reason = "batched socket calls have no safe form; every block carries its argument")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the kernel's integer types; slots, batches and lengths are far below their bounds"
)]

mod access_log;
mod cache_padded;
mod circuit;
mod close_notice;
mod cluster;
mod commands;
mod connect;
pub mod engine;
mod exchange;
pub mod flow;
mod health;
mod lifecycle;
mod link;
mod log;
mod loop_detection;
mod naming;
mod outbox;
mod pending;
mod port;
mod rate;
mod relay;
mod resolve;
pub mod ring;
mod session;
mod setup;
mod shared;
pub mod slab;
mod stats;
mod stdio;
mod stream;
mod sync;
pub mod sys;
mod udp;
pub mod wheel;
mod worker;

pub use engine::{DataPlane, Options};
pub use resolve::Lookup;
