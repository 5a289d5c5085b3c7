//! The operator and the node agent: capability folders on one runtime.
//!
//! A capability is a folder with the same files as its siblings around a pure plan in `portolan_core`, and one line in
//! the table [`CAPABILITIES`]. The operator, the queries ([`query`]), the [`doctor`], the [`cleanup`], the generated
//! files in `deploy` ([`manifests`]) and the scenarios iterate over such a table. Folders never import one another; what
//! two need lives in [`runtime`].
//! `examples/tickets` is the smallest complete capability: read it first.

mod applied;
mod capability;
pub mod cleanup;
pub mod doctor;
pub mod egress;
pub mod gateway;
pub mod gateway_client;
pub mod install;
pub mod ipam;
pub mod manifests;
pub mod mesh;
pub mod mirror;
pub mod query;
pub mod runtime;

pub use applied::Apply;
pub use capability::{CAPABILITIES, start};
