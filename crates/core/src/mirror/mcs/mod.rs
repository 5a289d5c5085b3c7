//! Multi-cluster Services (MCS API v1beta1, KEP-1645): what several clusters export under one name, imported here.
//!
//! ```text
//! cluster 1--* ServiceExport --> Service 1--* EndpointSlice
//!                   |                              |
//!                   +--> ServiceImport 1--* EndpointSlice (per exporting cluster)
//!                           1--0..1 derived Service ---^   (none for headless Services)
//! ```
//! Everything is keyed to namespace and name, which are the same in all clusters. An import is a function of all
//! exports of its name, so every cluster comes to the same one by itself: the oldest export decides, ports are united.
//! A decision says what differs, so that clusters that agree need no write.

mod condition;
mod conflicts;
mod decide;
mod decision;
mod derived;
mod exporters;
mod merge;
mod planner;
mod slices;
mod status;
#[cfg(test)]
mod tests;
mod types;

pub use condition::{Condition, ExportStatus};
pub use conflicts::{Conflict, ConflictReason};
pub use decision::{Action, Decision, DesiredImport, NotImported, Outcome};
pub use derived::{DesiredDerived, derived_name};
pub use exporters::{Excluded, ExcludedExport};
pub use planner::{Plan, Planner, plan};
pub use slices::{DesiredImportSlice, ImportSliceAction, SliceOwner};
pub use status::ImportStatus;
pub use types::*;
