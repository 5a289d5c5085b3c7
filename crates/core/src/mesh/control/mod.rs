//! The mesh's control plane: from VirtualServices, Routes and Targets to what every proxy must hold.
//!
//! ```text
//! VirtualService 1--* Rule *--1 Route 1--* hop *--1 Target *--* Pod     names by the four-step rule
//!       |                                             |
//!    listener, rulelist, rules, routes             cluster              on every proxy of the selector's pods
//! ```

mod allowed;
mod diff;
mod names;
pub mod normal;
mod parts;
mod reason;
mod resolve;
mod selector;
mod shim;
mod show;
pub mod types;
pub mod wire;
mod world;

pub use diff::{Call, Observed, Ownership, Steps, Verb, diff};
pub use names::{Domain, Reference, is_legacy, spec_hash};
pub use parts::Names;
pub use reason::{Class, Note, Reason};
pub use resolve::{Explained, GeneratedObject, Owner, Plan, Resolver, Standing, Touched, Verdict, plan};
pub use selector::{Field, FieldOperator, FieldTest, Selector};
pub use world::{
    Change, Container, CrossNamespace, Flavour, Mark, Object, Pod, ProxyFacts, Service, ServicePort, Settings, Slice,
    SliceEndpoint, Transport, World,
};
