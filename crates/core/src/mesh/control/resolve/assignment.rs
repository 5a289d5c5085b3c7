//! What is assigned to each proxy: configuration units, the ports they bind, and the shared units they need.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::compiled::{CompiledRoute, CompiledTarget};
use super::dependencies::GraphNode;
use crate::mesh::control::Diagnostic;
use crate::mesh::control::types::{ObjectName, Protocol, Socket};
use crate::mesh::control::wire::{self, ConfigKind};
use crate::mesh::control::world::{ProxyImplementation, Transport};

/// The configuration that one object puts on a proxy.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ConfigUnit {
    pub(super) clusters: Vec<Arc<wire::Cluster>>,
    pub(super) routes: Vec<Arc<wire::Route>>,
    pub(super) rules: Vec<Arc<wire::Rule>>,
    pub(super) rulelist: Option<(Arc<str>, Vec<Arc<str>>)>,
    pub(super) listener: Option<Arc<wire::Listener>>,
    pub(super) insertion: Option<wire::Insertion>,
    /// The port it opens.
    pub(super) claim: Option<PortClaim>,
    /// Routes and Targets that the proxy needs as well.
    pub(super) needs: BTreeSet<GraphNode>,
}

/// A port that a listener binds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PortClaim {
    pub(super) port: (Transport, u16),
    pub(super) address: Option<IpAddr>,
    /// The only client of a singleton: address and port.
    pub(super) peer: Option<(String, u64)>,
    pub(super) created: i64,
}

/// The objects that claim a port, by creation time and name.
pub(super) type Claimants = BTreeMap<(i64, ObjectName), Arc<ConfigUnit>>;

/// What is assigned to one proxy.
#[derive(Debug, Clone, Default)]
pub(super) struct ProxyAssignment {
    pub(super) units: BTreeMap<GraphNode, Arc<ConfigUnit>>,
    /// Claims by port, the oldest first.
    pub(super) claims: BTreeMap<(Transport, u16), Claimants>,
    /// VirtualServices that do not get their port, and why.
    pub(super) port_conflicts: BTreeMap<ObjectName, Diagnostic>,
    /// What is needed: the number of users with a JSONSocket listener, and of all others.
    pub(super) needs: BTreeMap<GraphNode, [usize; 2]>,
}

impl ConfigUnit {
    pub(super) fn of_target(compiled: &CompiledTarget) -> Arc<Self> {
        Arc::new(Self { clusters: vec![Arc::clone(&compiled.cluster)], ..Self::default() })
    }

    pub(super) fn of_route(route: &CompiledRoute) -> Arc<Self> {
        Arc::new(Self { clusters: route.clusters.clone(), routes: vec![Arc::clone(&route.route)], ..Self::default() })
    }

    pub(super) fn keys(&self) -> Vec<(ConfigKind, Arc<str>)> {
        let clusters = self.clusters.iter().map(|one| (ConfigKind::Cluster, Arc::clone(&one.name)));
        let routes = self.routes.iter().map(|one| (ConfigKind::Route, Arc::clone(&one.name)));
        let rules = self.rules.iter().map(|one| (ConfigKind::Rule, Arc::clone(&one.name)));
        let lists = self.rulelist.iter().map(|one| (ConfigKind::RuleList, Arc::clone(&one.0)));
        let listeners = self.listener.iter().map(|one| (ConfigKind::Listener, Arc::clone(&one.name)));
        clusters.chain(routes).chain(rules).chain(lists).chain(listeners).collect()
    }
}

impl PortClaim {
    pub(super) fn of(listener: &Socket, created: i64) -> Option<Self> {
        let opened = listener.opened();
        let transport = if opened.protocol == Protocol::Udp { Transport::Udp } else { Transport::Tcp };
        let port = (transport, listener.port()?);
        Some(Self { port, address: listener.address(), peer: peer(&opened.fields), created })
    }

    pub(super) fn conflicts_with(&self, other: &Self, implementation: ProxyImplementation) -> bool {
        let overlap = match (self.address, other.address) {
            (Some(one), Some(other)) => one == other || one.is_unspecified() || other.is_unspecified(),
            _ => true,
        };
        let apart = matches!((&self.peer, &other.peer), (Some(one), Some(other)) if one != other);
        overlap && !(apart && implementation == ProxyImplementation::Portolan)
    }
}

/// The only client of a listener, if it is a singleton.
fn peer(fields: &Map<String, Value>) -> Option<(String, u64)> {
    let connect = fields.get("connect")?;
    let is_server = fields.get("options").and_then(|options| options.get("mode")).is_some_and(|mode| mode == "server");
    let address = connect.get("address")?.as_str()?.to_owned();
    (!is_server).then_some((address, connect.get("port")?.as_u64()?))
}
