//! How a cloud call fails: a bounded classification that decides what happens next.

use std::sync::Arc;

/// Why a cloud call failed. The drivers classify by error code, never by the text of a message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum CloudError {
    /// The account's request rate is exceeded. Nothing happened.
    #[error("the cloud throttles this account: the call is retried more slowly")]
    Throttled,
    /// The address is on another interface.
    #[error("the address is in use by {}", by.as_deref().unwrap_or("another interface"))]
    InUse {
        /// The interface that has it, if it could be found.
        by: Option<Arc<str>>,
    },
    /// The interface has as many addresses as its instance type allows.
    #[error("the interface has no room for another address: use a larger instance type or add nodes")]
    LimitExceeded,
    /// The address is not one of the interface's subnet, or is reserved by the cloud.
    #[error("the address does not lie in the subnet of the interface, or is reserved by the cloud")]
    OutsideSubnet,
    /// The subnet has no free address.
    #[error("the subnet has no free address: free some, or add a subnet with nodes")]
    SubnetFull,
    /// The interface does not exist.
    #[error("the interface does not exist")]
    NoSuchInterface,
    /// The instance does not exist.
    #[error("the instance does not exist")]
    NoSuchInstance,
    /// The credentials do not allow the action.
    #[error("the credentials do not allow `{action}`: add it to the policy of the role")]
    Denied {
        /// The action that is not allowed, such as `ec2:AssignPrivateIpAddresses`.
        action: Arc<str>,
    },
    /// The answer got lost, or the cloud has a fault: the call may have happened.
    #[error("the cloud did not answer properly: the call may have happened and is repeated after a look")]
    Transient,
    /// Anything else.
    #[error("{code}: {message}")]
    Unknown {
        /// The code of the cloud.
        code: Arc<str>,
        /// Its message.
        message: Arc<str>,
    },
}

/// What a failure means for the attempt that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The rate is too high. Not counted as a failure of the namespace.
    Throttled,
    /// Worth another try as it is.
    Transient,
    /// The node cannot take the address; another one may.
    Node,
    /// The address cannot be had; another one may.
    Address,
    /// Fails until somebody changes something.
    Permanent,
}

impl CloudError {
    /// The word for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Throttled => "CloudThrottled",
            Self::InUse { .. } => "AddressInUse",
            Self::LimitExceeded => "NoCapacity",
            Self::OutsideSubnet => "OutsideSubnet",
            Self::SubnetFull => "SubnetFull",
            Self::NoSuchInterface => "NoSuchInterface",
            Self::NoSuchInstance => "NoSuchInstance",
            Self::Denied { .. } => "CloudDenied",
            Self::Transient => "CloudUnavailable",
            Self::Unknown { .. } => "CloudError",
        }
    }

    /// What it means for the attempt.
    pub const fn severity(&self) -> Severity {
        match self {
            Self::Throttled => Severity::Throttled,
            Self::Transient | Self::Unknown { .. } => Severity::Transient,
            Self::LimitExceeded | Self::NoSuchInterface | Self::NoSuchInstance => Severity::Node,
            Self::InUse { .. } => Severity::Address,
            Self::OutsideSubnet | Self::SubnetFull | Self::Denied { .. } => Severity::Permanent,
        }
    }

    /// True if the call may have happened although it failed: only a describe shows it.
    pub const fn may_have_happened(&self) -> bool {
        matches!(self, Self::Transient | Self::Unknown { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_a_reason_and_a_message() {
        let all = [
            CloudError::Throttled,
            CloudError::InUse { by: Some("eni-7".into()) },
            CloudError::InUse { by: None },
            CloudError::LimitExceeded,
            CloudError::OutsideSubnet,
            CloudError::SubnetFull,
            CloudError::NoSuchInterface,
            CloudError::NoSuchInstance,
            CloudError::Denied { action: "ec2:AssignPrivateIpAddresses".into() },
            CloudError::Transient,
            CloudError::Unknown { code: "Odd".into(), message: "text".into() },
        ];
        for error in all {
            assert!(error.reason().chars().all(char::is_alphanumeric), "{error:?}");
            assert!(!error.to_string().is_empty(), "{error:?}");
        }
    }

    #[test]
    fn only_a_lost_answer_leaves_the_outcome_open() {
        assert!(CloudError::Transient.may_have_happened());
        assert!(!CloudError::Throttled.may_have_happened());
        assert!(!CloudError::Denied { action: "x".into() }.may_have_happened());
    }
}
