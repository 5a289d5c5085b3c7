//! Why a GKE cluster cannot be reached.

use std::time::Duration;

/// Why a token or the record of a cluster could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GkeError {
    /// The credentials are of a kind that is not supported.
    #[error("credentials of type `{found}` are not supported: use a service_account or authorized_user key")]
    UnsupportedCredentialType { found: String },
    /// The credentials cannot be used.
    #[error("the credentials cannot be used: {problem}")]
    InvalidCredentials { problem: String },
    /// Google refused the credentials.
    #[error("Google refused the credentials ({message}): check that the key still exists and is enabled")]
    CredentialsRefused { message: String },
    /// The account may not read the cluster.
    #[error("the account may not read the cluster ({message}): grant it roles/container.viewer")]
    PermissionDenied { message: String },
    /// There is no such cluster.
    #[error("cluster {cluster} does not exist: check project, location and name")]
    ClusterNotFound { cluster: String },
    /// The cluster does not serve.
    #[error("cluster {cluster} is {status}")]
    ClusterNotRunning { cluster: String, status: String },
    /// The cluster has no endpoint of the kind that is asked for.
    #[error("cluster {cluster} has no {kind} endpoint: choose another credentials.gke.endpoint")]
    NoEndpoint { cluster: String, kind: &'static str },
    /// Something that may go by itself.
    #[error("{what}: {problem}")]
    Transient { what: &'static str, problem: String, retry_after: Option<Duration> },
}

impl GkeError {
    /// The reason in conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::UnsupportedCredentialType { .. } => "UnsupportedCredentialType",
            Self::InvalidCredentials { .. } | Self::CredentialsRefused { .. } => "CredentialsRefused",
            Self::PermissionDenied { .. } => "PermissionDenied",
            Self::ClusterNotFound { .. } => "ClusterNotFound",
            Self::ClusterNotRunning { .. } | Self::NoEndpoint { .. } => "ClusterNotRunning",
            Self::Transient { .. } => "Unreachable",
        }
    }

    /// True if another try may go well without anything being edited.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Transient { .. })
    }
}

/// Text of another party: no control characters, and not too long.
pub(super) fn quoted(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(256).collect()
}
