//! `portolan plan`: what a change would do.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use portolan_control::runtime::capability::Capability;
use portolan_control::{Apply, query};
use serde_json::Value;

use crate::cluster::ClusterArgs;
use crate::outcome::{Exit, Failure};
use crate::output::{self, FormatArgs};
use crate::printer::Printer;

/// Show what applying objects would change, without writing anything
///
/// What `kubectl apply` would leave of the objects is found first, with fields that were applied before and are left out
/// now. Then the cluster is planned as the operator plans it with its default flags, without and with these objects, and
/// the differences are printed: addresses that would move, requests that proxies would get. Exits 1 if something would
/// change.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan plan -f gateway.yaml
  portolan plan -f manifests/ --server-side
  portolan plan -f - -o json
  portolan plan -f change.yaml --kubeconfig portolan.kubeconfig")]
pub(crate) struct Args {
    /// File with the objects, YAML or JSON, or a folder of them (.yaml, .yml, .json); - is stdin
    #[arg(short, long, value_name = "FILE", required = true, help_heading = "Change")]
    filename: Vec<PathBuf>,

    /// Read folders within folders, too
    #[arg(short = 'R', long, help_heading = "Change")]
    recursive: bool,

    /// Plan for `kubectl apply --server-side`: the API server is asked what it would store
    ///
    /// This checks the objects against their schema and rules, and needs the right to patch them.
    #[arg(long, help_heading = "Change")]
    server_side: bool,

    /// Take over fields of other managers, as `kubectl apply --server-side --force-conflicts` does
    #[arg(long, requires = "server_side", help_heading = "Change")]
    force_conflicts: bool,

    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) fn run(args: Args, table: &[&Capability], printer: &Printer) -> Result<Exit, Failure> {
    let Args { filename, recursive, server_side, force_conflicts, format, cluster } = args;
    let apply = if server_side { Apply::ServerSide { force_conflicts } } else { Apply::ClientSide };
    let mut changes = Vec::new();
    for path in &filename {
        for file in files(path, recursive)? {
            changes.extend(objects(&file)?);
        }
    }
    let result = output::ask(async { Ok(query::plan_applied(table, &cluster.client().await?, changes, apply).await) })?;
    output::show(&result, &format, printer)
}

/// The files of a path, in the order in which kubectl reads them.
fn files(path: &Path, recursive: bool) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    collect(path, recursive, &mut found).map_err(|cause| unreadable(path, &cause))?;
    if found.is_empty() {
        return Err(unreadable(path, &"no .yaml, .yml or .json file is in it"));
    }
    Ok(found)
}

fn collect(folder: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let entries: Result<Vec<_>, _> = std::fs::read_dir(folder)?.collect();
    let mut paths: Vec<PathBuf> = entries?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let extension = path.extension().and_then(OsStr::to_str);
        if path.is_dir() {
            if recursive {
                collect(&path, recursive, found)?;
            }
        } else if matches!(extension, Some("yaml" | "yml" | "json")) {
            found.push(path);
        }
    }
    Ok(())
}

fn unreadable(path: &Path, cause: &dyn std::fmt::Display) -> Failure {
    let what = format!("reading `{}` failed: {cause}", path.display());
    Failure::new(Exit::Usage, what, "give files of Kubernetes objects, as for kubectl apply -f")
}

/// Every document of a file; a List counts as its items.
fn objects(file: &Path) -> Result<Vec<Value>, Failure> {
    let failed = |cause: &dyn std::fmt::Display| unreadable(file, cause);
    let mut text = String::new();
    if file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map_err(|cause| failed(&cause))?;
    } else {
        text = std::fs::read_to_string(file).map_err(|cause| failed(&cause))?;
    }
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|cause| failed(&cause))?;
    let mut objects = Vec::new();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        match document.get("items").and_then(Value::as_array) {
            Some(items) => objects.extend(items.iter().cloned()),
            None if document["kind"].is_string() => objects.push(document),
            None => return Err(failed(&"a document has no `kind`")),
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_for_its_objects_in_order() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("c.yaml")).unwrap();
        for name in ["b.yaml", "a.json", "README.md", "d.yml", "c.yaml/e.yaml"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let names = |recursive| -> Vec<String> {
            let found = files(folder.path(), recursive).unwrap();
            found.iter().map(|path| path.strip_prefix(folder.path()).unwrap().display().to_string()).collect()
        };
        assert_eq!(names(false), ["a.json", "b.yaml", "d.yml"]);
        assert_eq!(names(true), ["a.json", "b.yaml", "c.yaml/e.yaml", "d.yml"]);
        std::fs::create_dir(folder.path().join("empty")).unwrap();
        assert!(files(&folder.path().join("empty"), true).is_err());
        assert_eq!(files(Path::new("-"), false).unwrap(), [Path::new("-")]);
    }
}
