//! Compiled objects: clusters and routes as a proxy holds them, and what they depend on.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;

use super::dependencies::{GeneratedTarget, GraphNode, PodSetId};
use crate::mesh::control::Diagnostic;
use crate::mesh::control::types::{ObjectName, Socket};
use crate::mesh::control::wire;

/// A compiled Target.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CompiledTarget {
    pub(super) cluster: Arc<wire::Cluster>,
    pub(super) constraints: PlacementConstraints,
    /// The VirtualService that it calls.
    pub(super) callee: Option<ObjectName>,
}

/// Conditions that a pod must meet to hold a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PlacementConstraints {
    /// The pod must not use the host network, for this reason.
    pub(super) not_on_host: Option<String>,
    /// The pod must allow Stdio.
    pub(super) stdio: bool,
    /// The proxy must be Portolan's, for this reason.
    pub(super) only_portolan: Option<String>,
    /// The pod must be in this set.
    pub(super) only_at: Option<PodSetId>,
    /// It connects to a WebSocket.
    pub(super) reaches_websocket: bool,
}

/// A compiled Route.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CompiledRoute {
    pub(super) route: Arc<wire::Route>,
    pub(super) clusters: Vec<Arc<wire::Cluster>>,
    pub(super) summary: RouteSummary,
    /// Diagnostics of inline Targets.
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// What users of a Route depend on.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RouteSummary {
    /// Hops that cannot be resolved, and why.
    pub(super) unmet: Vec<Diagnostic>,
    /// Targets that its hops name.
    pub(super) needs: BTreeSet<GraphNode>,
    /// Constraints of inline Targets.
    pub(super) constraints: Vec<PlacementConstraints>,
    /// VirtualServices that it calls.
    pub(super) callees: BTreeSet<ObjectName>,
    pub(super) reaches_websocket: bool,
}

/// What the name of a hop resolves to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ResolvedHop {
    /// A user's Target.
    Target(ObjectName),
    /// A Target to be generated.
    Generated(GeneratedTarget),
}

/// How clients connect to a callee.
#[derive(Debug, Clone)]
pub(super) struct ReachableCallee {
    pub(super) socket: Socket,
    pub(super) tls: Option<Value>,
    pub(super) at: CalleeAddress,
}

/// Where clients connect to.
#[derive(Debug, Clone)]
pub(super) enum CalleeAddress {
    /// The addresses of these pods.
    Pods(PodSetId),
    /// A DNS name outside the cluster.
    Name(Arc<str>),
    /// A socket file, reachable from these pods only.
    File(String, PodSetId),
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}
