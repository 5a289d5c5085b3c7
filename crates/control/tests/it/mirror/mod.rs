//! The mirror: two clusters, with sources in the one and an operator in the other.

mod attacks;
mod chaos;
mod crashes;
mod defects;
mod gke;
pub(crate) mod harness;
mod life;
mod mcs;
mod metrics;
mod pair;
mod query;
mod races;
mod remotes;
