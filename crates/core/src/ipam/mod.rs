//! IPAM: egress addresses for annotated namespaces, one per zone, attached to nodes on a cloud.
//!
//! ```text
//! Namespace 1--* Claim (address) *--1 Node 1--1 HostSubnet
//!           1--1 NetNamespace          1--1 instance, interface *--1 subnet
//! ```
//! [`plan`] compares the journal of claims with what the cloud and the objects show, and returns the steps that are
//! due. A step is due only when the record shows that the steps before it happened, so each is safe to execute alone,
//! to repeat, and to lose in a crash. A call to the cloud is due only after the journal names its target.

mod action;
mod cloud;
mod decide;
mod draft;
mod error;
mod index;
mod journal;
pub mod ovn;
mod plan;
mod publish;
mod reason;
mod request;
mod room;
mod step;
#[cfg(test)]
mod tests;
mod types;
mod wish;

pub use action::*;
pub use cloud::*;
pub use error::{CloudError, Severity};
pub use journal::*;
pub use plan::{plan, refused};
pub use reason::{Event, Reason, Unmet};
pub use request::AddressList;
pub use types::*;
