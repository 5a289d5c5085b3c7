//! The embedded Kubernetes API server: one machine, one process, the behaviour of kube-apiserver.
//!
//! ```text
//!   kubectl, controllers --TLS--> serve --.
//!   tests, controllers (in process) ------+--> rest: route, options, verbs --> store --> disk
//!                                              |         |                      |
//!                                              auth      kinds, schema, crd,    watches
//!                                                        patch, admission
//! ```
//!
//! It serves `portolan up` and the tests, and never clusters. The real kube-apiserver is the reference: the differential
//! suite sends the same requests to both and compares the responses.

pub mod admission;
pub mod auth;
mod clock;
pub mod controllers;
pub mod crd;
mod definitions;
mod json;
pub mod kinds;
mod names;
mod object;
pub mod patch;
pub mod protobuf;
pub mod rest;
pub mod running;
pub mod schema;
pub mod serve;
mod server;
mod state;
pub mod status;
pub mod store;

pub use clock::Clock;
pub use server::ApiServer;
