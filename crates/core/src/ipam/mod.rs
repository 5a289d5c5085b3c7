//! IPAM: egress addresses for annotated namespaces, one per zone, attached to nodes on a cloud.

mod cloud;

pub use cloud::*;
