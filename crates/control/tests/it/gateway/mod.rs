//! Gateway: accounts, load balancers and endpoints on an API server, Envoys in memory.

mod addresses;
mod admission;
mod attacks;
mod cleanup;
mod defects;
pub(crate) mod deployments;
pub(crate) mod harness;
mod keys;
mod life;
mod queries;
mod races;
mod seed;
