//! Input of the planner: validated, ordered, without Kubernetes types.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::cloud::{CloudNode, CloudSubnet, InstanceId, InterfaceId, SubnetId, Zone};
use super::error::CloudError;

/// Name of a namespace, and of its NetNamespace.
pub type NamespaceName = Arc<str>;
/// Name of a node, and of its HostSubnet.
pub type NodeName = Arc<str>;
/// Milliseconds since the Unix epoch, of a clock that never goes back within a process.
pub type Moment = u64;

/// Everything the planner may use, besides the journal.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct World {
    /// Seed of all draws: a hash of the cluster's identity, so that every replica and every restart draws the same.
    pub seed: u64,
    /// When this was observed. May be coarse.
    pub now: Moment,
    /// Settings.
    pub options: Options,
    /// Every namespace.
    pub namespaces: BTreeMap<NamespaceName, Namespace>,
    /// Every NetNamespace.
    pub net_namespaces: BTreeMap<NamespaceName, NetNamespace>,
    /// Every HostSubnet.
    pub host_subnets: BTreeMap<NodeName, HostSubnet>,
    /// Every node.
    pub nodes: BTreeMap<NodeName, Node>,
    /// What the cloud described. None until one full describe has answered: nothing is decided before.
    pub cloud: Option<Cloud>,
    /// Why no full describe has answered yet, if one failed.
    pub cloud_problem: Option<CloudError>,
    /// What another controller attached, if one is live: then no cloud call is due, addresses are published first.
    pub cloud_controller: Option<BTreeMap<Ipv4Addr, PrivateIp>>,
    /// Addresses are published before they are attached, also without another controller.
    pub publish_first: bool,
}

/// An address that a CloudPrivateIPConfig asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrivateIp {
    /// Distinguishes it from an earlier one of the same address.
    pub uid: Arc<str>,
    /// The node that should have the address.
    pub wanted: NodeName,
    /// It is being deleted.
    pub deleting: bool,
    /// It has the finalizer of its controller.
    pub has_finalizer: bool,
    /// What it says about the address.
    pub status: PrivateIpStatus,
}

/// What became of an address that a CloudPrivateIPConfig asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrivateIpStatus {
    /// The node that has it, or is about to.
    pub node: Option<NodeName>,
    /// Whether the node has it.
    pub assigned: Assigned,
}

/// Whether a node has an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Assigned {
    /// Not yet.
    #[default]
    Pending,
    /// It has.
    Yes,
    /// It has not, and why.
    Failed(Arc<str>),
}

impl PrivateIp {
    /// The node that has it, or else should.
    pub(super) fn node(&self) -> &NodeName {
        self.status.node.as_ref().unwrap_or(&self.wanted)
    }

    /// The node that has it.
    pub(super) fn assigned(&self) -> Option<&NodeName> {
        self.status.node.as_ref().filter(|_| self.status.assigned == Assigned::Yes)
    }
}

/// Settings of the planner. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// A node that is not ready for longer has lost its addresses.
    pub node_grace: u64,
    /// Publishes the zones that work although another one fails.
    pub partial: bool,
    /// A released address is not drawn again for this long.
    pub cooling: u64,
    /// An assignment that fails for this long without a permanent cause is rolled back.
    pub rollback_after: u64,
    /// A call that succeeded and is still not visible after this long is repeated. An older describe is no proof
    /// that an address may be taken from another interface.
    pub visible_within: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { node_grace: 30_000, partial: false, cooling: 120_000, rollback_after: 600_000, visible_within: 10_000 }
    }
}

/// A namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Distinguishes it from an earlier one of the same name.
    pub uid: Arc<str>,
    /// It has a non-empty annotation `egressipam`.
    pub opted_in: bool,
    /// Annotation `egressips`, as it is.
    pub egressips: Option<Arc<str>>,
    /// It has the annotation `modified`.
    pub modified: bool,
    /// Annotation that says why it is not served.
    pub status: Option<Arc<str>>,
    /// It is being deleted: it keeps what it has and gets nothing more.
    pub terminating: bool,
}

/// A NetNamespace: who leaves with which addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetNamespace {
    /// Number of the virtual network.
    pub netid: u32,
    /// Its addresses.
    pub egress_ips: BTreeSet<Ipv4Addr>,
    /// Annotation `egressips`.
    pub annotation: Option<Arc<str>>,
}

/// A HostSubnet: which node hosts which addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostSubnet {
    /// Its addresses.
    pub egress_ips: BTreeSet<Ipv4Addr>,
    /// `egressCIDRs` is set: the SDN itself fills `egressIPs`.
    pub egress_cidrs: bool,
    /// Annotations named after an address, with the namespace.
    pub annotations: BTreeMap<Ipv4Addr, Arc<str>>,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// The selector of compute nodes matches it.
    pub compute: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// Since when it is not ready; none if it is.
    pub not_ready_since: Option<Moment>,
    /// Its zone by label; none is no contradiction.
    pub zone: Option<Zone>,
    /// OVN-Kubernetes may assign addresses to it: label `k8s.ovn.org/egress-assignable`.
    pub egress_assignable: bool,
    /// What OVN-Kubernetes knows of its interface: annotation `cloud.network.openshift.io/egress-ipconfig`.
    pub egress_ip_config: Option<Arc<str>>,
    /// Its instance by `spec.providerID`.
    pub instance: Option<InstanceId>,
}

/// What the cloud described.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cloud {
    /// Instances of the cluster: those of nodes, and those that the journal names. What is not here is gone.
    pub nodes: BTreeMap<InstanceId, Seen<CloudNode>>,
    /// Subnets of these instances.
    pub subnets: BTreeMap<SubnetId, Seen<CloudSubnet>>,
}

/// Something described, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen<T> {
    /// What was described.
    pub what: T,
    /// When the describe began.
    pub began: Moment,
}

/// Calls that this process made. Lost at a restart, when no describe is older than a call either.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calls {
    /// When the last call for an interface ended, successful or not.
    ended: BTreeMap<InterfaceId, Moment>,
    /// Interfaces with a call under way, and how many.
    in_flight: BTreeMap<InterfaceId, u32>,
    /// Calls that succeeded, by address.
    succeeded: BTreeMap<Ipv4Addr, SucceededCall>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SucceededCall {
    kind: CallKind,
    interface: InterfaceId,
    at: Moment,
}

/// A kind of cloud call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallKind {
    /// Puts addresses that nobody has on an interface.
    Assign,
    /// Moves addresses from another interface of ours to this one.
    Take,
    /// Takes addresses off an interface.
    Release,
}

impl Calls {
    /// Notes that a call begins.
    pub fn begin(&mut self, interface: &InterfaceId) {
        *self.in_flight.entry(interface.clone()).or_default() += 1;
    }

    /// Notes that a call ended, however it went.
    pub fn end(&mut self, interface: &InterfaceId, at: Moment) {
        if let Some(count) = self.in_flight.get_mut(interface) {
            *count -= 1;
            if *count == 0 {
                self.in_flight.remove(interface);
            }
        }
        let last = self.ended.entry(interface.clone()).or_default();
        *last = at.max(*last);
    }

    /// Notes that a call succeeded for an address: it is not repeated before it had time to become visible.
    pub fn succeeded(&mut self, kind: CallKind, interface: &InterfaceId, address: Ipv4Addr, at: Moment) {
        self.succeeded.insert(address, SucceededCall { kind, interface: interface.clone(), at });
    }

    /// True if this process made no call yet.
    pub(super) fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.in_flight.is_empty()
    }

    /// Whether a describe that began then may be used for decisions about an interface.
    pub(super) fn is_newer(&self, interface: &InterfaceId, began: Moment) -> bool {
        !self.in_flight.contains_key(interface) && self.ended.get(interface).is_none_or(|ended| began > *ended)
    }

    /// Until when such a call is waited for; none if it was not made.
    pub(super) fn visible_by(
        &self,
        kind: CallKind,
        interface: &InterfaceId,
        address: Ipv4Addr,
        within: u64,
    ) -> Option<Moment> {
        let call = self.succeeded.get(&address)?;
        (call.kind == kind && call.interface == *interface).then(|| call.at.saturating_add(within))
    }
}
