//! Pure domain logic, one folder per capability.
//!
//! A planner here is a total function over ordered maps: equal input gives an equal plan, byte for byte, and
//! what cannot be met is data in the plan. Nothing in this crate knows a clock, a socket, Kubernetes or
//! unseeded randomness; time and seeds are arguments. Clippy's bans and the layer test keep it that way.
//!
//! Each capability brings its folder with `types.rs` and `plan.rs`; what two of them need (address pools,
//! selection, hashing) moves up beside them.
#![warn(missing_docs)]

pub mod egress;
pub mod gateway;
pub mod gateway_client;
pub mod hash;
pub mod ipam;
pub mod mesh;
pub mod mirror;
pub mod net;
pub mod pick;
pub mod select;
