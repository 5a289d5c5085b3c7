//! The control plane of the mesh: from VirtualServices, Routes and Targets to the configuration of every proxy.
//!
//! ```text
//! VirtualService 1--* Rule *--1 Route 1--* hop *--1 Target *--* Pod     names by the four-step rule
//!       |                                             |
//!    listener, rulelist, rules, routes             cluster              on every proxy of the selector's pods
//! ```

mod config_keys;
mod diff;
mod endpoint_ban;
mod l7mp_quirks;
mod names;
pub mod normalize;
mod reason;
mod resolve;
mod selector;
mod to_value;
pub mod types;
pub mod wire;
mod world;

pub use config_keys::ConfigKeys;
pub use diff::{CallMethod, CallPlan, ObservedConfig, Ownership, ProxyCall, diff};
pub use names::{ClusterDomain, Reference, is_legacy, spec_hash};
pub use reason::{Diagnostic, Reason, ReasonClass};
pub use resolve::{
    Affected, GeneratedObject, ObjectOrigin, ObjectStatus, Owner, Plan, ResolvedReference, Resolver, origin, plan,
};
pub use selector::{Field, FieldOperator, FieldTest, Selector};
pub use world::{
    Change, Container, ContainerPort, CrossNamespace, EndpointSlice, ListenerPort, MeshObject, Pod,
    ProxyImplementation, ProxyInfo, ProxyRole, Service, ServicePort, Settings, SliceEndpoint, SlicePort, Transport,
    World,
};
