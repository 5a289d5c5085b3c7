//! The mesh with proxies that are processes of their own, each pod on a loopback address of its own.

mod admission;
mod away;
mod cleanup;
mod events;
mod examples;
pub(crate) mod harness;
mod isolation;
mod kinds;
mod l7mp;
mod lab;
mod memory;
mod pods;
mod query;
mod refusals;
mod relay;
mod replicas;
mod scale;
mod secure;
mod shipped;
mod stand_in;
mod traffic;
