//! Why the REST API is not there.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the REST API is not there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is not ours, or in use.
    #[error("cannot listen on {listen} for the REST API: choose an address of this machine and a free port")]
    Listen {
        /// What was asked for.
        listen: SocketAddr,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
    /// A file of TLS cannot be read.
    #[error("cannot read `{file}` for the REST API: mount the certificate there")]
    Read {
        /// Its path.
        file: PathBuf,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
    /// The files of TLS are there but cannot be used.
    #[error("the TLS files in `{folder}` cannot be used for the REST API: {problem}")]
    Files {
        /// Where they are.
        folder: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Passwords would be sent in the clear.
    #[error("{listen} is no loopback address: the REST API without TLS is for this machine alone")]
    NotLoopback {
        /// What was asked for.
        listen: SocketAddr,
    },
    /// The system has no randomness.
    #[error("the system gave no random bytes for the REST API")]
    NoRandomness,
}
