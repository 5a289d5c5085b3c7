//! The flags of the gateway client.

use std::time::Duration;

use clap::{ArgMatches, FromArgMatches as _};
use portolan_drivers::gateway::GroupUrl;
use tracing::warn;

use super::settings::{Options, SECRET};
use super::start;
use crate::runtime::capability::{OptionsError, Platform, Starter};
use crate::runtime::duration;

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "flags of capabilities begin with their name")]
pub(super) struct GatewayClientArgs {
    /// The group of a gateway that serves Services of class portolan.dev/gateway, such as
    /// https://gw.example/api/egw/accounts/ACCOUNT/groups/GROUP
    #[arg(long, env = "PORTOLAN_GATEWAY_CLIENT_URL", value_name = "URL", help_heading = "Gateway client")]
    gateway_client_url: Option<String>,

    /// Name of the Secret, in the operator's namespace, with the login: `username` and `password`, or `token`; and `ca.crt`
    /// if the gateway's certificate is not signed by a public authority
    #[arg(
        long,
        env = "PORTOLAN_GATEWAY_CLIENT_SECRET",
        value_name = "NAME",
        default_value = SECRET,
        help_heading = "Gateway client"
    )]
    gateway_client_secret: String,

    /// What tells this cluster from others of the account; the UID of namespace kube-system by default
    #[arg(long, env = "PORTOLAN_GATEWAY_CLIENT_CLUSTER_ID", value_name = "ID", help_heading = "Gateway client")]
    gateway_client_cluster_id: Option<String>,

    /// How often everything is compared with the gateway
    #[arg(
        long,
        env = "PORTOLAN_GATEWAY_CLIENT_VERIFY_INTERVAL",
        value_name = "DURATION",
        default_value = "30s",
        value_parser = duration::parse,
        help_heading = "Gateway client"
    )]
    gateway_client_verify_interval: Duration,
}

impl GatewayClientArgs {
    /// None without a URL.
    fn options(self, platform: &Platform) -> Result<Option<Options>, OptionsError> {
        let Self {
            gateway_client_url,
            gateway_client_secret,
            gateway_client_cluster_id,
            gateway_client_verify_interval,
        } = self;
        if gateway_client_verify_interval < SHORTEST_VERIFY {
            let least = SHORTEST_VERIFY.as_secs();
            return Err(OptionsError(format!(
                "--gateway-client-verify-interval is {gateway_client_verify_interval:?}: use {least}s or more"
            )));
        }
        let Some(url) = gateway_client_url.filter(|url| !url.is_empty()) else { return Ok(None) };
        let url = GroupUrl::parse(&url).map_err(|cause| OptionsError(format!("--gateway-client-url: {cause}")))?;
        Ok(Some(Options {
            secret: gateway_client_secret,
            operator_namespace: platform.namespace.clone(),
            cluster_id: gateway_client_cluster_id.filter(|id| !id.is_empty()),
            verify_interval: gateway_client_verify_interval,
            ..Options::of(url)
        }))
    }
}

pub(super) fn configure(matches: &ArgMatches, platform: &Platform) -> Result<Starter, OptionsError> {
    let args = GatewayClientArgs::from_arg_matches(matches).map_err(|cause| OptionsError(cause.to_string()))?;
    let options = args.options(platform)?;
    Ok(Box::new(move |ctx, registry, webhooks| {
        if let Some(options) = options {
            drop(start(ctx, registry, options));
        } else {
            warn!("gateway-client does nothing: set --gateway-client-url to the group of a gateway");
        }
        webhooks
    }))
}

const SHORTEST_VERIFY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway_client::CAPABILITY;

    fn configured(flags: &[&str]) -> Result<Starter, OptionsError> {
        let command = (CAPABILITY.options)(clap::Command::new("operator").no_binary_name(true));
        let command = command.mut_args(|arg| arg.env(clap::builder::Resettable::Reset));
        (CAPABILITY.configure)(&command.get_matches_from(flags), &Platform::default())
    }

    #[test]
    fn a_url_that_is_no_group_is_refused_with_what_is_wrong() {
        let refused = |flags: &[&str]| configured(flags).err().map(|cause| cause.to_string()).unwrap_or_default();
        let plain = refused(&["--gateway-client-url", "http://gw.example/api/egw/accounts/a/groups/g"]);
        assert!(plain.starts_with("--gateway-client-url: ") && plain.contains("use https://"), "{plain}");
        let short = refused(&["--gateway-client-url", "https://gw.example/api/egw/accounts/a"]);
        assert!(short.contains("/accounts/ACCOUNT/groups/GROUP"), "{short}");
        assert!(refused(&["--gateway-client-verify-interval", "1s"]).contains("5s or more"));
        assert!(configured(&["--gateway-client-url", "https://gw.example/api/egw/accounts/a/groups/g"]).is_ok());
        assert!(configured(&[]).is_ok(), "without a URL it does nothing, and says so in the log");
    }
}
