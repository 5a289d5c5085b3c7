//! `portolan crds`: the custom resource definitions, to apply or to commit.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::outcome::{Exit, Failure};
use crate::printer::Printer;

/// Print the custom resource definitions as YAML
///
/// They go to stdout, or with --output-dir into one file each, whose names go to stdout. Those of the Multi-Cluster
/// Services API belong to Kubernetes and may be installed already, with more versions, and those of OpenShift belong to
/// OpenShift: they are printed only if asked for.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan crds | kubectl apply --server-side -f -
  portolan crds --output-dir deploy/crds
  portolan crds --mcs | kubectl create -f -
  portolan crds --openshift | kubectl create -f -")]
pub(crate) struct Args {
    /// Folder to write one file per kind to; created if missing
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    output_dir: Option<PathBuf>,

    /// Print ServiceExport and ServiceImport instead, for clusters that do not have them
    #[arg(long, help_heading = "Output")]
    mcs: bool,

    /// Print NetNamespace and HostSubnet of OpenShift instead, for tests on clusters that do not have them
    #[arg(long, conflicts_with = "mcs", help_heading = "Output")]
    openshift: bool,
}

pub(crate) fn run(args: Args, printer: &Printer) -> Result<Exit, Failure> {
    let Args { output_dir, mcs, openshift } = args;
    let crds = match (mcs, openshift) {
        (true, _) => portolan_api::mcs_crds(),
        (false, true) => portolan_api::openshift_crds(),
        (false, false) => portolan_api::crds(),
    };
    match output_dir {
        Some(folder) => {
            for file in write(&crds, &folder)? {
                printer.data(&format!("{}\n", file.display()))?;
            }
        }
        None => {
            for crd in &crds {
                printer.data(&format!("---\n{}", yaml(crd)?))?;
            }
        }
    }
    Ok(Exit::Yes)
}

fn write(crds: &[CustomResourceDefinition], folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for crd in crds {
        let file = folder.join(format!("{}.yaml", name(crd)));
        let text =
            format!("# Written by `portolan crds --output-dir`: changes made here are lost.\n---\n{}", yaml(crd)?);
        fs::create_dir_all(folder).and_then(|()| fs::write(&file, text)).map_err(|cause| {
            let what = format!("writing `{}` failed: {cause}", file.display());
            Failure::new(Exit::No, what, format!("check its owner and mode: ls -ld {}", folder.display()))
        })?;
        files.push(file);
    }
    Ok(files)
}

fn yaml(crd: &CustomResourceDefinition) -> Result<String, Failure> {
    serde_saphyr::to_string(crd).map_err(|cause| {
        let what = format!("custom resource definition `{}` cannot be written as YAML: {cause}", name(crd));
        Failure::new(Exit::No, what, "this is a bug: please report it with the output of portolan --version")
    })
}

fn name(crd: &CustomResourceDefinition) -> &str {
    crd.metadata.name.as_deref().unwrap_or("unnamed")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn a_definition_reads_back_from_its_yaml_unchanged() {
        let crd = sample("harbours");
        let text = yaml(&crd).unwrap();
        assert_eq!(serde_saphyr::from_str::<CustomResourceDefinition>(&text).unwrap(), crd, "{text}");
    }

    #[test]
    fn each_definition_gets_a_file_of_its_own_name() {
        let folder = std::env::temp_dir().join(format!("portolan-crds-{}", std::process::id()));
        let files = write(&[sample("harbours"), sample("charts")], &folder.join("new")).unwrap();
        let text = fs::read_to_string(&files[1]).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let names: Vec<_> = files.iter().filter_map(|file| file.file_name()).collect();
        assert_eq!(names, ["harbours.example.dev.yaml", "charts.example.dev.yaml"]);
        assert_eq!(serde_saphyr::from_str::<CustomResourceDefinition>(&text).unwrap(), sample("charts"));
    }

    /// A definition with the kinds of text that YAML writers trip over.
    pub(crate) fn sample(plural: &str) -> CustomResourceDefinition {
        let long = "a long line of explanation that goes on and on ".repeat(8);
        let text = format!(
            r#"{{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                 "metadata": {{"name": "{plural}.example.dev"}},
                 "spec": {{"group": "example.dev", "scope": "Namespaced",
                           "names": {{"kind": "Sample", "plural": "{plural}"}},
                           "versions": [{{"name": "v1", "served": true, "storage": true,
                             "schema": {{"openAPIV3Schema": {{"type": "object",
                               "description": "one: two\n\n  three # four\n'five' \"six\" {long}",
                               "properties": {{"on": {{"type": "string", "enum": ["yes", "null", "1.0", "~", ""],
                                                       "pattern": "^[a-z]\\d+(\\.[a-z])*$"}}}}}}}}}},
                            {{"name": "v0", "served": false, "storage": false}}]}}}}"#
        );
        serde_saphyr::from_str(&text).unwrap()
    }
}
