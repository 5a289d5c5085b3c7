//! `portolan cleanup`: removes what an operator that is gone has left on a cluster.

use portolan_control::cleanup::{self, Error, Found, Options};
use portolan_control::runtime::capability::Capability;

use super::operator::{InstallationArgs, chosen, hostname};
use crate::cluster::ClusterArgs;
use crate::outcome::{Exit, Failure};
use crate::printer::Printer;

/// Remove what the operator has made on a cluster, once the operator is gone
///
/// Deletes tunnels, endpoint slices, generated objects, Envoys, the webhook's Secret and the Lease, and removes finalizers that
/// nobody else would remove. Objects of users stay, and so do the AddressClaims with which policies find their addresses
/// again. The Helm chart runs it after `helm uninstall`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan cleanup --dry-run
  portolan cleanup
  portolan cleanup --lease-namespace edge --capabilities mesh")]
pub(crate) struct Args {
    /// Print what would be removed, and remove nothing
    #[arg(long, help_heading = "Cleanup")]
    dry_run: bool,

    #[command(flatten)]
    installation: InstallationArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) fn run(args: Args, table: &[&Capability], printer: &Printer) -> Result<Exit, Failure> {
    let Args { dry_run, installation, cluster } = args;
    let InstallationArgs { capabilities, lease_namespace, webhook_secret } = installation;
    let chosen = chosen(table, &capabilities);
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|cause| Failure::new(Exit::No, cause.to_string(), "look at the limits of this user: ulimit -a"))?;
    let said = runtime.block_on(async {
        let client = cluster.client().await?;
        let mut said = String::new();
        if dry_run {
            let found = cleanup::find(&chosen, &client, &lease_namespace).await;
            let found = found.map_err(|cause| failed(&cause))?;
            said.extend(found.into_iter().map(|found| line(found, true)));
            return Ok(said);
        }
        let identity = format!("{}-{}", hostname(), std::process::id());
        let options = Options { webhook_secret, ..Options::of_operator(&lease_namespace, &identity) };
        cleanup::run(&chosen, &client, &options, |found| said.push_str(&line(found, false)))
            .await
            .map_err(|cause| failed(&cause))?;
        Ok(said)
    })?;
    printer.data(&said)?;
    Ok(Exit::Yes)
}

fn line(Found { kind, objects, stays }: Found, dry_run: bool) -> String {
    let done = match (stays, dry_run) {
        (false, false) => "deleted",
        (false, true) => "to delete",
        (true, false) => "kept, without our finalizer",
        (true, true) => "to keep, without our finalizer",
    };
    format!("{kind}: {objects} {done}\n")
}

fn failed(cause: &Error) -> Failure {
    let hint = match cause {
        Error::OperatorRuns { .. } => {
            "delete the operator's Deployment first: kubectl delete deployment --namespace portolan portolan-operator"
        }
        Error::Election(_) | Error::NoLease { .. } | Error::Lease { .. } => {
            "check that you may create, update and delete the Lease: kubectl auth can-i --list"
        }
        Error::List { .. } | Error::Remove { .. } | Error::Secret { .. } => {
            "repeat it; what was removed already is gone: portolan cleanup"
        }
    };
    Failure::new(Exit::No, cause.to_string(), hint)
}
