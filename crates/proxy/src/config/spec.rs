//! Specs: JSON as clients write it into checked types, and the specs of virtual clusters back into JSON.

use std::net::IpAddr;
use std::path::Path;

use portolan_core::mesh::{LbPolicy, LbPolicyError};

use super::json::{Json, object};
use super::reader::{SpecReader, inside};
use super::refusal::{Class, Refusal};
use super::types::{Admin, ClusterSpec, JsonSocketCluster, ListenerSpec, LoggerCluster, Name, TransportCluster};
use crate::transport::spec::{EndpointAddress, JSON_SOCKET_TRANSPORTS, ListenAddress};

/// Reads a listener's spec.
pub fn listener(spec: &Json, admin: &Admin) -> Result<ListenerSpec, Refusal> {
    let read = SpecReader { noun: "listener", spec, at: "spec" };
    if read.protocol() != "JSONSocket" {
        return socket_listener(&read, admin);
    }
    let Some(transport) = read.transport() else {
        return Err(Refusal::bad("JSONSocketListener: No transport specified"));
    };
    let transport = socket_listener(&SpecReader { spec: transport, at: "spec.transport", ..read }, admin)?;
    if !JSON_SOCKET_TRANSPORTS.contains(&transport.protocol()) {
        return Err(unknown_listener(transport.protocol()));
    }
    Ok(ListenerSpec::JsonSocket(Box::new(transport)))
}

/// Reads a cluster's spec.
pub fn cluster(spec: &Json, admin: &Admin) -> Result<ClusterSpec, Refusal> {
    let read = SpecReader { noun: "cluster", spec, at: "spec" };
    if let Some(transport) = TransportCluster::read(&read, admin)? {
        return Ok(ClusterSpec::Transport(transport));
    }
    Ok(match read.protocol() {
        "JSONSocket" => {
            let Some(transport) = read.transport() else {
                return Err(Refusal::bad("JSONSocketCluster: No transport specified"));
            };
            let inner = cluster(transport, admin)?;
            let ClusterSpec::Transport(transport) = inner else { return Err(unknown_cluster(inner.protocol())) };
            ClusterSpec::JsonSocket(JsonSocketCluster::read(&read, transport)?)
        }
        "Logger" => ClusterSpec::Logger(logger(read.all()?, admin)?),
        "Stdio" if !admin.allow_stdio => {
            return Err(Refusal::bad("Cannot add cluster: Stdio needs admin.allow_stdio in the config file"));
        }
        "Stdio" => ClusterSpec::Stdio,
        "Sync" => ClusterSpec::Sync(read.all()?),
        "Metric" => ClusterSpec::Metric(read.all()?),
        "Echo" => ClusterSpec::Echo,
        "Discard" => ClusterSpec::Discard,
        "Prometheus" => ClusterSpec::Prometheus,
        "JSONEncap" => ClusterSpec::JsonEncap,
        "JSONDecap" => ClusterSpec::JsonDecap,
        "L7mpController" => ClusterSpec::Controller,
        other => return Err(unknown_cluster(other)),
    })
}

/// The spec that clients read: as given, but rebuilt from what is known where a cluster is virtual.
pub fn cluster_view(spec: &ClusterSpec, given: &Json) -> Json {
    if !spec.is_virtual() {
        return given.clone();
    }
    let Json::Object(mut view) = object([("protocol", spec.protocol().into())]) else { return Json::Null };
    if let ClusterSpec::Logger(logger) = spec {
        view.set("log_file", given.get("log_file").cloned().unwrap_or_else(|| "-".into()));
        view.set("log_prefix", logger.log_prefix.as_str());
    }
    // no two of them have a key in common, so one list serves all
    for key in ["query", "max_members", "pair", "byteCounterName", "packetCounterName"] {
        if let Some(value) = given.get(key) {
            view.set(key, value.clone());
        }
    }
    Json::Object(view)
}

/// Reads a cluster's load balancer, and returns its view.
pub fn balancer(given: Option<&Json>, spec: &ClusterSpec) -> Result<(LbPolicy, Json), Refusal> {
    let shown = |name: &str| object([("policy", name.into())]);
    if spec.is_virtual() {
        let none = matches!(
            spec,
            ClusterSpec::Controller | ClusterSpec::Logger(_) | ClusterSpec::Stdio | ClusterSpec::Sync(_)
        );
        return Ok((LbPolicy::Trivial, shown(if none { "None" } else { "Trivial" })));
    }
    let Some(given) = given else { return Ok((LbPolicy::Trivial, shown("Trivial"))) };
    let text = |key: &str| given.get(key).and_then(Json::as_str);
    let policy = LbPolicy::parse(text("policy"), text("key")).map_err(|error| match &error {
        LbPolicyError::Unknown(_) => Refusal::new(Class::Unimplemented, error.to_string()),
        LbPolicyError::Undefined => Refusal::bad(error.to_string()),
    })?;
    let view = if matches!(policy, LbPolicy::HashRing(_)) {
        object([("policy", policy.name().into()), ("key", text("key").unwrap_or(LbPolicy::NO_KEY).into())])
    } else if policy.takes_key() {
        given.clone()
    } else {
        shown(policy.name())
    };
    Ok((policy, view))
}

/// Checks an endpoint's address against the protocol of its cluster.
pub fn endpoint_address(
    address: Option<&str>,
    port: Option<u16>,
    spec: &ClusterSpec,
    admin: &Admin,
) -> Result<(), Refusal> {
    let Some(transport) = spec.transport() else {
        let content = format!("Adding an endpoint to a cluster of type \"{}\" is not supported", spec.protocol());
        return Err(Refusal::bad(content));
    };
    let no_remote = || Refusal::bad(format!("{}EndPoint: No remote addr:port pair defined", transport.protocol()));
    let cluster_port = match transport.endpoint_address() {
        EndpointAddress::Udp { port } | EndpointAddress::Tcp { port } => port,
        EndpointAddress::Unix { filename } => {
            return match address {
                Some(path) => inside(Path::new(path), &admin.uds_dirs, "endpoint", "address", "admin.uds_dirs"),
                None if filename.is_some() => Ok(()),
                None => Err(no_remote()),
            };
        }
    };
    if address.is_none_or(str::is_empty) || port.or(cluster_port).is_none() {
        return Err(no_remote());
    }
    if address.is_some_and(|address| !address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')) {
        return Err(Refusal::bad("Cannot add endpoint: Property spec.address is invalid"));
    }
    Ok(())
}

/// What a cluster's sockets connect to: family and port; nothing for files and virtual clusters.
pub fn remote(spec: &ClusterSpec) -> Option<(&'static str, Option<u16>)> {
    match spec.transport()?.endpoint_address() {
        EndpointAddress::Udp { port } => Some(("UDP", port)),
        EndpointAddress::Tcp { port } => Some(("TCP", port)),
        EndpointAddress::Unix { .. } => None,
    }
}

/// Reads the spec of a listener with its own socket.
fn socket_listener(read: &SpecReader<'_>, admin: &Admin) -> Result<ListenerSpec, Refusal> {
    ListenerSpec::read(read, admin)?.ok_or_else(|| unknown_listener(read.protocol()))
}

/// A Logger writes to standard output, or inside the one directory that is meant for it.
fn logger(mut logger: LoggerCluster, admin: &Admin) -> Result<LoggerCluster, Refusal> {
    if logger.log_file == "-" {
        return Ok(logger);
    }
    let Some(dir) = &admin.log_dir else {
        return Err(Refusal::bad("Cannot add cluster: spec.log_file needs admin.log_dir in the config file"));
    };
    let path = dir.join(&logger.log_file);
    inside(&path, std::slice::from_ref(dir), "cluster", "log_file", "admin.log_dir")?;
    logger.log_file = path.to_string_lossy().into_owned();
    Ok(logger)
}

fn unknown_listener(protocol: &str) -> Refusal {
    Refusal::bad(format!("Listener.create:Unknown protocol: \"{protocol}\""))
}

fn unknown_cluster(protocol: &str) -> Refusal {
    let content = format!("Cluster.create: TODO: Protocol \"{protocol}\" unimplemented");
    Refusal::new(Class::Unimplemented, content)
}

/// The socket address that a listener claims: family, address and port; none for files and port 0.
pub fn claim(spec: &ListenerSpec) -> Option<(&'static str, Option<IpAddr>, u16)> {
    let (family, address, port) = match spec.listen_address() {
        ListenAddress::Udp { address, port } => ("UDP", address, port),
        ListenAddress::Tcp { address, port } => ("TCP", address, port),
        ListenAddress::Unix(_) => return None,
    };
    (port != 0).then_some((family, address, port))
}

/// Whether two bound addresses get in each other's way.
pub fn overlap(one: Option<IpAddr>, other: Option<IpAddr>) -> bool {
    match (one, other) {
        (None, _) | (_, None) => true,
        (Some(one), Some(other)) if one == other => true,
        (Some(one), Some(other)) if one.is_ipv4() == other.is_ipv4() => one.is_unspecified() || other.is_unspecified(),
        // `::` includes IPv4
        (Some(one), Some(other)) => {
            (one.is_ipv6() && one.is_unspecified()) || (other.is_ipv6() && other.is_unspecified())
        }
    }
}

/// A socket file that two listeners want.
pub fn socket_file(spec: &ListenerSpec) -> Option<Name> {
    if let ListenAddress::Unix(uds) = spec.listen_address() {
        Some(uds.filename.to_string_lossy().into())
    } else {
        None
    }
}
