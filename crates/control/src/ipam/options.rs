//! The flags of ipam. What AWS's own variables say comes with the platform.

use std::sync::Arc;
use std::time::Duration;

use clap::{ArgMatches, FromArgMatches as _};
use portolan_core::select::Selector;
use portolan_drivers::cloud::Cloud;
use portolan_drivers::cloud::aws::{AwsOptions, AwsSettings, LazyAws};

use super::backend::Backend;
use super::settings::{Options, WORKERS};
use super::start;
use crate::runtime::capability::{CloudSource, OptionsError, Platform, Starter};
use crate::runtime::{duration, selector};

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "flags of capabilities begin with their name")]
pub(super) struct IpamArgs {
    /// Nodes that can host addresses, as a label selector
    #[arg(
        long,
        env = "PORTOLAN_IPAM_NODE_SELECTOR",
        value_name = "SELECTOR",
        default_value = WORKERS,
        value_parser = selector::parse,
        help_heading = "Ipam"
    )]
    ipam_node_selector: Selector,

    /// The network plugin that gets the addresses
    #[arg(
        long,
        env = "PORTOLAN_IPAM_BACKEND",
        value_name = "PLUGIN",
        value_enum,
        default_value = "auto",
        help_heading = "Ipam"
    )]
    ipam_backend: Backend,

    /// A node that is not ready for longer has lost its addresses
    #[arg(
        long,
        env = "PORTOLAN_IPAM_NODE_GRACE",
        value_name = "DURATION",
        default_value = "30s",
        value_parser = duration::parse,
        help_heading = "Ipam"
    )]
    ipam_node_grace: Duration,

    /// What becomes of a namespace when one of its zones fails
    #[arg(
        long,
        env = "PORTOLAN_IPAM_PARTIAL",
        value_name = "POLICY",
        value_enum,
        default_value = "refuse",
        help_heading = "Ipam"
    )]
    ipam_partial: Partial,

    /// How often everything is compared with the cloud
    #[arg(
        long,
        env = "PORTOLAN_IPAM_VERIFY_INTERVAL",
        value_name = "DURATION",
        default_value = "1m",
        value_parser = duration::parse,
        help_heading = "Ipam"
    )]
    ipam_verify_interval: Duration,

    /// Tag of the cluster's instances, such as kubernetes.io/cluster/NAME: where there are many, only these are read
    #[arg(long, env = "PORTOLAN_IPAM_CLUSTER_TAG", value_name = "TAG", help_heading = "Ipam")]
    ipam_cluster_tag: Option<String>,
}

/// What becomes of a namespace when one of its zones fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Partial {
    /// It gets no address
    Refuse,
    /// It gets those of the other zones, and the rest later, unless it names its addresses
    Allow,
}

impl IpamArgs {
    fn options(self, cloud: Arc<dyn Cloud>) -> Result<Options, OptionsError> {
        let Self {
            ipam_backend,
            ipam_node_selector,
            ipam_node_grace,
            ipam_partial,
            ipam_verify_interval,
            ipam_cluster_tag: _,
        } = self;
        if ipam_verify_interval < SHORTEST_VERIFY {
            let least = SHORTEST_VERIFY.as_secs();
            return Err(OptionsError(format!(
                "--ipam-verify-interval is {ipam_verify_interval:?}: use {least}s or more, AWS throttles those who ask more often"
            )));
        }
        Ok(Options {
            backend: ipam_backend,
            node_selector: ipam_node_selector,
            node_grace: ipam_node_grace,
            partial: ipam_partial == Partial::Allow,
            verify_interval: ipam_verify_interval,
            ..Options::on(cloud)
        })
    }

    fn cloud(&self, platform: &Platform) -> Arc<dyn Cloud> {
        match &platform.cloud {
            CloudSource::Memory(cloud) => cloud.clone(),
            CloudSource::Aws(settings) => {
                let tag = self.ipam_cluster_tag.clone().filter(|tag| !tag.is_empty());
                Arc::new(LazyAws::new(AwsSettings::clone(settings), AwsOptions { tag, ..AwsOptions::default() }))
            }
        }
    }
}

pub(super) fn configure(matches: &ArgMatches, platform: &Platform) -> Result<Starter, OptionsError> {
    let args = IpamArgs::from_arg_matches(matches).map_err(|cause| OptionsError(cause.to_string()))?;
    let cloud = args.cloud(platform);
    let options = args.options(cloud)?;
    Ok(Box::new(move |ctx, registry, webhooks| {
        start(ctx, registry, options);
        webhooks
    }))
}

const SHORTEST_VERIFY: Duration = Duration::from_secs(10);
