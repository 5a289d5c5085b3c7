//! `portolan plan`: what a change would do.

use std::io::Read as _;
use std::path::PathBuf;

use portolan_control::query;
use portolan_control::runtime::capability::Capability;
use serde_json::Value;

use crate::cluster::ClusterArgs;
use crate::outcome::{Exit, Failure};
use crate::output::{self, FormatArgs};
use crate::printer::Printer;

/// Show what applying objects would change, without writing anything
///
/// The cluster is planned as the operator plans it with its default flags, without and with the objects, and the
/// differences are printed: addresses that would move, requests that proxies would get. Exits 1 if something would
/// change.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan plan -f gateway.yaml
  portolan plan -f - -o json
  portolan plan -f change.yaml --kubeconfig portolan.kubeconfig")]
pub(crate) struct Args {
    /// File with the objects, YAML or JSON; - is stdin
    #[arg(short, long, value_name = "FILE", required = true, help_heading = "Change")]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) fn run(args: Args, table: &[&Capability], printer: &Printer) -> Result<Exit, Failure> {
    let Args { filename, format, cluster } = args;
    let mut changes = Vec::new();
    for file in &filename {
        changes.extend(objects(file)?);
    }
    let result = output::ask(async { Ok(query::plan(table, &cluster.client().await?, changes).await) })?;
    output::show(&result, &format, printer)
}

/// Every document of a file; a List counts as its items.
fn objects(file: &PathBuf) -> Result<Vec<Value>, Failure> {
    let failed = |cause: String| {
        let what = format!("reading `{}` failed: {cause}", file.display());
        Failure::new(Exit::Usage, what, "give a file of Kubernetes objects, as for kubectl apply -f")
    };
    let mut text = String::new();
    if file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map_err(|cause| failed(cause.to_string()))?;
    } else {
        text = std::fs::read_to_string(file).map_err(|cause| failed(cause.to_string()))?;
    }
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|cause| failed(cause.to_string()))?;
    let mut objects = Vec::new();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        match document.get("items").and_then(Value::as_array) {
            Some(items) => objects.extend(items.iter().cloned()),
            None if document["kind"].is_string() => objects.push(document),
            None => return Err(failed("a document has no `kind`".to_owned())),
        }
    }
    Ok(objects)
}
