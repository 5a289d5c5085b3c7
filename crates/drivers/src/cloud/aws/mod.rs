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
mod error;
mod http;
mod instances;
mod limiter;
mod probe;
mod settings;
mod sigv4;
#[cfg(test)]
pub(in crate::cloud) mod tests;
mod xml;

use std::net::Ipv4Addr;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use portolan_core::ipam::{CloudError, CloudSubnet, InstanceId, InterfaceId, SubnetId};

use super::{Cloud, NodeReport, Outcomes};
use change::Change;
use client::Client;
pub use credentials::CredentialsSource;
pub use error::AwsError;
use limiter::Priority;
pub use limiter::Rate;
pub use probe::{Access, PermissionProbe};
pub use settings::AwsSettings;

/// How EC2 is used.
#[derive(Debug, Clone)]
pub struct AwsOptions {
    /// Only instances with this tag are read when many are asked for, such as `kubernetes.io/cluster/shop`.
    pub tag: Option<String>,
    /// Rate of Describe calls.
    pub reads: Rate,
    /// Rate of calls that change something.
    pub writes: Rate,
    /// A call that takes longer has failed, and may have happened.
    pub call_timeout: Duration,
    /// Instances or interfaces in one answer, 5 to 1000.
    pub page_size: u16,
}

impl Default for AwsOptions {
    /// Half of what EC2 grants an account, which others use, too.
    fn default() -> Self {
        Self {
            tag: None,
            reads: Rate { burst: 50.0, per_second: 10.0 },
            writes: Rate { burst: 25.0, per_second: 4.0 },
            call_timeout: Duration::from_secs(20),
            page_size: 1000,
        }
    }
}

/// One request to EC2, as metrics count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallReport {
    /// The action, such as `DescribeInstances`.
    pub action: &'static str,
    /// `Ok`, `DryRun`, or the reason of a [`CloudError`].
    pub result: &'static str,
    /// How long it took.
    pub elapsed: Duration,
}

/// EC2 in one region.
pub struct AwsCloud {
    client: Client,
    options: AwsOptions,
    memory: describe::Memory,
}

impl AwsCloud {
    /// Finds the region. Credentials are fetched with the first call.
    pub async fn new(settings: AwsSettings, options: AwsOptions) -> Result<Self, AwsError> {
        let client = Client::new(settings, &options).await?;
        Ok(Self { client, options, memory: describe::Memory::default() })
    }

    /// Reports every request.
    #[must_use]
    pub fn reporting(mut self, report: impl Fn(CallReport) + Send + Sync + 'static) -> Self {
        self.client.report = Box::new(report);
        self
    }

    /// The region.
    pub fn region(&self) -> &str {
        self.client.region()
    }
}

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
