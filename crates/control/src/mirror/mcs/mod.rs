//! Multi-cluster Services: ServiceExports of this cluster and of remotes become ServiceImports here.
//!
//! ```text
//!   ServiceExports, Services, EndpointSlices of a cluster --> Exported, one per cluster
//!   ServiceImports, derived Services, their EndpointSlices --> LocalStores
//!                               |
//!                               v
//!   core::mirror::mcs: what differs, name by name --> Clusterset --> act::imports
//! ```
//!
//! It runs once a RemoteCluster asks for it, and until nothing that it made is left.

mod clusterset;
mod exported;
mod follow;
mod metrics;
mod read;
mod stores;

pub(super) use clusterset::{Clusterset, derived_key};
pub(super) use exported::Exported;
pub(super) use follow::{cluster_id, has_imports, shares};
pub(super) use metrics::ImportMetrics;
pub(super) use read::{ExportedKeys, derived, family_name, import};
pub(super) use stores::LocalStores;
