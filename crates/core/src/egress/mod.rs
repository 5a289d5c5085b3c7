//! Egress: which egress address and which gateway node each policy gets.
//!
//! ```text
//! Gateway 1--* address (pairs of IPv4 and IPv6), each on one Node at a time
//! Gateway 1--* Policy  *--1 address, or the own address of a Node
//! ```
//! [`plan`] decides a whole world; [`Planner`] keeps the decisions and applies changes one by one. What is recorded
//! stays: an address moves only if its node can no longer hold it.

mod allocation_mode;
mod explain;
mod load;
mod overlap;
mod pairs;
mod placement;
mod plan;
mod planner;
mod policies;
mod record;
mod settle;
mod state;
mod summary;
mod types;

pub use allocation_mode::AllocationMode;
pub use explain::{ExplainStep, ExplainTopic, explain, explain_address};
pub use overlap::{CandidatePolicy, EffectivePolicies, Winner, is_never_served, resolve_overlaps};
pub use pairs::EipPairs;
pub use plan::plan;
pub use planner::{Affected, Change, Planner};
pub use summary::GatewayUsage;
pub use types::*;
