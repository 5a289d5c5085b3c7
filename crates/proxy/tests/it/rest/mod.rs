//! The REST API over HTTP, on an engine that only remembers: tables of requests and answers, and what they leave behind.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod client;
mod endpoints;
mod engine;
mod faults;
mod guard;
mod life;
mod model;
mod properties;
mod table;
mod term;
mod transactions;
