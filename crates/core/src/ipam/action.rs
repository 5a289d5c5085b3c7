//! Output of the planner: the steps that are due, each safe to execute alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::cloud::{InstanceId, InterfaceId};
use super::journal::Claim;
use super::reason::{Event, Unmet};
use super::types::{CallKind, Moment, NamespaceName, NodeName, PrivateIpStatus};

/// What is due, and what cannot be met.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Next steps; what follows them becomes due once the world shows that they happened.
    pub actions: Vec<Action>,
    /// Wishes that cannot be met.
    pub unmet: Vec<Unmet>,
    /// Conditions to report where they are first seen.
    pub events: Vec<Event>,
    /// Instances whose next describe is waited for.
    pub awaiting: BTreeSet<InstanceId>,
    /// What OVN-Kubernetes is to know of nodes.
    pub nodes: BTreeMap<NodeName, NodeChange>,
    /// What CloudPrivateIPConfigs need, of those that we serve.
    pub private_ips: BTreeMap<Ipv4Addr, PrivateIpChange>,
    /// When the plan changes without any other change.
    pub wake: Option<Moment>,
}

/// One write or one call.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Creates a claim. If the object exists already, the next plan draws another address.
    CreateClaim(ClaimWrite),
    /// Changes a claim: spec first, then status. A change of only one of them is one write.
    UpdateClaim(ClaimWrite),
    /// Records what a describe showed.
    ConfirmClaim(ClaimWrite),
    /// Takes the finalizer off and deletes the claim.
    DeleteClaim(Ipv4Addr),
    /// Calls the cloud. The journal names the target already.
    Call(CloudCall),
    /// Replaces `egressIPs` and the address annotations of a HostSubnet.
    SetHostSubnet {
        /// Its name.
        name: NodeName,
        /// All addresses, those of others included.
        egress_ips: BTreeSet<Ipv4Addr>,
        /// All address annotations.
        annotations: BTreeMap<Ipv4Addr, NamespaceName>,
    },
    /// Replaces `egressIPs` and the annotation of a NetNamespace.
    SetNetNamespace {
        /// Its name.
        name: NamespaceName,
        /// All addresses.
        egress_ips: BTreeSet<Ipv4Addr>,
        /// The annotation; none removes it.
        annotation: Option<Arc<str>>,
    },
    /// Sets annotations of a Namespace.
    AnnotateNamespace {
        /// Its name.
        name: NamespaceName,
        /// The list; `modified` is set or removed with it. None leaves both alone.
        egressips: Option<ListAnnotation>,
        /// Why the namespace is not served; none removes the annotation.
        status: Option<Arc<str>>,
    },
}

/// What OVN-Kubernetes is to know of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeChange {
    /// It may be used: the label is to be set.
    pub label: bool,
    /// Its interface, as the annotation says it. None leaves the annotation alone.
    pub config: Option<Arc<str>>,
}

/// What a CloudPrivateIPConfig needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrivateIpChange {
    /// Sets the finalizer, or removes it.
    Finalizer(bool),
    /// Replaces the status.
    Status(PrivateIpStatus),
}

/// What happens to the annotations `egressips` and `modified`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListAnnotation {
    /// This list, and `modified` is the time of the write.
    Write(Arc<str>),
    /// Both go.
    Remove,
}

/// A claim to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimWrite {
    /// The address.
    pub address: Ipv4Addr,
    /// The claim as it should be.
    pub claim: Claim,
    /// What the write means.
    pub step: Step,
}

/// A cloud call. Several addresses for one interface share it; if it fails, they are tried one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudCall {
    /// What is called.
    pub kind: CallKind,
    /// It serves addresses whose node was lost, so it goes first.
    pub failover: bool,
    /// The interface.
    pub interface: InterfaceId,
    /// Its instance.
    pub instance: InstanceId,
    /// The addresses.
    pub addresses: BTreeSet<Ipv4Addr>,
}

/// What a write of a claim means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The address was chosen.
    Reserve,
    /// The address was found in service and is taken over as it is.
    Adopt,
    /// The target of a call is recorded.
    Target,
    /// The address leaves its node for another one.
    Move,
    /// The address is missing where it should be, and is put there again.
    Repair,
    /// A describe shows it where it should be.
    Attached,
    /// Everything is written.
    Published,
    /// Nobody wants it any more.
    Release,
    /// Another zone or the address itself failed for good.
    RollBack,
    /// A describe no longer shows it.
    Gone,
    /// Somebody else has it.
    Block,
}

impl Step {
    /// The event on the namespace once the write is done, if it is worth one.
    pub const fn event(self) -> Option<&'static str> {
        match self {
            Self::Published => Some("EgressIPAssigned"),
            Self::Gone => Some("EgressIPReleased"),
            Self::Move => Some("EgressIPMoved"),
            Self::Repair => Some("EgressIPRepaired"),
            Self::RollBack => Some("RolledBack"),
            Self::Block => Some("AddressInUse"),
            Self::Reserve | Self::Adopt | Self::Target | Self::Attached | Self::Release => None,
        }
    }
}
