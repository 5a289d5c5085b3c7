//! What cannot be met, as data: one bounded vocabulary for conditions, events and metrics.

use super::types::RemoteName;

/// Something that a Service should have and does not get.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unmet {
    /// The remote it is about.
    pub remote: Option<RemoteName>,
    /// Why, in one word.
    pub reason: Reason,
    /// Why, and what to do.
    pub message: String,
}

/// Why something is not met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the messages say what each of them means")]
pub enum Reason {
    NameConflict,
    OwnedByOtherRemote,
    NamespaceMissing,
    NamespaceTerminating,
    NamespaceProtected,
    NameTooLong,
    LimitExceeded,
    NoUsableNode,
    NoNodePort,
    NoIngressAddress,
    HostnameIngress,
    NamedTargetPort,
    NodePortTaken,
    NoCommonIpFamily,
    AddressNotAllowed,
    PortNotAllowed,
    RemoteStale,
    RemoteAmbiguous,
    SelectorPresent,
    NotMirrorable,
    EndpointSlicesForbidden,
}

impl Reason {
    /// As conditions, events and metrics spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NameConflict => "NameConflict",
            Self::OwnedByOtherRemote => "OwnedByOtherRemote",
            Self::NamespaceMissing => "NamespaceMissing",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::NamespaceProtected => "NamespaceProtected",
            Self::NameTooLong => "NameTooLong",
            Self::LimitExceeded => "LimitExceeded",
            Self::NoUsableNode => "NoUsableNode",
            Self::NoNodePort => "NoNodePort",
            Self::NoIngressAddress => "NoIngressAddress",
            Self::HostnameIngress => "HostnameIngress",
            Self::NamedTargetPort => "NamedTargetPort",
            Self::NodePortTaken => "NodePortTaken",
            Self::NoCommonIpFamily => "NoCommonIPFamily",
            Self::AddressNotAllowed => "AddressNotAllowed",
            Self::PortNotAllowed => "PortNotAllowed",
            Self::RemoteStale => "RemoteStale",
            Self::RemoteAmbiguous => "RemoteAmbiguous",
            Self::SelectorPresent => "SelectorPresent",
            Self::NotMirrorable => "NotMirrorable",
            Self::EndpointSlicesForbidden => "EndpointSlicesForbidden",
        }
    }
}
