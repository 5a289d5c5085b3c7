//! The multi-protocol data plane.
//!
//! Protocol code is sans-IO: `handle_*` takes bytes and time, `poll_*` gives back what to send and when to
//! wake. Socket back ends sit around it, one worker per core, and the configuration arrives over the REST API
//! that l7mp's clients speak.

pub mod command;
pub mod config;
pub mod io;
pub mod proto;
pub mod rest;
pub mod transport;
