//! Whether a cluster has got the objects that it starts with: once for each data folder, so that what was edited or deleted
//! since stays so.

use std::io;
use std::path::{Path, PathBuf};

/// The file that says so.
const MARKER: &str = "seeded";

/// Why that could not be written down.
#[derive(Debug, thiserror::Error)]
#[error("writing {} failed: {cause}", path.display())]
pub struct Error {
    path: PathBuf,
    cause: io::Error,
}

/// Whether the objects are still to be applied. Without a folder nothing is kept, so they are.
pub fn are_due(folder: Option<&Path>) -> bool {
    !folder.is_some_and(|folder| folder.join(MARKER).exists())
}

/// They were applied.
pub fn done(folder: Option<&Path>) -> Result<(), Error> {
    let Some(path) = folder.map(|folder| folder.join(MARKER)) else { return Ok(()) };
    std::fs::write(&path, "").map_err(|cause| Error { path, cause })
}
