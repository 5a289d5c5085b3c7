//! AWS: EC2's Query API, six actions of it, over our own small client.
//!
//! ```text
//! nodes, subnets, locate ---> describe --+
//!                                        +--> client: limiter, credentials, signature, retries --> http
//! assign, take, release ----> change ----+
//! ```
//!
//! A refusal is never classified by its message. Where a code means several things, the interface, its subnet and the
//! holder of the address are looked at.

mod change;
mod client;
mod credentials;
mod describe;
mod ec2;
mod error;
mod http;
mod instances;
mod lazy;
mod limiter;
mod options;
mod probe;
mod settings;
mod sigv4;
#[cfg(test)]
pub(in crate::cloud) mod tests;
mod xml;

use std::net::Ipv4Addr;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use portolan_core::ipam::{CloudError, CloudSubnet, InstanceId, InterfaceId, SubnetId};

use super::{Cloud, NodeReport, Outcomes};
use change::Change;
pub use credentials::CredentialsSource;
pub use ec2::AwsCloud;
pub use error::AwsError;
pub use lazy::LazyAws;
use limiter::Priority;
pub use limiter::Rate;
pub use options::{AwsOptions, CallReport};
pub use probe::{Access, PermissionProbe, ProbedAction};
pub use settings::AwsSettings;

impl Cloud for AwsCloud {
    fn nodes<'a>(&'a self, instances: &'a [InstanceId]) -> BoxFuture<'a, Result<NodeReport, CloudError>> {
        self.describe_nodes(instances).boxed()
    }

    fn subnets<'a>(&'a self, subnets: &'a [SubnetId]) -> BoxFuture<'a, Result<Vec<CloudSubnet>, CloudError>> {
        self.describe_subnets(subnets).boxed()
    }

    fn locate<'a>(
        &'a self,
        address: Ipv4Addr,
        subnet: &'a SubnetId,
    ) -> BoxFuture<'a, Result<Option<InterfaceId>, CloudError>> {
        self.find_holder(address, subnet, Priority::Verify).boxed()
    }

    fn assign<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes> {
        self.change(Change::Assign, interface, addresses).boxed()
    }

    fn take<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes> {
        self.change(Change::Take, interface, addresses).boxed()
    }

    fn release<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes> {
        self.change(Change::Release, interface, addresses).boxed()
    }
}
