//! `portolan manifests`: the roles and webhook configurations of the operator; `cargo xtask manifests` commits them.

use std::fs;
use std::path::{Path, PathBuf};

use portolan_control::manifests::{self, Form};
use portolan_control::runtime::capability::Capability;

use crate::outcome::{Exit, Failure};
use crate::printer::Printer;

/// Print the roles and webhook configurations of the operator as YAML
///
/// With a folder, the files there that follow from the capabilities are written, and named on stdout.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan manifests
  portolan manifests --deploy deploy")]
pub(crate) struct Args {
    /// Folder with `manifests` and `chart` whose generated files are written
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    deploy: Option<PathBuf>,
}

pub(crate) fn run(args: Args, table: &[&Capability], printer: &Printer) -> Result<Exit, Failure> {
    let Args { deploy } = args;
    let Some(folder) = deploy else {
        let (roles, webhooks) = (manifests::rbac(table, Form::Plain), manifests::webhooks(table, Form::Plain));
        printer.data(&format!("{roles}{webhooks}"))?;
        return Ok(Exit::Yes);
    };
    let schema = manifests::schema(table, &read(&folder, SCHEMA)?).map_err(|cause| failed(SCHEMA, &cause))?;
    for (file, text) in [
        ("manifests/rbac.yaml", manifests::rbac(table, Form::Plain)),
        ("manifests/webhooks.yaml", manifests::webhooks(table, Form::Plain)),
        ("chart/templates/rbac.yaml", manifests::rbac(table, Form::Chart)),
        ("chart/templates/cleanup-rbac.yaml", manifests::cleanup_rbac(table)),
        ("chart/templates/webhooks.yaml", manifests::webhooks(table, Form::Chart)),
        ("chart/templates/_capabilities.tpl", manifests::environment(table)),
        (VALUES, manifests::values(table, &read(&folder, VALUES)?)),
        (SCHEMA, schema),
    ] {
        let path = folder.join(file);
        fs::write(&path, text).map_err(|cause| failed(file, &cause))?;
        printer.data(&format!("{}\n", path.display()))?;
    }
    Ok(Exit::Yes)
}

const VALUES: &str = "chart/values.yaml";
const SCHEMA: &str = "chart/values.schema.json";

fn read(folder: &Path, file: &str) -> Result<String, Failure> {
    fs::read_to_string(folder.join(file)).map_err(|cause| failed(file, &cause))
}

fn failed(file: &str, cause: &impl std::fmt::Display) -> Failure {
    let hint = "name the folder `deploy` of a checkout: portolan manifests --deploy deploy";
    Failure::new(Exit::No, format!("updating `{file}` failed: {cause}"), hint)
}
