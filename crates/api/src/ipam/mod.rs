//! Kinds of ipam: OpenShift's, which we never create or delete, and the cloud section of AddressClaims.

mod cloud_claim;
mod definitions;
mod host_subnet;
mod net_namespace;

pub use cloud_claim::*;
pub(crate) use definitions::{host_subnet, net_namespace};
pub use host_subnet::HostSubnet;
pub use net_namespace::NetNamespace;
