//! What a run is at.

use std::io::{self, Write as _};

/// Writes a line to standard error.
pub(super) fn tell(line: &str) {
    writeln!(io::stderr(), "==> {line}").ok();
}
