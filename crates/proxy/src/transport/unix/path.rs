//! Which socket files may be used.

use std::path::{Path, PathBuf};

/// Whether a path lies in one of the directories after resolving symbolic links, and is not a link itself.
pub(crate) fn allowed_path(path: &Path, directories: &[PathBuf]) -> bool {
    let Some(parent) = path.parent().and_then(|parent| parent.canonicalize().ok()) else { return false };
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.is_symlink()) {
        return false;
    }
    directories
        .iter()
        .filter_map(|directory| directory.canonicalize().ok())
        .any(|directory| parent.starts_with(directory))
}
