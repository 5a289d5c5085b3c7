//! `portolan doctor`: what is wrong, and its repair.

use std::io::{IsTerminal as _, stdin};
use std::sync::Arc;

use portolan_control::doctor::{self, Diagnosis, Request};
use portolan_control::query;
use portolan_control::runtime::capability::{Capability, names};
use portolan_control::runtime::doctor::{Examination, ExaminedCloud};
use portolan_drivers::cloud::aws::{AwsOptions, LazyAws};

use crate::aws;
use crate::cluster::ClusterArgs;
use crate::help::change_arg;
use crate::outcome::{Exit, Failure};
use crate::output::{self, FormatArgs};
use crate::printer::Printer;

/// Find what is wrong with capabilities and their objects, and repair it
///
/// Checks that an operator leads, that the custom resource definitions and webhooks are installed, and what each
/// capability knows of its objects. Each check says ok, warn or fail, what was seen and what to do. Exits 1 if a check
/// fails. With --repair it writes to the API server what can be written safely, and checks again; what the operator has
/// to put right, it is asked to look at.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan doctor
  portolan doctor egress
  portolan doctor mesh shop/web -o wide
  portolan doctor ipam shop --repair
  portolan doctor --repair --yes")]
pub(crate) struct Args {
    /// The capability; all by default
    capability: Option<String>,

    /// Only the object of this name; NAMESPACE/NAME or NAME
    name: Option<String>,

    /// Repair what can be repaired, after asking
    #[arg(long, help_heading = "Repair")]
    repair: bool,

    /// Repair without asking
    #[arg(long, requires = "repair", help_heading = "Repair")]
    yes: bool,

    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Lists the capabilities.
pub(crate) fn with_capabilities(command: clap::Command, table: &[&Capability]) -> clap::Command {
    let help = format!("The capability: {}; all by default", query::list_of(&names(table), "or"));
    change_arg(command, "capability", |arg| arg.help(help.clone()))
}

pub(crate) fn run(args: Args, table: &[&Capability], printer: &Printer) -> Result<Exit, Failure> {
    let Args { capability, name, repair, yes, format, cluster } = args;
    let request = Request { capability, examination: Examination { name, cloud: cloud() } };
    let diagnosis = output::ask(async {
        let client = cluster.client().await?;
        let found = match doctor::examine(table, &client, &request).await {
            Ok(found) if repair && found.repairs().next().is_some() => found,
            found => return Ok(found),
        };
        if !(yes || is_agreed(&found, printer)?) {
            return Ok(Ok(found));
        }
        Ok(doctor::repair(table, &client, &request, found).await)
    })?;
    output::show(&diagnosis.result(), &format, printer)
}

/// Shows what would be repaired, and asks. Without a terminal nobody could answer.
fn is_agreed(found: &Diagnosis, printer: &Printer) -> Result<bool, Failure> {
    if !stdin().is_terminal() {
        let what = "repairs need a confirmation, and this is not a terminal";
        return Err(Failure::new(Exit::Usage, what, "repair without asking: portolan doctor --repair --yes"));
    }
    let repairs: Vec<String> = found.repairs().map(|repair| format!("  {repair}\n")).collect();
    printer.agreed(&format!("to repair:\n{}go on? [y/N] ", repairs.concat()))
}

/// The cloud that checks of addresses may read, if this shell says which.
fn cloud() -> Option<ExaminedCloud> {
    let settings = aws::settings();
    settings.is_set_up().then(|| Arc::new(LazyAws::new(settings, AwsOptions::default())))
}
