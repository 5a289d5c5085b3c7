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
mod defects;
mod details;
mod examples;
mod faults;
mod foreign;
mod host_mapping;
mod hostile;
mod http;
mod json_socket;
mod lab;
mod limits;
mod load;
mod loops;
mod monitoring;
mod names;
mod pressure;
mod privileges;
mod process;
mod program;
mod protection;
mod protocols;
mod rates;
mod relay;
mod retries;
mod retry;
mod rules;
mod scarcity;
mod sessions;
mod streams;
mod udp;
mod websocket;
