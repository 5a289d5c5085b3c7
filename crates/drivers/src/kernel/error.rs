//! What can go wrong between us and the kernel.

use rustix::io::Errno;

/// A call to the kernel that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The socket itself failed.
    #[error("netlink: {call} failed: {cause}")]
    Socket { call: &'static str, cause: Errno },
    /// The kernel read the request and refused it; nothing of its batch was done.
    #[error("the kernel refused {what}: {cause}")]
    Refused { what: String, cause: Errno },
    /// The answer has not the form that the kernel documents.
    #[error("the kernel's answer to {what} cannot be read")]
    Malformed { what: &'static str },
    /// A dump changed under the reader again and again.
    #[error("{what} changed {times} times while it was read")]
    Unsettled { what: &'static str, times: u32 },
    /// A setting under /proc/sys could not be written.
    #[error("setting {path} to {value} failed: {cause}")]
    Setting { path: String, value: u32, cause: String },
    /// A link that has to be there is not.
    #[error("there is no link `{name}`")]
    NoLink { name: String },
}

impl KernelError {
    /// One word for logs and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Socket { .. } => "NetlinkFailed",
            Self::Refused { .. } => "KernelRefused",
            Self::Malformed { .. } => "KernelAnswerMalformed",
            Self::Unsettled { .. } => "KernelStateUnsettled",
            Self::Setting { .. } => "SettingRefused",
            Self::NoLink { .. } => "NoLink",
        }
    }
}
