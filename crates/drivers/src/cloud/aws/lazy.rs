//! EC2 that is looked for when it is needed: on a cluster that runs elsewhere nobody asks for a region.

use std::fmt;
use std::net::Ipv4Addr;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use portolan_core::ipam::{CloudError, CloudSubnet, InstanceId, InterfaceId, SubnetId};
use tokio::sync::OnceCell;

use super::ec2::AwsCloud;
use super::error::AwsError;
use super::options::AwsOptions;
use super::settings::AwsSettings;
use crate::cloud::{Cloud, NodeReport, Outcomes, each};

/// EC2 in the region that the settings or the machine name, found with the first call.
pub struct LazyAws {
    settings: AwsSettings,
    options: AwsOptions,
    found: OnceCell<AwsCloud>,
}

impl fmt::Debug for LazyAws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyAws").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl LazyAws {
    /// Nothing is looked for yet.
    pub fn new(settings: AwsSettings, options: AwsOptions) -> Self {
        Self { settings, options, found: OnceCell::new() }
    }

    /// EC2, once it was found. A failure is not kept: the next call looks again.
    pub async fn get(&self) -> Result<&AwsCloud, AwsError> {
        self.found.get_or_try_init(|| AwsCloud::new(self.settings.clone(), self.options.clone())).await
    }
}

impl Cloud for LazyAws {
    fn nodes<'a>(&'a self, instances: &'a [InstanceId]) -> BoxFuture<'a, Result<NodeReport, CloudError>> {
        async { self.get().await?.nodes(instances).await }.boxed()
    }

    fn subnets<'a>(&'a self, subnets: &'a [SubnetId]) -> BoxFuture<'a, Result<Vec<CloudSubnet>, CloudError>> {
        async { self.get().await?.subnets(subnets).await }.boxed()
    }

    fn locate<'a>(
        &'a self,
        address: Ipv4Addr,
        subnet: &'a SubnetId,
    ) -> BoxFuture<'a, Result<Option<InterfaceId>, CloudError>> {
        async move { self.get().await?.locate(address, subnet).await }.boxed()
    }

    fn assign<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes> {
        async {
            match self.get().await {
                Ok(aws) => aws.assign(interface, addresses).await,
                Err(error) => each(addresses, &Err(error.into())),
            }
        }
        .boxed()
    }

    fn take<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes> {
        async {
            match self.get().await {
                Ok(aws) => aws.take(interface, addresses).await,
                Err(error) => each(addresses, &Err(error.into())),
            }
        }
        .boxed()
    }

    fn release<'a>(&'a self, interface: &'a InterfaceId, addresses: &'a [Ipv4Addr]) -> BoxFuture<'a, Outcomes> {
        async {
            match self.get().await {
                Ok(aws) => aws.release(interface, addresses).await,
                Err(error) => each(addresses, &Err(error.into())),
            }
        }
        .boxed()
    }
}
