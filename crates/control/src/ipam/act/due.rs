//! The actions of a plan, by object.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use portolan_core::ipam::{
    Action, ClaimWrite, CloudCall, ListAnnotation, NamespaceName, NodeChange, NodeName, Plan, PrivateIpChange,
};

/// What a plan wants done.
#[derive(Default)]
pub(in super::super) struct Due {
    pub(super) claims: BTreeMap<Ipv4Addr, ClaimChange>,
    pub(super) host_subnets: BTreeMap<NodeName, HostSubnetChange>,
    pub(super) net_namespaces: BTreeMap<NamespaceName, NetNamespaceChange>,
    pub(super) namespaces: BTreeMap<NamespaceName, NamespaceChange>,
    pub(super) nodes: BTreeMap<NodeName, NodeChange>,
    pub(super) private_ips: BTreeMap<Ipv4Addr, PrivateIpChange>,
    /// Those for lost addresses first.
    pub(super) calls: Vec<CloudCall>,
}

pub(super) enum ClaimChange {
    Create(ClaimWrite),
    Update(ClaimWrite),
    Delete,
}

pub(super) struct HostSubnetChange {
    pub(super) egress_ips: BTreeSet<Ipv4Addr>,
    pub(super) annotations: BTreeMap<Ipv4Addr, NamespaceName>,
}

pub(super) struct NetNamespaceChange {
    pub(super) egress_ips: BTreeSet<Ipv4Addr>,
    pub(super) annotation: Option<Arc<str>>,
}

pub(super) struct NamespaceChange {
    pub(super) egressips: Option<ListAnnotation>,
    pub(super) status: Option<Arc<str>>,
}

impl Due {
    /// Takes what is to be done out of a plan.
    pub(in super::super) fn of(plan: &mut Plan) -> Self {
        let mut due = Self {
            nodes: std::mem::take(&mut plan.nodes),
            private_ips: std::mem::take(&mut plan.private_ips),
            ..Self::default()
        };
        for action in std::mem::take(&mut plan.actions) {
            match action {
                Action::CreateClaim(write) => {
                    due.claims.entry(write.address).or_insert(ClaimChange::Create(write));
                }
                Action::UpdateClaim(write) | Action::ConfirmClaim(write) => {
                    due.claims.entry(write.address).or_insert(ClaimChange::Update(write));
                }
                Action::DeleteClaim(address) => {
                    due.claims.entry(address).or_insert(ClaimChange::Delete);
                }
                Action::Call(call) => due.calls.push(call),
                Action::SetHostSubnet { name, egress_ips, annotations } => {
                    due.host_subnets.insert(name, HostSubnetChange { egress_ips, annotations });
                }
                Action::SetNetNamespace { name, egress_ips, annotation } => {
                    due.net_namespaces.insert(name, NetNamespaceChange { egress_ips, annotation });
                }
                Action::AnnotateNamespace { name, egressips, status } => {
                    due.namespaces.insert(name, NamespaceChange { egressips, status });
                }
            }
        }
        due
    }
}
