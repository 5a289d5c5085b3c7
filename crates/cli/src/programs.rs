//! Where other programs are.

use std::path::{Path, PathBuf};

use portolan_control::runtime::capability::Programs;

/// As the search path says. `folder` is for what belongs to this process alone.
#[expect(clippy::disallowed_methods, reason = "every program looks for others in PATH, and no flag is that variable")]
pub(crate) fn programs(envoy: Option<PathBuf>, folder: &Path) -> Programs {
    let search_path = std::env::var("PATH").map(|path| std::env::split_paths(&path).collect());
    Programs { envoy, search_path: search_path.unwrap_or_default(), folder: folder.join("envoy") }
}
