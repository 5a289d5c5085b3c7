//! What cannot be met, as data: one bounded vocabulary for conditions, events and metrics.

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::types::{NamespaceName, NodeName};

/// Something that a namespace should have and does not get.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unmet {
    /// The namespace.
    pub namespace: NamespaceName,
    /// Why, in one word.
    pub reason: Reason,
    /// Why, and what to do.
    pub message: String,
}

impl Unmet {
    /// As the namespace's annotation says it.
    pub(super) fn annotation(&self) -> Arc<str> {
        format!("{}: {}", self.reason.as_str(), self.message).into()
    }
}

/// Something to report besides what is unmet, on transitions only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A namespace has a list and did not opt in.
    NotOptedIn(NamespaceName),
    /// A HostSubnet has `egressCIDRs`, so its node gets no address of ours.
    EgressCidrsSet(NodeName),
    /// A HostSubnet has an address that is not in the journal. It is left alone.
    ForeignEgressIp(NodeName, Ipv4Addr),
}

/// Why something is not met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the messages say what each of them means")]
pub enum Reason {
    InvalidRequest,
    AddressInUse,
    NoCapacity,
    NoNodeInZone,
    NotEnoughNodes,
    SubnetFull,
    NetNamespaceMissing,
    SharedNetId,
    ZoneWithoutAddress,
    CloudDenied,
    CloudThrottled,
    CloudUnavailable,
    CloudError,
    NetworkUnknown,
}

impl Reason {
    /// As conditions, events and metrics spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "InvalidRequest",
            Self::AddressInUse => "AddressInUse",
            Self::NoCapacity => "NoCapacity",
            Self::NoNodeInZone => "NoNodeInZone",
            Self::NotEnoughNodes => "NotEnoughNodes",
            Self::SubnetFull => "SubnetFull",
            Self::NetNamespaceMissing => "NetNamespaceMissing",
            Self::SharedNetId => "SharedNetID",
            Self::ZoneWithoutAddress => "ZoneWithoutAddress",
            Self::CloudDenied => "CloudDenied",
            Self::CloudThrottled => "CloudThrottled",
            Self::CloudUnavailable => "CloudUnavailable",
            Self::CloudError => "CloudError",
            Self::NetworkUnknown => "NetworkUnknown",
        }
    }

    /// True if the namespace has everything it asked for nevertheless.
    pub const fn is_notice(self) -> bool {
        matches!(self, Self::ZoneWithoutAddress)
    }
}

impl Event {
    /// The reason of the event.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotOptedIn(_) => "NotOptedIn",
            Self::EgressCidrsSet(_) => "EgressCIDRsSet",
            Self::ForeignEgressIp(..) => "ForeignEgressIP",
        }
    }
}
