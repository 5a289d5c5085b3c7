//! The way out: which egress address and which gateway node each policy gets.
//!
//! ```text
//! Gateway 1--* address (pairs of IPv4 and IPv6), each on one Node at a time
//! Gateway 1--* Policy  *--1 address, or the own address of a Node
//! ```
//! [`plan`] decides all of it at once; [`Planner`] keeps the decision and takes changes one by one. What was recorded
//! stays: an address moves only if its node can no longer have it.

mod absorb;
mod choose;
mod explain;
mod overlap;
mod pairs;
mod plan;
mod planner;
mod policies;
mod record;
mod settle;
mod state;
mod summary;
mod types;

pub use explain::{ExplainStep, ExplainTopic, explain, explain_address};
pub use overlap::{CandidatePolicy, EffectivePolicies, Winner, is_never_served, resolve_overlaps};
pub use pairs::EipPairs;
pub use plan::plan;
pub use planner::{Affected, Change, Planner};
pub use summary::GatewayUsage;
pub use types::*;
