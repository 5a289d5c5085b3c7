//! Why AWS cannot be used, and what the codes of EC2 mean.

use portolan_core::ipam::CloudError;

/// Why there is no client, or no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AwsError {
    /// Nobody says which region.
    #[error(
        "the AWS region is not known: set AWS_REGION, or `region` in the profile (the metadata service did not answer: {problem})"
    )]
    NoRegion {
        /// Why the metadata service did not say.
        problem: String,
    },
    /// An endpoint that is not used.
    #[error("{variable}: `{url}` cannot be used: {problem}")]
    InvalidEndpoint {
        /// Where it was set.
        variable: &'static str,
        /// The URL.
        url: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// Credentials that cannot be read or are of a kind that is not supported.
    #[error("AWS credentials from {origin} cannot be used: {problem}")]
    InvalidCredentials {
        /// Where they are from.
        origin: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// AWS refused to give credentials.
    #[error("AWS refused credentials from {origin}: {message}")]
    CredentialsRefused {
        /// Where they are from.
        origin: &'static str,
        /// What it said.
        message: String,
    },
    /// Something that may go by itself.
    #[error("{what}: {problem}")]
    Unreachable {
        /// What was tried.
        what: &'static str,
        /// What happened.
        problem: String,
    },
}

impl AwsError {
    /// The reason in conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoRegion { .. } => "NoRegion",
            Self::InvalidEndpoint { .. } => "InvalidEndpoint",
            Self::InvalidCredentials { .. } => "InvalidCredentials",
            Self::CredentialsRefused { .. } => "CredentialsRefused",
            Self::Unreachable { .. } => "CloudUnavailable",
        }
    }
}

impl From<AwsError> for CloudError {
    fn from(error: AwsError) -> Self {
        match error {
            AwsError::Unreachable { .. } => Self::Transient,
            AwsError::NoRegion { .. }
            | AwsError::InvalidEndpoint { .. }
            | AwsError::InvalidCredentials { .. }
            | AwsError::CredentialsRefused { .. } => {
                Self::Unknown { code: error.reason().into(), message: error.to_string().into() }
            }
        }
    }
}

/// Why a call did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// There were no credentials to sign with.
    Credentials(AwsError),
    /// The request never left: nothing happened.
    NotSent(String),
    /// No answer, or one that says nothing of the outcome: the call may have happened.
    Lost(String),
    /// EC2 refused it.
    Refused { code: String, message: String },
}

/// What a code asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Throttled,
    /// Keys or clock are out of date.
    Expired,
    /// Keys are not known, which other keys or a better clock may change.
    KeysRefused,
    Denied,
    Transient,
    LimitExceeded,
    NoSuchInterface,
    NoSuchInstance,
    NoSuchSubnet,
    SubnetFull,
    InUse,
    /// The call would have been allowed.
    DryRun,
    /// Only a look at the interface and its subnet shows it.
    Unclear,
}

pub(super) fn meaning(code: &str) -> Meaning {
    match code {
        "RequestLimitExceeded" | "Throttling" | "ThrottlingException" => Meaning::Throttled,
        "ExpiredToken" | "ExpiredTokenException" | "RequestExpired" => Meaning::Expired,
        "AuthFailure" | "SignatureDoesNotMatch" => Meaning::KeysRefused,
        "UnauthorizedOperation"
        | "InvalidClientTokenId"
        | "OptInRequired"
        | "AccessDenied"
        | "AccessDeniedException" => Meaning::Denied,
        "InternalError" | "InternalFailure" | "Unavailable" | "ServiceUnavailable" => Meaning::Transient,
        "PrivateIpAddressLimitExceeded" => Meaning::LimitExceeded,
        "InvalidNetworkInterfaceID.NotFound" | "InvalidNetworkInterfaceId.Malformed" => Meaning::NoSuchInterface,
        "InvalidInstanceID.NotFound" | "InvalidInstanceID.Malformed" => Meaning::NoSuchInstance,
        "InvalidSubnetID.NotFound" => Meaning::NoSuchSubnet,
        "InsufficientFreeAddressesInSubnet" | "InsufficientCidrBlocks" => Meaning::SubnetFull,
        "InvalidIPAddress.InUse" => Meaning::InUse,
        "DryRunOperation" => Meaning::DryRun,
        _ => Meaning::Unclear,
    }
}

impl Failure {
    pub(super) fn meaning(&self) -> Meaning {
        match self {
            Self::Refused { code, .. } => meaning(code),
            Self::Credentials(_) => Meaning::Unclear,
            Self::NotSent(_) | Self::Lost(_) => Meaning::Transient,
        }
    }

    /// The word in reports of calls.
    pub(super) fn result(&self, action: &'static str) -> &'static str {
        match self {
            Self::Refused { .. } if self.meaning() == Meaning::DryRun => "DryRun",
            Self::Credentials(_) | Self::NotSent(_) | Self::Lost(_) | Self::Refused { .. } => {
                self.clone().into_cloud(action).reason()
            }
        }
    }

    pub(super) fn into_cloud(self, action: &'static str) -> CloudError {
        let (code, message) = match self {
            Self::Credentials(error) => return error.into(),
            Self::NotSent(_) | Self::Lost(_) => return CloudError::Transient,
            Self::Refused { code, message } => (code, message),
        };
        match meaning(&code) {
            Meaning::Throttled => CloudError::Throttled,
            Meaning::Expired | Meaning::KeysRefused | Meaning::Denied => {
                CloudError::Denied { action: format!("ec2:{action}").into() }
            }
            Meaning::Transient => CloudError::Transient,
            Meaning::LimitExceeded => CloudError::LimitExceeded,
            Meaning::NoSuchInterface => CloudError::NoSuchInterface,
            Meaning::NoSuchInstance => CloudError::NoSuchInstance,
            Meaning::SubnetFull => CloudError::SubnetFull,
            Meaning::InUse => CloudError::InUse { by: None },
            Meaning::NoSuchSubnet | Meaning::DryRun | Meaning::Unclear => {
                CloudError::Unknown { code: code.into(), message: message.into() }
            }
        }
    }
}

/// Text of another party: no control characters, and not too long.
pub(super) fn quoted(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(256).collect()
}
