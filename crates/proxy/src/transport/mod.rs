//! One folder per transport: its configuration, how its listeners accept clients, and how its clusters connect.
//!
//! ```text
//!   io::accept --> <transport>::listen --> session <-- <transport>::connect <-- io::connect
//! ```
//! A transport extends [`Worker`](crate::io) with methods; `io` calls them by the spec of a listener or cluster.

pub mod http;
pub mod json_socket;
pub mod tcp;
pub mod udp;
pub mod unix;
pub mod websocket;
