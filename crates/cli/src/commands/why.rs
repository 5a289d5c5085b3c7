//! `portolan why`: a decision, step by step.

use portolan_control::query;
use portolan_control::runtime::capability::Capability;

use crate::cluster::ClusterArgs;
use crate::help::change_arg;
use crate::outcome::{Exit, Failure};
use crate::output::{self, FormatArgs};
use crate::printer::Printer;

/// Explain the state of an object step by step
///
/// The cluster is read and planned as the operator plans it, and every step of the decision is printed. Exits 1 if the
/// object is not ready or not programmed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan why eip 10.6.1.60
  portolan why policy shop/web
  portolan why vsvc gateway-vsvc
  portolan why pod shop/web-0 203.0.113.7 -o json")]
pub(crate) struct Args {
    /// The kind of the object
    kind: String,

    /// The name of the object; in namespace `default` unless it is NAMESPACE/NAME
    name: String,

    /// For a pod: the destination of its packets
    destination: Option<String>,

    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Lists the kinds that can be explained.
pub(crate) fn with_capabilities(command: clap::Command, table: &[&Capability]) -> clap::Command {
    let kinds = format!("The kind of the object: {}", query::list_of(&query::why_words(table), "or"));
    let lines = query::questions(table).map(|why| format!("- {}: {}", why.words.join(", "), why.about));
    let more = format!("{kinds}\n\n{}", lines.collect::<Vec<_>>().join("\n"));
    change_arg(command, "kind", |arg| arg.help(kinds.clone()).long_help(more.clone()))
}

pub(crate) fn run(args: Args, table: &[&Capability], printer: &Printer) -> Result<Exit, Failure> {
    let Args { kind, name, destination, format, cluster } = args;
    let result = output::ask(async {
        Ok(query::why(table, &cluster.client().await?, &kind, &name, destination.as_deref()).await)
    })?;
    output::show(&result, &format, printer)
}
