//! What a unit is in Envoy's terms: a listener, a cluster and an assignment for each of its ports.
//!
//! Pure, and equal units give equal bytes: a version is a hash of the bytes, so it is the same in every replica and
//! after every restart.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use portolan_core::gateway::ports::{PortNumber, Protocol};
use portolan_core::gateway::unit::{Listener as UnitListener, Unit, UnitId};
use prost::Name;
use ring::digest::{SHA256, digest};

use super::proto::cluster::{
    AggregatedConfigSource, CircuitBreakers, Cluster, ClusterLoadAssignment, ConfigSource, DiscoveryType,
    EdsClusterConfig, Endpoint, LbEndpoint, LbPolicy, LocalityLbEndpoints, OutlierDetection, Thresholds,
};
use super::proto::listener::{
    Filter, FilterChain, HashPolicy, Listener, ListenerFilter, Matcher, OnMatch, Route, TcpProxy, TypedExtensionConfig,
    UdpListenerConfig, UdpProxyConfig, UdpSocketConfig,
};
use super::proto::{Address, Any, Duration};

/// A TCP connection on which nothing is sent for this long is closed.
const TCP_IDLE_SECONDS: i64 = 3_600;
/// A UDP session without datagrams for this long is forgotten.
const UDP_IDLE_SECONDS: i64 = 60;
const CONNECT_SECONDS: i64 = 2;
/// Endpoints that a connection is tried with.
const CONNECT_ATTEMPTS: u32 = 3;
/// Envoy's own limit is 1,024 connections for each cluster.
const NO_LIMIT: u32 = 1_000_000;
/// Failed connections in a row until an endpoint is left out.
const FAILURES: u32 = 5;
const EJECTION_SECONDS: i64 = 5;
const MAX_EJECTION_PERCENT: u32 = 50;
/// Envoy's own limit is 1,500 bytes, and longer datagrams are dropped.
const MAX_DATAGRAM_BYTES: u64 = 65_535;
const LARGE_DATAGRAMS: UdpSocketConfig = UdpSocketConfig { max_rx_datagram_size: Some(MAX_DATAGRAM_BYTES) };
/// Version 3 of the API.
const V3: i32 = 2;

/// A kind of resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Cluster,
    Assignment,
    Listener,
}

impl Kind {
    /// In the order in which they are added; removing goes the other way.
    pub(crate) const ALL: [Self; 3] = [Self::Cluster, Self::Assignment, Self::Listener];

    pub(crate) fn type_url(self) -> String {
        match self {
            Self::Cluster => Cluster::type_url(),
            Self::Assignment => ClusterLoadAssignment::type_url(),
            Self::Listener => Listener::type_url(),
        }
    }

    pub(crate) fn parse(type_url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == type_url)
    }
}

/// A resource as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resource {
    /// The public port that it serves.
    pub(crate) port: PortNumber,
    /// Hash of the content.
    pub(crate) version: Arc<str>,
    /// The content.
    pub(crate) content: Any,
}

impl Resource {
    fn new<M: Name>(port: PortNumber, message: &M) -> Self {
        let content = Any::of(message);
        let hash = digest(&SHA256, &content.value);
        Self { port, version: hex(&hash.as_ref()[..16]).into(), content }
    }
}

/// Resources by name.
pub(crate) type Resources = BTreeMap<Arc<str>, Resource>;

/// All resources of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// What they are made from.
    pub(crate) unit: Option<Arc<Unit>>,
    clusters: Resources,
    assignments: Resources,
    listeners: Resources,
}

impl Snapshot {
    /// Makes the resources of a unit that listens on its public address.
    pub(crate) fn of(id: &UnitId, unit: &Arc<Unit>) -> Self {
        Self::listening_on(unit.address, id, unit)
    }

    /// Makes the resources of a unit that listens on any address, where packets to the public one are sent to it.
    pub(crate) fn in_container(id: &UnitId, unit: &Arc<Unit>) -> Self {
        let any: IpAddr = match unit.address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self::listening_on(any, id, unit)
    }

    fn listening_on(address: IpAddr, id: &UnitId, unit: &Arc<Unit>) -> Self {
        let mut all = Self { unit: Some(Arc::clone(unit)), ..Self::empty() };
        for (port, from) in &unit.listeners {
            let cluster_name: Arc<str> = format!("{}/{}/{port}", id.namespace, from.load_balancer).into();
            let public = SocketAddr::new(address, port.port);
            let listener = listener(*port, public, &cluster_name);
            let (cluster, assignment) = (cluster(*port, &cluster_name), assignment(*port, &cluster_name, from));
            all.listeners.insert(port.to_string().into(), Resource::new(*port, &listener));
            all.clusters.insert(Arc::clone(&cluster_name), Resource::new(*port, &cluster));
            all.assignments.insert(cluster_name, Resource::new(*port, &assignment));
        }
        all
    }

    /// No resources.
    pub(crate) const fn empty() -> Self {
        Self { unit: None, clusters: Resources::new(), assignments: Resources::new(), listeners: Resources::new() }
    }

    /// The same without listeners: no connection is accepted any more, and those that exist go on.
    pub(crate) fn without_listeners(&self) -> Self {
        Self { unit: None, listeners: Resources::new(), ..self.clone() }
    }

    /// The resources of one kind.
    pub(crate) const fn of_kind(&self, kind: Kind) -> &Resources {
        match kind {
            Kind::Cluster => &self.clusters,
            Kind::Assignment => &self.assignments,
            Kind::Listener => &self.listeners,
        }
    }
}

fn listener(port: PortNumber, public: SocketAddr, cluster: &str) -> Listener {
    let common = Listener {
        name: port.to_string(),
        address: Some(Address::of(port.protocol, public)),
        freebind: Some(true),
        // else two Envoys of one user could share a port without either noticing
        enable_reuse_port: Some(false),
        ..Listener::default()
    };
    match port.protocol {
        Protocol::Tcp => Listener { filter_chains: vec![tcp_proxy(port, cluster)], ..common },
        Protocol::Udp => Listener {
            listener_filters: vec![udp_proxy(port, cluster)],
            udp_listener_config: Some(UdpListenerConfig { downstream_socket_config: Some(LARGE_DATAGRAMS) }),
            ..common
        },
    }
}

fn tcp_proxy(port: PortNumber, cluster: &str) -> FilterChain {
    let config = TcpProxy {
        stat_prefix: port.to_string(),
        cluster: cluster.to_owned(),
        max_connect_attempts: Some(CONNECT_ATTEMPTS),
        idle_timeout: Some(Duration::seconds(TCP_IDLE_SECONDS)),
    };
    let filter = Filter { name: "envoy.filters.network.tcp_proxy".to_owned(), typed_config: Some(Any::of(&config)) };
    FilterChain { filters: vec![filter] }
}

fn udp_proxy(port: PortNumber, cluster: &str) -> ListenerFilter {
    let route = Route { cluster: cluster.to_owned() };
    let action = TypedExtensionConfig { name: "route".to_owned(), typed_config: Some(Any::of(&route)) };
    let config = UdpProxyConfig {
        stat_prefix: port.to_string(),
        idle_timeout: Some(Duration::seconds(UDP_IDLE_SECONDS)),
        hash_policies: vec![HashPolicy { source_ip: true }],
        upstream_socket_config: Some(LARGE_DATAGRAMS),
        matcher: Some(Matcher { on_no_match: Some(OnMatch { action: Some(action) }) }),
    };
    ListenerFilter { name: "envoy.filters.udp_listener.udp_proxy".to_owned(), typed_config: Some(Any::of(&config)) }
}

fn cluster(port: PortNumber, name: &str) -> Cluster {
    let limits = Thresholds {
        max_connections: Some(NO_LIMIT),
        max_pending_requests: Some(NO_LIMIT),
        max_requests: Some(NO_LIMIT),
        max_retries: Some(NO_LIMIT),
    };
    let ads = ConfigSource { ads: Some(AggregatedConfigSource {}), resource_api_version: V3 };
    let (lb_policy, outlier_detection) = match port.protocol {
        Protocol::Tcp => (LbPolicy::RoundRobin, Some(outlier_detection())),
        // the UDP proxy has none
        Protocol::Udp => (LbPolicy::Maglev, None),
    };
    Cluster {
        name: name.to_owned(),
        discovery_type: DiscoveryType::Eds.into(),
        eds_cluster_config: Some(EdsClusterConfig { eds_config: Some(ads) }),
        connect_timeout: Some(Duration::seconds(CONNECT_SECONDS)),
        lb_policy: lb_policy.into(),
        circuit_breakers: Some(CircuitBreakers { thresholds: vec![limits] }),
        outlier_detection,
    }
}

const fn outlier_detection() -> OutlierDetection {
    OutlierDetection {
        interval: Some(Duration::seconds(EJECTION_SECONDS)),
        base_ejection_time: Some(Duration::seconds(EJECTION_SECONDS)),
        max_ejection_percent: Some(MAX_EJECTION_PERCENT),
        split_external_local_origin_errors: true,
        consecutive_local_origin_failure: Some(FAILURES),
    }
}

fn assignment(port: PortNumber, cluster: &str, listener: &UnitListener) -> ClusterLoadAssignment {
    let endpoint = |address: &SocketAddr| LbEndpoint {
        endpoint: Some(Endpoint { address: Some(Address::of(port.protocol, *address)) }),
    };
    let lb_endpoints: Vec<_> = listener.endpoints.iter().map(endpoint).collect();
    let localities = if lb_endpoints.is_empty() { Vec::new() } else { vec![LocalityLbEndpoints { lb_endpoints }] };
    ClusterLoadAssignment { cluster_name: cluster.to_owned(), endpoints: localities }
}

/// In lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| DIGITS[usize::from(digit)]).collect()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    fn unit(ports: &[u16], endpoints: &[&str]) -> Arc<Unit> {
        let endpoints = || endpoints.iter().map(|endpoint| endpoint.parse().unwrap()).collect();
        let listener = |port: &u16| {
            let protocol = if port.is_multiple_of(2) { Protocol::Tcp } else { Protocol::Udp };
            (PortNumber { protocol, port: *port }, UnitListener { load_balancer: "web".into(), endpoints: endpoints() })
        };
        let listeners = ports.iter().map(listener).collect();
        Arc::new(Unit { address: [127, 77, 0, 2].into(), image: "".into(), prefix: "default".into(), listeners })
    }

    fn snapshot(ports: &[u16], endpoints: &[&str]) -> Snapshot {
        let id = UnitId { namespace: "egw-acme".into(), name: "web".into() };
        Snapshot::of(&id, &unit(ports, endpoints))
    }

    #[test]
    fn bytes_equal_for_equal_world() {
        let one = snapshot(&[80, 53], &["10.0.0.1:80", "10.0.0.2:1", "[fd00::1]:80"]);
        let other = snapshot(&[53, 80], &["[fd00::1]:80", "10.0.0.2:1", "10.0.0.1:80"]);
        assert_eq!(one, other);
        let versions = |kind| one.of_kind(kind).values().map(|found| &*found.version).collect::<Vec<_>>();
        assert!(Kind::ALL.into_iter().flat_map(versions).all(|version| version.len() == 32));
    }

    #[test]
    fn endpoints_change_the_assignment_and_nothing_else() {
        let (one, other) = (snapshot(&[80, 53], &["10.0.0.1:80"]), snapshot(&[80, 53], &["10.0.0.2:80"]));
        assert_eq!(one.of_kind(Kind::Cluster), other.of_kind(Kind::Cluster));
        assert_eq!(one.of_kind(Kind::Listener), other.of_kind(Kind::Listener));
        assert_ne!(one.of_kind(Kind::Assignment), other.of_kind(Kind::Assignment));
    }

    #[test]
    fn endpoints_are_in_the_order_of_address_and_port() {
        let all = snapshot(&[80], &["10.0.0.10:1", "10.0.0.9:2", "10.0.0.9:1"]);
        let bytes = all.of_kind(Kind::Assignment)["egw-acme/web/TCP-80"].content.value.clone();
        let assignment = ClusterLoadAssignment::decode(bytes).unwrap();
        let endpoints = assignment.endpoints[0].lb_endpoints.iter().map(|endpoint| {
            let address =
                endpoint.endpoint.as_ref().unwrap().address.as_ref().unwrap().socket_address.as_ref().unwrap();
            format!("{}:{}", address.address, address.port_value)
        });
        assert_eq!(endpoints.collect::<Vec<_>>(), ["10.0.0.9:1", "10.0.0.9:2", "10.0.0.10:1"]);
    }

    #[test]
    fn names_are_those_of_ports_and_load_balancers() {
        let all = snapshot(&[80, 53], &[]);
        let names = |kind| all.of_kind(kind).keys().map(|name| &**name).collect::<Vec<_>>();
        assert_eq!(names(Kind::Listener), ["TCP-80", "UDP-53"]);
        assert_eq!(names(Kind::Cluster), ["egw-acme/web/TCP-80", "egw-acme/web/UDP-53"]);
        assert_eq!(names(Kind::Assignment), names(Kind::Cluster));
    }
}
