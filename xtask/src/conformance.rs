//! `cargo xtask conformance`: upstream's suites, against the operator.
//!
//! `portolan-testkit conformance` does the work. It stands beside this program, and so does the `portolan` to be tested.

use std::path::PathBuf;

use crate::call::Call;
use crate::{Failure, setup, tell};

/// The suites, and the page that each one writes.
const SUITES: &[(&str, &str)] = &[("mcs", "docs/conformance/mcs.md")];

pub(crate) fn suites() -> Vec<&'static str> {
    SUITES.iter().map(|(name, _)| *name).collect()
}

pub(crate) fn run(name: &str) -> Result<(), Failure> {
    let Some((_, report)) = SUITES.iter().find(|(suite, _)| *suite == name) else {
        return Err(Failure::usage(format!("`{name}` is not a suite"), "list them: cargo xtask conformance --help"));
    };
    setup::tools()?;
    setup::kubernetes()?;
    // As one call, and of the whole workspace: with other features everything below would be compiled once more.
    let build = Call::line("cargo build --workspace --bin portolan --bin portolan-testkit");
    tell(&format!("==> {}", build.shown()));
    build.run()?;
    let [testkit, portolan] = [beside("portolan-testkit")?, beside("portolan")?];
    // A suite takes minutes: it must not outlive a killed chore.
    let call = Call::line("setpriv --pdeathsig TERM --").and([testkit]).and(["conformance", name]);
    let call = call.and([portolan]).and([*report]);
    tell(&format!("==> {}", call.shown()));
    call.run().map_err(|failure| Failure {
        hint: format!("read what failed above; the verdict on each spec is in {report}"),
        ..failure
    })
}

fn beside(program: &str) -> Result<String, Failure> {
    let own = std::env::current_exe().ok();
    let folder: Option<PathBuf> = own.and_then(|own| Some(own.parent()?.to_owned()));
    let path = folder.and_then(|folder| folder.join(program).into_os_string().into_string().ok());
    path.ok_or_else(|| {
        Failure::new(format!("there is no way to {program}"), "run it by cargo: cargo xtask conformance")
    })
}
