//! Mirror: the Services of remote clusters, kept here; and the kinds of the Multi-Cluster Services API.

mod remote_cluster;
mod service_export;
mod service_import;

pub use remote_cluster::*;
pub use service_export::*;
pub use service_import::*;
