//! Listeners, clusters and sessions with real sockets, programmed over the REST API.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    clippy::cast_possible_truncation,
    reason = "peers and helpers of tests, outside their functions"
)]

mod chains;
mod changes;
mod faults;
mod hostile;
mod http;
mod json_socket;
mod lab;
mod limits;
mod loops;
mod monitoring;
mod names;
mod protection;
mod rates;
mod retry;
mod rules;
mod streams;
mod udp;
mod websocket;
