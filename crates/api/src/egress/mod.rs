//! `egressgateway.spidernet.io/v1beta1`: egress addresses that float over a set of gateway nodes.

mod cluster_info;
mod gateway;
mod policy;
mod slice;
mod tunnel;

pub use cluster_info::*;
pub use gateway::*;
pub use policy::*;
pub use slice::*;
pub use tunnel::*;
