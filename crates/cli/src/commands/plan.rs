//! `portolan plan`: what would change, before it does.

use std::io::Read as _;
use std::path::PathBuf;

use portolan_control::answers;
use serde_json::Value;

use crate::answer::{self, FormatArgs};
use crate::cluster::ClusterArgs;
use crate::outcome::{Exit, Failure};
use crate::printer::Printer;

/// Show what would move if these objects were applied, and why; write nothing
///
/// The cluster is read, the objects are laid over it, and both are planned as the operator plans, with its default
/// flags: addresses that would move, and what proxies would be told. Exits 1 when something would change, so that a
/// script can ask.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan plan -f gateway.yaml
  portolan plan -f - -o json
  portolan plan -f change.yaml --kubeconfig portolan.kubeconfig")]
pub(crate) struct Args {
    /// Read the objects from this file, YAML or JSON; - is stdin
    #[arg(short, long, value_name = "FILE", required = true, help_heading = "Change")]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) fn run(args: Args, printer: &Printer) -> Result<Exit, Failure> {
    let Args { filename, format, cluster } = args;
    let mut changes = Vec::new();
    for file in &filename {
        changes.extend(objects(file)?);
    }
    answer::show(async { Ok(answers::plan(&cluster.client().await?, changes).await) }, &format, printer)
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
