//! The kinds of gateway, `egw.acnodal.io/v1`: field names are those of the original.

mod account;
mod claim;
mod egw;
mod endpoint;
mod load_balancer;
mod node_config;
mod parts;
mod service_group;
mod service_prefix;

pub use account::{Account, AccountSpec, AccountStatus, Limits, PendingService};
pub use claim::{ClaimHolder, ClaimPort, GatewayClaim};
pub use egw::{Egw, EgwSpec, EgwStatus, PendingNumber, Space};
pub use endpoint::{Endpoint, EndpointSpec, EndpointStatus};
pub use load_balancer::{LoadBalancer, LoadBalancerSpec, LoadBalancerStatus};
pub use node_config::{NodeBase, NodeConfig, NodeConfigSpec, NodeConfigStatus};
pub use parts::{EndpointPort, GueEndpoint, ServicePort};
pub use service_group::{ServiceGroup, ServiceGroupSpec, ServiceGroupStatus};
pub use service_prefix::{AddressCounts, ServicePrefix, ServicePrefixSpec, ServicePrefixStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::schema::ruled;

/// The definitions of the kinds.
pub fn crds() -> [CustomResourceDefinition; 7] {
    [
        ruled(Egw::crd(), "self.metadata.name == 'egw'", "there is one EGW, and its name is `egw`"),
        ruled(
            Account::crd(),
            "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,57}[a-z0-9])?$')",
            "the name is part of a namespace's: at most 59 lower case letters, digits and dashes",
        ),
        ServicePrefix::crd(),
        ServiceGroup::crd(),
        ruled(
            LoadBalancer::crd(),
            "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",
            "the name is a DNS label: at most 63 lower case letters, digits and dashes",
        ),
        Endpoint::crd(),
        ruled(
            NodeConfig::crd(),
            "self.metadata.name == 'default'",
            "there is one NodeConfig, and its name is `default`",
        ),
    ]
}
