//! Mirror: the Services of remote clusters, as Services and endpoints here.
//!
//! ```text
//! Remote 1--* Source (a Service that qualifies) --> mirror (a Service here) 1--* EndpointSlice
//!        1--* Node   ------------------------------------ endpoints ------------^
//!                     hand-labelled Service (a user's) ----------------------- 1--*
//! ```
//! Everything is keyed to the local name of a Service. [`Planner`] keeps a [`World`], and decides about one name from
//! what is known on both sides; [`plan`] decides about all of them. A decision says what differs, so that a world
//! that is as it should be needs no write.

mod addresses;
mod budget;
mod damping;
mod decide;
mod desired;
mod endpoints;
mod index;
pub mod mcs;
mod names;
mod nodes;
mod packing;
mod plan;
mod planner;
mod qualify;
mod reason;
mod refused;
mod rules;
#[cfg(test)]
mod tests;
mod types;

pub use addresses::AddressRefused;
pub use budget::{HeldDeletions, RecentDeletions, held};
pub use damping::FlapDamping;
pub use decide::{Action, Decision, DesiredSlice, Row, SliceAction};
pub use desired::DesiredMirror;
pub use names::short_hash;
pub use plan::{Plan, plan};
pub use planner::{Change, Planner};
pub use qualify::Disqualified;
pub use reason::{Reason, Unmet};
pub use rules::*;
pub use types::*;
