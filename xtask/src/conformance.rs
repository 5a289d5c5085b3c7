//! `cargo xtask conformance`: upstream's suites, against the operator and the embedded API server.
//!
//! `portolan-testkit conformance` does the work. It stands beside this program, and so does the `portolan` to be tested.

use crate::call::Call;
use crate::testkit::{self, beside};
use crate::{Failure, setup, tell};

/// The suites, and the page that each one writes.
const SUITES: &[(&str, &str)] = &[("kubernetes", "docs/conformance/kubernetes.md"), ("mcs", "docs/conformance/mcs.md")];

pub(crate) fn suites() -> Vec<&'static str> {
    SUITES.iter().map(|(name, _)| *name).collect()
}

pub(crate) fn run(name: &str) -> Result<(), Failure> {
    let Some((_, report)) = SUITES.iter().find(|(suite, _)| *suite == name) else {
        return Err(Failure::usage(format!("`{name}` is not a suite"), "list them: cargo xtask conformance --help"));
    };
    setup::tools()?;
    setup::kubernetes()?;
    testkit::build(&["portolan"])?;
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
