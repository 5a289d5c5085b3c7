//! What every capability shares, and only that.
//!
//! ```text
//!   API server --list, watch--> watch ---> Store ---settled?---> reconcile: observe, validate, plan, act, status
//!        ^                                   ^                                                  |
//!        |                                   '--- wrote, deleted, invalidate <--- due, write <--'
//!        '------- fence <----------------------------------------------------------'
//!                   ^
//!                 lease (renewed in the background; writes end before it can be taken)
//! ```
//!
//! - [`watch`] runs one watch per kind and process and keeps a [`Store`](store::Store) for each subscriber, [`pack`]ed
//!   where there are very many objects; [`reconcile`] runs a capability's loop on settled stores.
//! - [`due`] paces and retries writes object by object; [`write`](mod@write) sends only what differs; [`events`] leave by
//!   a bounded queue.
//! - [`lease`] elects one writer, [`fence`] holds every other replica's writes back.
//! - [`reachability`] makes the client, which reports outages of the API server.
//! - [`admin`], [`webhook`], [`ready`] and [`tasks`] make it a process, [`app`] joins them; an [`authority`] signs
//!   certificates.
//! - [`capability`] describes a capability as a value; [`query`], [`doctor`] and [`overlay`] are for what users
//!   ask of one.

pub mod admin;
pub mod app;
pub mod authority;
pub mod backoff;
pub mod capability;
pub mod clock;
pub mod conditions;
mod decode;
pub mod doctor;
pub mod due;
pub mod duration;
pub mod endpoint;
pub mod error;
pub mod events;
pub mod fence;
pub mod gauges;
mod key;
mod kind;
pub mod lease;
pub mod metrics;
pub mod overlay;
pub mod pack;
pub mod problem;
pub mod query;
pub mod rate;
pub mod reachability;
pub mod ready;
pub mod reconcile;
pub mod schedule;
pub mod selector;
mod shared_watch;
pub mod store;
pub mod switch;
pub mod tasks;
pub mod watch;
pub mod webhook;
pub mod write;

pub use error::{Class, Error};
