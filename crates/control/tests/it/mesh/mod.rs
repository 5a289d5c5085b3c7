//! The mesh with proxies that are processes of their own, each pod on a loopback address of its own.

mod admission;
mod answers;
mod events;
mod examples;
pub(crate) mod harness;
mod kinds;
mod lab;
mod memory;
mod refusals;
mod traffic;
