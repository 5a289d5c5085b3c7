//! The flags of tickets.

use clap::{ArgMatches, FromArgMatches as _};
use portolan_control::runtime::capability::{OptionsError, Platform, Starter};

use super::{start, webhooks};

#[derive(Debug, clap::Args)]
pub(super) struct TicketsArgs {
    /// Namespace of the tickets
    #[arg(
        long,
        env = "PORTOLAN_TICKETS_NAMESPACE",
        value_name = "NAME",
        default_value = "default",
        help_heading = "Tickets"
    )]
    tickets_namespace: String,
}

pub(super) fn configure(matches: &ArgMatches, platform: &Platform) -> Result<Starter, OptionsError> {
    let Platform { api_server: _, loopback_pods: _, namespace: _, cloud: _, programs: _ } = platform;
    let args = TicketsArgs::from_arg_matches(matches).map_err(|cause| OptionsError(cause.to_string()))?;
    let TicketsArgs { tickets_namespace } = args;
    Ok(Box::new(move |ctx, _registry, webhooks| {
        start(ctx, tickets_namespace);
        webhooks::handlers(webhooks)
    }))
}
