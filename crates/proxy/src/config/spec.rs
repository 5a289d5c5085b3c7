//! Specs: JSON as clients write it into checked types, and the specs of virtual clusters back into JSON.

use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use portolan_core::mesh::{LbPolicy, LbPolicyError};
use serde::de::DeserializeOwned;

use super::json::{Json, object};
use super::refusal::{Class, Refusal};
use super::types::{Admin, ClusterSpec, HeaderItem, JsonSocketCluster, ListenerSpec, LoggerCluster, Name, UdpMode};

/// Protocols of listeners.
pub const LISTENERS: [&str; 6] = ["UDP", "TCP", "UnixDomainSocket", "WebSocket", "HTTP", "JSONSocket"];
/// Protocols of clusters.
pub const CLUSTERS: [&str; 15] = [
    "UDP",
    "TCP",
    "UnixDomainSocket",
    "WebSocket",
    "JSONSocket",
    "Echo",
    "Discard",
    "Logger",
    "Stdio",
    "Sync",
    "Metric",
    "Prometheus",
    "JSONEncap",
    "JSONDecap",
    "L7mpController",
];

/// Reads a listener's spec.
pub fn listener(spec: &Json, admin: &Admin) -> Result<ListenerSpec, Refusal> {
    let protocol = protocol(spec);
    if protocol == "JSONSocket" {
        let Some(transport) = transport(spec) else {
            return Err(Refusal::bad("JSONSocketListener: No transport specified"));
        };
        let transport = carrier(transport, "spec.transport", admin)?;
        if matches!(transport, ListenerSpec::Http(_)) {
            return Err(unknown_listener("HTTP"));
        }
        return Ok(ListenerSpec::JsonSocket(Box::new(transport)));
    }
    carrier(spec, "spec", admin)
}

/// Reads a cluster's spec.
pub fn cluster(spec: &Json, admin: &Admin) -> Result<ClusterSpec, Refusal> {
    let protocol = protocol(spec);
    let read = Reader { noun: "cluster", spec, at: "spec" };
    Ok(match protocol {
        "JSONSocket" => {
            let Some(transport) = transport(spec) else {
                return Err(Refusal::bad("JSONSocketCluster: No transport specified"));
            };
            let inner = cluster(transport, admin)?;
            if inner.is_virtual() || matches!(inner, ClusterSpec::JsonSocket(_)) {
                return Err(unknown_cluster(inner.protocol()));
            }
            ClusterSpec::JsonSocket(JsonSocketCluster {
                transport: Box::new(inner),
                header: header(spec)?,
                retransmit_ms: u64::from(read.nested::<u32>("handshake", "retransmit_ms")?.unwrap_or(0)),
            })
        }
        "UDP" => ClusterSpec::Udp(read.all()?),
        "TCP" => ClusterSpec::Tcp(read.all()?),
        "WebSocket" => ClusterSpec::WebSocket(read.all()?),
        "UnixDomainSocket" => {
            let uds: super::types::UdsCluster = read.all()?;
            if let Some(filename) = &uds.filename {
                inside(filename, &admin.uds_dirs, "cluster", "filename", "admin.uds_dirs")?;
            }
            ClusterSpec::Uds(uds)
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
    let spec = if let ClusterSpec::JsonSocket(json) = spec { &json.transport } else { spec };
    let cluster_port = match spec {
        ClusterSpec::Udp(udp) => udp.port,
        ClusterSpec::Tcp(tcp) => tcp.port,
        ClusterSpec::WebSocket(ws) => ws.port,
        ClusterSpec::Uds(uds) => {
            return match address {
                Some(path) => inside(Path::new(path), &admin.uds_dirs, "endpoint", "address", "admin.uds_dirs"),
                None if uds.filename.is_some() => Ok(()),
                None => Err(no_remote(spec)),
            };
        }
        ClusterSpec::JsonSocket(_)
        | ClusterSpec::Echo
        | ClusterSpec::Discard
        | ClusterSpec::Logger(_)
        | ClusterSpec::Stdio
        | ClusterSpec::Sync(_)
        | ClusterSpec::Metric(_)
        | ClusterSpec::Prometheus
        | ClusterSpec::JsonEncap
        | ClusterSpec::JsonDecap
        | ClusterSpec::Controller => {
            let content = format!("Adding an endpoint to a cluster of type \"{}\" is not supported", spec.protocol());
            return Err(Refusal::bad(content));
        }
    };
    if address.is_none_or(str::is_empty) || port.or(cluster_port).is_none() {
        return Err(no_remote(spec));
    }
    if address.is_some_and(|address| !address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')) {
        return Err(Refusal::bad("Cannot add endpoint: Property spec.address is invalid"));
    }
    Ok(())
}

/// What a cluster's sockets connect to: family and port; nothing for files and virtual clusters.
pub fn remote(spec: &ClusterSpec) -> Option<(&'static str, Option<u16>)> {
    let spec = if let ClusterSpec::JsonSocket(json) = spec { &json.transport } else { spec };
    if let ClusterSpec::Udp(udp) = spec {
        return Some(("UDP", udp.port));
    }
    if let ClusterSpec::Tcp(tcp) = spec {
        return Some(("TCP", tcp.port));
    }
    if let ClusterSpec::WebSocket(ws) = spec { Some(("TCP", ws.port)) } else { None }
}

fn no_remote(spec: &ClusterSpec) -> Refusal {
    Refusal::bad(format!("{}EndPoint: No remote addr:port pair defined", spec.protocol()))
}

/// Reads a spec with its own socket.
fn carrier(spec: &Json, at: &'static str, admin: &Admin) -> Result<ListenerSpec, Refusal> {
    let read = Reader { noun: "listener", spec, at };
    Ok(match protocol(spec) {
        "UDP" => {
            read.requires("port")?;
            let udp: super::types::UdpListener = read.all()?;
            let named = udp.connect.address.is_some() && udp.connect.port.is_some();
            if udp.mode() == UdpMode::Singleton && !named {
                return Err(singleton());
            }
            ListenerSpec::Udp(udp)
        }
        "TCP" => ListenerSpec::Tcp(read.with_port()?),
        "WebSocket" => ListenerSpec::WebSocket(read.with_port()?),
        "HTTP" => ListenerSpec::Http(read.with_port()?),
        "UnixDomainSocket" => {
            read.requires("filename")?;
            let uds: super::types::UdsListener = read.all()?;
            inside(&uds.filename, &admin.uds_dirs, "listener", "filename", "admin.uds_dirs")?;
            ListenerSpec::Uds(uds)
        }
        other => return Err(unknown_listener(other)),
    })
}

/// A singleton without a complete peer address.
pub fn singleton() -> Refusal {
    Refusal::bad(
        "Singleton mode requested but either connect.address or connect.port is not defined (or neither): \
         no remote to connect to",
    )
}

/// A spec on its way into a type.
struct Reader<'a> {
    noun: &'static str,
    spec: &'a Json,
    at: &'static str,
}

impl Reader<'_> {
    fn requires(&self, key: &str) -> Result<(), Refusal> {
        if self.spec.get(key).is_some() {
            return Ok(());
        }
        Err(Refusal::bad(format!("Cannot add {}: Property {}.{key} is required", self.noun, self.at)))
    }

    fn with_port<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        self.requires("port")?;
        self.all()
    }

    fn all<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        self.spec.read().map_err(|path| self.invalid(&path))
    }

    fn nested<T: DeserializeOwned>(&self, outer: &str, inner: &str) -> Result<Option<T>, Refusal> {
        let Some(value) = self.spec.get(outer).and_then(|value| value.get(inner)) else { return Ok(None) };
        value.read().map(Some).map_err(|_| self.invalid(&format!("{outer}.{inner}")))
    }

    fn invalid(&self, path: &str) -> Refusal {
        let field = if path == "." { self.at.to_owned() } else { format!("{}.{path}", self.at) };
        Refusal::bad(format!("Cannot add {}: Property {field} is invalid", self.noun))
    }
}

fn protocol(spec: &Json) -> &str {
    spec.get("protocol").and_then(Json::as_str).unwrap_or("undefined")
}

fn transport(spec: &Json) -> Option<&Json> {
    spec.get("transport").or_else(|| spec.get("transport_spec")).filter(|transport| transport.as_object().is_some())
}

fn header(spec: &Json) -> Result<Option<Vec<HeaderItem>>, Refusal> {
    let Some(given) = spec.get("header") else { return Ok(None) };
    let items = given.as_array().and_then(|items| items.iter().map(header_item).collect());
    items.map(Some).ok_or_else(|| Refusal::bad("Cannot add cluster: Property spec.header is invalid"))
}

fn header_item(item: &Json) -> Option<HeaderItem> {
    if let Some(set) = item.get("set") {
        let key = set.get("key")?.as_str()?.to_owned();
        return Some(HeaderItem::Set { key, value: set.get("value").map(Json::to_value).unwrap_or_default() });
    }
    let path = item.get("path")?;
    if let Some(from) = path.as_str() {
        return Some(HeaderItem::Copy { from: from.to_owned(), to: "/".to_owned() });
    }
    let from = path.get("from")?.as_str()?.to_owned();
    let to = path.get("to").and_then(Json::as_str).unwrap_or("/").to_owned();
    Some(HeaderItem::Copy { from, to })
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

/// Checks textually that a path lies in one of the directories; opening it follows no link.
fn inside(path: &Path, dirs: &[PathBuf], noun: &str, field: &str, setting: &str) -> Result<(), Refusal> {
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if plain && dirs.iter().any(|dir| path.starts_with(dir) && path != dir) {
        return Ok(());
    }
    let shown: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    let content = format!(
        "Cannot add {noun}: spec.{field} \"{}\" is not inside {setting} ({})",
        path.display(),
        shown.join(", ")
    );
    Err(Refusal::bad(content))
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
    let (family, address, port) = match spec.transport() {
        ListenerSpec::Udp(udp) => ("UDP", udp.address, udp.port),
        ListenerSpec::Tcp(tcp) => ("TCP", tcp.address, tcp.port),
        ListenerSpec::WebSocket(ws) => ("TCP", ws.address, ws.port),
        ListenerSpec::Http(http) => ("TCP", http.address, http.port),
        ListenerSpec::Uds(_) | ListenerSpec::JsonSocket(_) => return None,
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
    if let ListenerSpec::Uds(uds) = spec.transport() { Some(uds.filename.to_string_lossy().into()) } else { None }
}
