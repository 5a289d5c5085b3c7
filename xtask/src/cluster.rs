//! `cargo xtask cluster`: the cluster of the end-to-end tests, by hand.

use crate::{Failure, setup, tell, testkit};

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
    testkit::build(&[])?;
    let call = testkit::call("cluster")?.and([action.as_str(), FOLDER]).and(rest.iter().map(String::as_str));
    tell(&format!("==> {}", call.shown()));
    call.run()
}
