//! The runtime against a real API server, with faults in between.

mod capability;
mod chaos;
mod chart;
mod crashes;
mod doctor;
mod egress;
mod examples;
mod gateway;
mod gateway_client;
mod gateway_rest;
mod harness;
mod ipam;
mod leadership;
mod mesh;
mod mirror;
mod permissions;
mod scenarios;
mod steady;
#[path = "../../examples/tickets/capability/mod.rs"]
mod tickets;
mod watches;
mod webhooks;

/// As in the program; some hundred control planes in one process allocate a lot.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
