//! What of a Service cannot be had from a gateway. Reasons are words for conditions and events.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::types::Protocol;

/// Why a Service is not announced at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It has ports of a transport that gateways do not serve.
    UnsupportedProtocol,
    /// It is to be reached from some addresses only, and the gateway would let everybody in.
    SourceRanges,
    /// It asks for an address that is none.
    InvalidAddress(Arc<str>),
}

impl Refusal {
    /// The word for conditions.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::UnsupportedProtocol => "UnsupportedProtocol",
            Self::SourceRanges => "SourceRangesNotSupported",
            Self::InvalidAddress(_) => "InvalidAddress",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnsupportedProtocol => {
                f.write_str("gateways serve TCP and UDP only: move ports of other protocols to another Service")
            }
            Self::SourceRanges => f.write_str(
                "the gateway cannot limit sources, and would admit everybody: remove spec.loadBalancerSourceRanges",
            ),
            Self::InvalidAddress(text) => {
                write!(f, "spec.loadBalancerIP `{text}` is not an IP address: correct or remove it")
            }
        }
    }
}

/// What of an announced Service is not as it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unhonoured {
    /// Connections of one client may reach different pods.
    SessionAffinity,
    /// Pods do not see the addresses of clients.
    LocalTraffic,
    /// The gateway gave another address than the one asked for.
    AddressDiffers {
        /// The one asked for.
        requested: IpAddr,
        /// The one given.
        given: IpAddr,
    },
    /// The load balancer was made in another group.
    GroupDiffers {
        /// The group that it is in.
        group: Arc<str>,
    },
    /// Two ports of the Service lead to one port of the pods; only the first gets traffic.
    PortsShareTarget {
        /// The port that gets none.
        port: Arc<str>,
        /// The number on the pods.
        number: u16,
        /// Its transport.
        protocol: Protocol,
    },
    /// Endpoints on no known node: there is no tunnel to them.
    EndpointsWithoutNode(usize),
}

impl Unhonoured {
    /// The word for conditions.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::SessionAffinity => "SessionAffinityNotSupported",
            Self::LocalTraffic => "SourceAddressNotPreserved",
            Self::AddressDiffers { .. } => "AddressDiffers",
            Self::GroupDiffers { .. } => "GroupDiffers",
            Self::PortsShareTarget { .. } => "PortsShareTarget",
            Self::EndpointsWithoutNode(_) => "EndpointsWithoutNode",
        }
    }
}

impl fmt::Display for Unhonoured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SessionAffinity => f.write_str(
                "the gateway has no session affinity, connections of one client may reach different pods: remove \
                 spec.sessionAffinity if that is acceptable",
            ),
            Self::LocalTraffic => f.write_str(
                "pods do not see the addresses of clients behind a gateway: set spec.externalTrafficPolicy to Cluster",
            ),
            Self::AddressDiffers { requested, given } => write!(
                f,
                "spec.loadBalancerIP is {requested}, and the gateway gave {given}: ask the provider whether its group \
                 allows pinned addresses, then delete and create the Service again"
            ),
            Self::GroupDiffers { group } => write!(
                f,
                "the load balancer is in group {group} of the gateway: delete and create the Service again to move it"
            ),
            Self::PortsShareTarget { port, number, protocol } => write!(
                f,
                "port `{port}` gets no traffic, as another port leads to {number}/{} of the pods, too: give each port \
                 of the Service a port of its own on the pods",
                protocol.as_str()
            ),
            Self::EndpointsWithoutNode(count) => write!(
                f,
                "{count} endpoints get no traffic, as they name no node with an address: only pods on nodes of this \
                 cluster can be reached through a gateway"
            ),
        }
    }
}
