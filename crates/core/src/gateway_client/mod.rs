//! Gateway client: Services of a tenant's cluster that a provider's gateway is to serve.
//!
//! ```text
//!   Service 1--1 load balancer at the gateway 1--* node 1--* endpoint
//!      1--* slice --endpoints, by node--^
//!
//!   World: Services, slices, nodes, what the gateway said --decide--> Decision: the next call, finalizer, status
//! ```
//! One Service is decided at a time, and one call of it is made at a time. What is not known is read first, so that a
//! lost answer or a restart repeats nothing.

mod decide;
mod endpoints;
mod names;
mod problem;
#[cfg(test)]
mod tests;
mod types;

pub use decide::{AddressShown, Announced, Call, Decision, FinalizerChange, Shown, decide};
pub use endpoints::{Gathered, gather};
pub use names::{ClusterKey, LbName};
pub use problem::{Refusal, Unhonoured};
pub use types::{
    Endpoint, Limits, NodeEndpoints, Port, Protocol, Remote, Requested, Seen, Service, ServiceName, Slice,
    SliceEndpoint, SlicePort, Standing, TargetPort, World,
};
