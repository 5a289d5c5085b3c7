//! moto, which the EC2 client is tested against: exactly the files that the testkit lists, by their hashes.
//!
//! They are put into `$XDG_CACHE_HOME/portolan/moto`, beside a copy of the list: nothing is installed elsewhere, and no
//! rights are needed.

use std::fs;
use std::path::PathBuf;

use crate::call::Call;
use crate::{Failure, tell};

/// What to install, from the root of the workspace.
const REQUIREMENTS: &str = "crates/testkit/src/aws/moto-requirements.txt";
const HINT: &str = "it comes from PyPI: see that https://pypi.org can be reached, then: cargo xtask setup";

/// Downloads moto, unless it is there.
pub(super) fn install() -> Result<(), Failure> {
    let failed = |what: String| Failure::new(format!("installing moto failed: {what}"), HINT);
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let wanted =
        fs::read_to_string(root.join(REQUIREMENTS)).map_err(|cause| failed(format!("{REQUIREMENTS}: {cause}")))?;
    let home = home()?;
    if fs::read_to_string(home.join("requirements.txt")).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    // Made aside, then renamed: what was interrupted leaves nothing under the final name.
    let aside = home.with_extension(format!("installing-{}", std::process::id()));
    fs::create_dir_all(&aside).map_err(|cause| failed(cause.to_string()))?;
    let install = Call::line("python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --require-hashes")
        .and(["--only-binary", ":all:", "--target"])
        .and([aside.join("packages").to_string_lossy(), "--requirement".into(), REQUIREMENTS.into()]);
    tell(&format!("==> {}", install.shown()));
    install.run().map_err(|failure| failed(failure.what))?;
    let finish = || {
        fs::write(aside.join("requirements.txt"), &wanted)?;
        if home.exists() {
            fs::remove_dir_all(&home)?;
        }
        fs::rename(&aside, &home)
    };
    finish().map_err(|cause| failed(cause.to_string()))
}

fn home() -> Result<PathBuf, Failure> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let cache = cache.ok_or_else(|| Failure::new("there is no home to keep programs in", "set HOME"))?;
    Ok(cache.join("portolan/moto"))
}
