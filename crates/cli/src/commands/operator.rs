//! `portolan operator`: the control plane against a cluster.

use clap::ValueEnum;

use crate::cli::Program;
use crate::outcome::{Exit, Failure};

/// Run the control plane against a cluster
///
/// Each capability watches its objects, plans, and writes what differs; of several replicas one leads and
/// writes. This version has no capability built in yet: the command says so and exits 2.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan operator
  portolan operator --capabilities egress,mirror
  portolan operator --capabilities gateway")]
pub(crate) struct Args {
    /// Run only these capabilities
    #[arg(
        long,
        env = "PORTOLAN_CAPABILITIES",
        hide_env_values = true,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "gateway,egress,ipam,mirror,mesh",
        help_heading = "Capabilities"
    )]
    capabilities: Vec<Capability>,
}

/// A way through the edge that the operator can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Capability {
    /// In: public addresses for services behind an Envoy edge
    Gateway,
    /// Out: fixed source addresses for pods
    Egress,
    /// Out, on a cloud: source addresses attached to machines
    Ipam,
    /// Across: services of one cluster seen from another
    Mirror,
    /// Through: routes between protocols inside the cluster
    Mesh,
}

pub(crate) fn run(args: Args, program: Program) -> Result<Exit, Failure> {
    let Args { capabilities } = args;
    let mut asked: Vec<String> = Vec::new();
    for capability in Capability::value_variants().iter().filter(|capability| capabilities.contains(capability)) {
        asked.push(format!("`{}`", name(*capability)));
    }
    let what = match &asked[..] {
        [one] => format!("capability {one} is"),
        several => format!("capabilities {} are", several.join(", ")),
    };
    Err(Failure::not_built_in(&what, program))
}

fn name(capability: Capability) -> String {
    capability.to_possible_value().map(|value| value.get_name().to_owned()).expect("no capability is hidden")
}
