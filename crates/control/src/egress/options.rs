//! The flags of egress.

use clap::{ArgMatches, FromArgMatches as _};

use super::{Families, Options, start, webhooks};
use crate::runtime::capability::{OptionsError, Platform, Starter};

#[derive(Debug, clap::Args)]
pub(super) struct EgressArgs {
    /// Refuse IPv4 pools
    #[arg(long, env = "PORTOLAN_EGRESS_NO_IPV4", help_heading = "Egress")]
    egress_no_ipv4: bool,

    /// Refuse IPv6 pools
    #[arg(long, env = "PORTOLAN_EGRESS_NO_IPV6", help_heading = "Egress")]
    egress_no_ipv6: bool,
}

impl TryFrom<EgressArgs> for Options {
    type Error = OptionsError;

    fn try_from(args: EgressArgs) -> Result<Self, OptionsError> {
        let EgressArgs { egress_no_ipv4, egress_no_ipv6 } = args;
        if egress_no_ipv4 && egress_no_ipv6 {
            return Err(OptionsError("--egress-no-ipv4 and --egress-no-ipv6 together leave no address family".into()));
        }
        let families = Families { ipv4: !egress_no_ipv4, ipv6: !egress_no_ipv6 };
        Ok(Self { families, ..Self::default() })
    }
}

pub(super) fn configure(matches: &ArgMatches, platform: &Platform) -> Result<Starter, OptionsError> {
    let Platform { api_server: _, loopback_pods: _, namespace: _, cloud: _, programs: _ } = platform;
    let args = EgressArgs::from_arg_matches(matches).map_err(|cause| OptionsError(cause.to_string()))?;
    let options = Options::try_from(args)?;
    Ok(Box::new(move |ctx, registry, webhooks| {
        let cache = start(ctx, registry, options);
        webhooks::handlers(webhooks, &cache, options)
    }))
}
