//! What every capability shares, and only that.
//!
//! ```text
//!   API server --list, watch--> watch ---> Store ---settled?---> turn: observe, validate, plan, act, status
//!        ^                                   ^                                                  |
//!        |                                   '--- wrote, deleted, uncertain <--- write <--------'
//!        '------- fence <----------------------------------------------------------'
//!                   ^
//!                 lease (renewed in the background; writes end before it can be taken)
//! ```
//!
//! - [`watch`] keeps a [`Store`](store::Store) per kind, [`pack`]ed where there are very many objects; [`turn`] runs a capability's loop on settled stores.
//! - [`write`] and [`events`] speak only when something differs; [`allocate`] changes one object under optimistic lock.
//! - [`lease`] elects one writer, [`fence`] holds every other replica's writes back.
//! - [`queue`] orders keyed work; [`admin`], [`webhook`], [`ready`] and [`tasks`] make it a process, [`app`] joins them.
//! - [`capability`] describes a capability as a value; [`query`] and [`overlay`] are for what users ask of one.

pub mod admin;
pub mod allocate;
pub mod app;
pub mod backoff;
pub mod capability;
pub mod conditions;
mod decode;
pub mod endpoint;
pub mod error;
pub mod events;
pub mod fence;
pub mod lean;
pub mod lease;
pub mod metrics;
pub mod overlay;
pub mod pack;
pub mod query;
pub mod queue;
pub mod ready;
pub mod store;
pub mod tasks;
pub mod turn;
pub mod watch;
pub mod webhook;
pub mod write;

pub use error::{Class, Error};
