//! Units: one Envoy each, for a load balancer or for those that share an address.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::ports::PortNumber;

/// Which Envoy. Its text is the node id that Envoy gives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId {
    /// Namespace of the account.
    pub namespace: Arc<str>,
    /// The load balancer, or `share.` and the address that several share: no load balancer's name has a dot.
    pub name: Arc<str>,
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What one Envoy is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// The public address of all its listeners.
    pub address: IpAddr,
    /// The container image, where Envoy runs in a container. Empty: the operator's default.
    pub image: Arc<str>,
    /// The ServicePrefix that the address is of.
    pub prefix: Arc<str>,
    /// Its listeners.
    pub listeners: BTreeMap<PortNumber, Listener>,
}

/// A public port, and who is behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Name of the load balancer whose port it is.
    pub load_balancer: Arc<str>,
    /// Where connections and datagrams go.
    pub endpoints: BTreeSet<SocketAddr>,
}

/// What became of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The last wanted unit that every Envoy of it has answered for, listeners, clusters and endpoints. None until it has.
    pub answered: Option<Arc<Unit>>,
    /// Listeners that Envoy did not accept, with its words. It keeps the last good ones.
    pub rejected: BTreeMap<PortNumber, Arc<str>>,
    /// Whether it runs.
    pub state: State,
}

/// Whether the Envoy of a unit runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Started, not connected yet.
    Starting,
    /// Connected, and packets do not reach it: its pod is not ready.
    NotReady,
    /// Connected, and packets reach it.
    Running,
    /// Not wanted any more: connections end within the drain time.
    Draining,
    /// It ended, and is started again after a pause.
    Crashed(Arc<str>),
    /// There is no Envoy to start.
    Missing(Arc<str>),
    /// The Envoy that was found is too old.
    TooOld(Arc<str>),
    /// An Envoy with another identity connected.
    NodeMismatch(Arc<str>),
}
