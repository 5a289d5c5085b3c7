//! The embedded Kubernetes API server: one machine, one process, the rules of the real one.
//!
//! ```text
//!   kubectl, controllers --TLS--> serve --.
//!   tests, loops (in process) ------------+--> rest: route, options, verbs --> store --> disk
//!                                              |         |                      |
//!                                              auth      kinds, schema, crd,    watches
//!                                                        patch, admission
//! ```
//!
//! It serves `portolan up` and the tests, and never clusters. Its judge is the real kube-apiserver: the differential
//! suite sends both the same requests and compares the answers.

pub mod admission;
pub mod auth;
mod clock;
pub mod crd;
pub mod kinds;
pub mod loops;
mod names;
mod object;
pub mod patch;
pub mod rest;
pub mod running;
pub mod schema;
pub mod serve;
mod server;
pub mod status;
pub mod store;

pub use clock::Clock;
pub use server::ApiServer;
