//! Kinds of ipam: OpenShift's, which we never create or delete, and the cloud section of AddressClaims.

mod cloud_claim;
mod cloud_private_ip_config;
mod definitions;
mod egress_ip;
mod host_subnet;
mod net_namespace;
mod network_config;

pub use cloud_claim::*;
pub use cloud_private_ip_config::*;
pub(crate) use definitions::{cloud_private_ip_config, egress_ip, host_subnet, net_namespace};
pub use egress_ip::*;
pub use host_subnet::HostSubnet;
pub use net_namespace::NetNamespace;
pub use network_config::*;
