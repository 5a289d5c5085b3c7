//! `portolan-testkit`, which does the work of many chores. It stands beside this program.

use std::path::PathBuf;

use crate::call::Call;
use crate::{Failure, tell};

/// Builds the testkit's programs, and others with them.
///
/// Always of the whole workspace: of one package, everything below would be compiled once more, with other features.
pub(crate) fn build(others: &[&str]) -> Result<(), Failure> {
    let programs = ["portolan-testkit", "portolan-testapp"].iter().chain(others).flat_map(|name| ["--bin", name]);
    let call = Call::line("cargo build --workspace").and(programs);
    // once they stand here, cargo has nothing worth showing
    let known = beside("portolan-testkit").is_ok_and(|path| PathBuf::from(path).exists());
    if known {
        return call.and(["--quiet"]).run();
    }
    tell(&format!("==> {}", call.shown()));
    call.run()
}

/// A call of the testkit.
pub(crate) fn call(words: &str) -> Result<Call, Failure> {
    Ok(Call::new([beside("portolan-testkit")?]).and(words.split_whitespace()))
}

/// A program in the folder of this one.
pub(crate) fn beside(program: &str) -> Result<String, Failure> {
    let path = std::env::current_exe().ok().map(|own| own.with_file_name(program));
    path.and_then(|path| path.into_os_string().into_string().ok()).ok_or_else(|| {
        Failure::new(format!("there is no way to {program}"), "run the chore by cargo: cargo xtask --help")
    })
}
