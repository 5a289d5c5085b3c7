//! The flags of gateway.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgMatches, FromArgMatches as _};
use ipnet::{IpNet, Ipv4Net};
use portolan_core::gateway::Limits;
use portolan_core::net::{AddressSet, Range};
use portolan_drivers::envoy::Proxies;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tracing::error;

use super::rest::{self, RestArgs};
use super::runtime::EnvoyArgs;
use super::settings::Options;
use super::{Cache, start, webhooks};
use crate::runtime::app::Ctx;
use crate::runtime::capability::{OptionsError, Platform, Starter};
use crate::runtime::duration;

const LOOPBACK: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8));

#[derive(Debug, clap::Args)]
pub(super) struct GatewayArgs {
    #[command(flatten)]
    envoys: EnvoyArgs,

    /// Time that connections of a load balancer have to end when it is deleted
    #[arg(
        long,
        env = "PORTOLAN_GATEWAY_DRAIN",
        value_name = "DURATION",
        default_value = "10s",
        value_parser = duration::parse,
        help_heading = "Gateway"
    )]
    gateway_drain: Duration,

    /// Time after which an address that was released is given again
    #[arg(
        long,
        env = "PORTOLAN_GATEWAY_ADDRESS_QUARANTINE",
        value_name = "DURATION",
        default_value = "1m",
        value_parser = duration::parse,
        help_heading = "Gateway"
    )]
    gateway_address_quarantine: Duration,

    /// Time after which a key or tunnel id that was released is given again, once all others were given
    #[arg(
        long,
        env = "PORTOLAN_GATEWAY_KEY_QUARANTINE",
        value_name = "DURATION",
        default_value = "1h",
        value_parser = duration::parse,
        help_heading = "Gateway"
    )]
    gateway_key_quarantine: Duration,

    /// Ranges where endpoints must not be, such as the provider's own pods and Services
    #[arg(
        long,
        env = "PORTOLAN_GATEWAY_ENDPOINT_DENY",
        value_name = "CIDR",
        value_delimiter = ',',
        help_heading = "Gateway"
    )]
    gateway_endpoint_deny: Vec<Range>,

    /// Ranges where endpoints may be although they are denied: tenants in the provider's own cluster
    #[arg(
        long,
        env = "PORTOLAN_GATEWAY_DIRECT_ALLOW",
        value_name = "CIDR",
        value_delimiter = ',',
        help_heading = "Gateway"
    )]
    gateway_direct_allow: Vec<Range>,

    /// LoadBalancers that an account may have, if it has no limit of its own
    #[arg(
        long,
        env = "PORTOLAN_GATEWAY_MAX_LOAD_BALANCERS",
        value_name = "NUMBER",
        default_value_t = 256,
        help_heading = "Gateway"
    )]
    gateway_max_load_balancers: u32,

    /// Addresses that an account may have, likewise
    #[arg(
        long,
        env = "PORTOLAN_GATEWAY_MAX_ADDRESSES",
        value_name = "NUMBER",
        default_value_t = 256,
        help_heading = "Gateway"
    )]
    gateway_max_addresses: u32,

    /// Endpoints that a LoadBalancer may have, likewise
    #[arg(
        long,
        env = "PORTOLAN_GATEWAY_MAX_ENDPOINTS",
        value_name = "NUMBER",
        default_value_t = 1000,
        help_heading = "Gateway"
    )]
    gateway_max_endpoints: u32,

    #[command(flatten)]
    rest: RestArgs,
}

/// Serves the REST API. A process that cannot do what its flags ask for ends.
fn serve(ctx: &Ctx, registry: &mut Registry, cache: &Cache, config: rest::Config) {
    if let Err(problem) = rest::start(ctx, registry, cache, config) {
        error!(%problem, "the REST API cannot be served");
        ctx.tasks.spawn("gateway rest", async {});
    }
}

impl GatewayArgs {
    fn options(self, platform: &Platform, proxies: Arc<dyn Proxies>) -> Options {
        let images = self.envoys.images();
        let mut allow: AddressSet = self.gateway_direct_allow.into_iter().collect();
        // Where pods are processes of this machine, in `portolan up`, endpoints are too.
        if platform.loopback_pods.is_some() {
            allow.insert(Range::from(LOOPBACK));
        }
        let api_server = platform.api_server.map(Range::from);
        Options {
            limits: Limits {
                load_balancers: self.gateway_max_load_balancers,
                addresses: self.gateway_max_addresses,
                endpoints_per_load_balancer: self.gateway_max_endpoints,
            },
            address_quarantine: self.gateway_address_quarantine,
            key_quarantine: self.gateway_key_quarantine,
            drain: self.gateway_drain,
            deny: self.gateway_endpoint_deny.into_iter().chain(api_server).collect(),
            allow,
            images,
            own_namespace: platform.namespace.clone(),
            ..Options::with(proxies)
        }
    }
}

pub(super) fn configure(matches: &ArgMatches, platform: &Platform) -> Result<Starter, OptionsError> {
    let args = GatewayArgs::from_arg_matches(matches).map_err(|cause| OptionsError(cause.to_string()))?;
    let (rest, platform) = (args.rest.config()?, platform.clone());
    let runtime = args.envoys.runtime(&platform, args.gateway_drain)?;
    Ok(Box::new(move |ctx, registry, webhooks| {
        let wake = Arc::new(Notify::new());
        let proxies = runtime.start(ctx, &wake);
        let options = args.options(&platform, proxies);
        let cache = start(ctx, registry, wake, options.clone());
        if let Some(rest) = rest {
            serve(ctx, registry, &cache, rest);
        }
        webhooks::handlers(webhooks, &cache, &options)
    }))
}
