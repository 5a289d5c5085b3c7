//! The runtime against a real API server, with faults in between.

mod allocation;
mod crashes;
mod harness;
mod leadership;
mod steady;
#[path = "../../examples/tickets/capability/mod.rs"]
mod tickets;
mod watches;
mod webhooks;
