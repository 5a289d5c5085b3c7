//! What a user chooses.

use std::path::PathBuf;
use std::time::Duration;

/// How Envoys are run.
#[derive(Debug, Clone)]
pub struct ProcessOptions {
    /// The program. None: `envoy` in the search path.
    pub binary: Option<PathBuf>,
    /// Folders in which programs are looked for: `envoy`, and `setpriv` of util-linux.
    pub search_path: Vec<PathBuf>,
    /// The folder of the units' folders, which belongs to this process alone. Sockets stand in it, so its path is short.
    pub folder: PathBuf,
    /// How long an Envoy that is not wanted any more goes on with the connections that it has.
    pub drain: Duration,
}
