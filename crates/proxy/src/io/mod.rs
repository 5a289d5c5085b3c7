//! Sockets and clocks around the state machines of `proto`.
//!
//! ```text
//!   DataPlane --commands--> Worker (one per core): epoll
//!                             accept --> transport::*::listen --> setup --> session
//!                             udp_path: flow table, batches        |
//!                             stream, relay <--------------------> connect --> transport::*::connect
//! ```
//! [`worker::Worker`] is made of parts with methods of their own: `table` (sessions), `ports`, `timers`, `udp_path`,
//! `group_messages`, `outbox`, `rules`. A worker shares nothing with the others on the packet path. A session belongs to
//! the worker that its client's packets arrive at; only messages of Sync groups go to other workers, in batches.
#![expect(unsafe_code, reason = "batched socket calls have no safe form; every block carries its argument")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the kernel's integer types; slots, batches and lengths are far below their bounds"
)]

pub(crate) mod accept;
mod access_log;
mod address_text;
mod cache_padded;
pub(crate) mod circuit;
mod cluster;
pub(crate) mod command;
mod commands;
pub(crate) mod connect;
pub mod engine;
pub mod flow;
mod group_messages;
mod health;
pub(crate) mod incoming;
mod lifecycle;
pub(crate) mod link;
mod listing;
mod log;
pub(crate) mod loop_detection;
mod naming;
mod outbox;
pub(crate) mod pending;
pub(crate) mod port;
mod ports;
mod rate;
mod relay;
mod resolve;
pub mod ring;
mod rules;
pub(crate) mod session;
mod session_filter;
mod setup;
mod shared;
pub mod slab;
mod splice;
pub(crate) mod stats;
mod stdio;
mod stream;
mod sync;
pub mod sys;
mod table;
pub(crate) mod timers;
pub(crate) mod token;
pub(crate) mod udp_path;
mod virtual_cluster;
pub mod wheel;
pub(crate) mod worker;

pub use engine::{DataPlane, Options};
pub use resolve::Lookup;
