//! Why Envoys cannot be run at all.

use std::io;
use std::path::PathBuf;

/// Envoys cannot be run with these options.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Sockets in the folder would have names that are too long.
    #[error("`{}` is too long for sockets below it: use a path of at most {longest} bytes", folder.display())]
    FolderTooLong {
        /// As an absolute path.
        folder: PathBuf,
        /// In bytes.
        longest: usize,
    },
    /// The folder cannot be made.
    #[error("making `{}` failed", folder.display())]
    MakeFolder {
        /// Which.
        folder: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The thread that starts processes cannot be started.
    #[error("starting a thread failed")]
    StartThread(#[source] io::Error),
}
