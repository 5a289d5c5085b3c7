//! `cargo xtask cluster`: the cluster of the end-to-end tests, by hand.

use crate::call::Call;
use crate::{Failure, setup, tell};

/// Where the running cluster says how to reach it.
const FOLDER: &str = "target/cluster";

pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let [action, rest @ ..] = words else {
        return Err(Failure::usage("no action named", "cargo xtask cluster --help"));
    };
    if action == "up" {
        setup::tools()?;
        setup::kubernetes()?;
    }
    // Both of its programs: the cluster runs the second one in its pods.
    Call::line("cargo build --quiet --package portolan-testkit --bins").run()?;
    let call = Call::line("cargo run --quiet --package portolan-testkit --bin portolan-testkit -- cluster");
    let call = call.and([action.as_str(), FOLDER]).and(rest.iter().map(String::as_str));
    tell(&format!("==> {}", call.shown()));
    call.run()
}
