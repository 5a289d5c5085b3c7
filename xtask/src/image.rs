//! `cargo xtask image`: the container image, without a container engine.
//!
//! `portolan-testkit image` puts the release binary into an OCI archive with its libraries, and the list of what was
//! compiled into it beside that.

use crate::call::{Call, root};
use crate::{Failure, tell, testkit};

/// Where the image and its list of parts are written.
const OUTPUT: &str = "target/image";

pub(crate) fn run() -> Result<(), Failure> {
    let folder = root().join(OUTPUT);
    std::fs::create_dir_all(&folder)
        .map_err(|cause| Failure::new(format!("making {OUTPUT} failed: {cause}"), "look at who owns `target`"))?;
    testkit::build(&[])?;
    for call in [
        Call::line("cargo build --release --locked --package portolan"),
        testkit::call("image")?.and(["target/release/portolan", OUTPUT]),
    ] {
        tell(&format!("==> {}", call.shown()));
        call.run()?;
    }
    Ok(())
}
