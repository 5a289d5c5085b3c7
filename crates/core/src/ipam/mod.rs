//! IPAM: egress addresses for annotated namespaces, one per zone, attached to nodes on a cloud.

mod cloud;
mod error;

pub use cloud::*;
pub use error::{CloudError, Severity};
