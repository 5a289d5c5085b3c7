//! Multi-tenant external load balancers: keys and ids, public addresses, ports, and tunnels to the clients' nodes.
//!
//! ```text
//! EGW --> Account --> ServiceGroup --> LoadBalancer --> Endpoint
//!                      '--> ServicePrefix --> address
//!
//! World --plan--> Plan: what each object should be, which addresses are claimed, which Envoys run
//! ```

pub mod addresses;
mod deny;
mod endpoints;
pub mod gue;
pub mod keys;
mod plan;
pub mod ports;
pub mod prefix;
mod problem;
mod quarantine;
pub mod reserve;
mod settle;
#[cfg(test)]
mod tests;
mod types;
pub mod unit;
mod verdict;

pub use deny::{Denied, denied};
pub use endpoints::Endpoints;
pub use plan::{
    AccountPlan, Completion, EgwPlan, EndpointPlan, EndpointPlans, FinalizerChange, GroupPlan, LoadBalancerPlan,
    NamespaceChange, Plan, PrefixPlan, plan,
};
pub use problem::Problem;
pub use quarantine::{Quarantine, Space};
pub use settle::settle;
pub use types::{
    Account, Egw, Endpoint, EndpointSpec, Identity, Limits, LoadBalancer, Namespace, NodeConfig, ObjectName,
    PROVIDER_NAMESPACE, ServiceGroup, ServicePrefix, Settings, Tunnel, TunnelEndpoint, World, account_of, namespace_of,
};
pub use verdict::{ConditionKind, Verdict, Verdicts};
