//! Targets, named and inline, and their endpoints.

use serde_json::{Map, Value};

use super::extensions;
use super::fields::{Fields, invalid, port, text};
use super::selector::selector;
use super::socket::{Side, is_protocol, socket};
use crate::mesh::LbPolicy;
use crate::mesh::control::types::{Balancer, EndpointSource, Hop, Protocol, Socket, Target};
use crate::mesh::control::{Diagnostic, Reason};

/// Endpoints of one cluster, at most: what the proxy takes.
const MOST_ENDPOINTS: usize = 10_000;

/// Keys that stand beside a cluster's spec; a hop without any of them is a spec by itself.
const BESIDE: [&str; 10] = [
    "spec",
    "endpoints",
    "loadbalancer",
    "linkedVirtualService",
    "serviceName",
    "tls",
    "healthCheck",
    "outlier",
    "circuitBreaker",
    "qos",
];

/// Reads the spec of a Target object.
pub(super) fn target(value: &Value, notes: &mut Vec<Diagnostic>) -> Result<Target, Diagnostic> {
    let mut fields = Fields::of("spec", value)?;
    let placed = selector("spec.selector", fields.require("selector")?, notes)?;
    let linked = fields.one_of(&["linkedVirtualService", "serviceName"])?;
    let empty = Value::Object(Map::new());
    let has_cluster = fields.has("cluster");
    let mut inner = Fields::of("spec.cluster", fields.get("cluster").unwrap_or(&empty))?;
    fields.finish(notes);
    if linked.is_none() && !has_cluster {
        let message = "spec.cluster is missing: add it, or linkedVirtualService";
        return Err(Diagnostic::new(Reason::MissingField, message));
    }
    let mut target = cluster(&mut inner, linked, notes)?;
    inner.finish(notes);
    target.selector = Some(placed);
    Ok(target)
}

/// Reads a hop: a name, or a complete unnamed Target.
pub(super) fn hop(at: &str, value: &Value, notes: &mut Vec<Diagnostic>) -> Result<Hop, Diagnostic> {
    if value.is_string() {
        return Ok(Hop::Name(text(at, value)?.to_owned()));
    }
    let mut fields = Fields::of(at, value)?;
    if let Some((at, name)) = fields.one_of(&["clusterRef", "destinationRef"])? {
        fields.finish(notes);
        return Ok(Hop::Name(text(&at, name)?.to_owned()));
    }
    if let Some(inner) = fields.get("cluster") {
        fields.finish(notes);
        return hop(&format!("{at}.cluster"), inner, notes);
    }
    for key in ["name", "selector"] {
        if fields.get(key).is_some() {
            let message = format!("{} of an inline Target has no effect: remove it", fields.path(key));
            notes.push(Diagnostic::new(Reason::IgnoredField, message));
        }
    }
    let target = cluster(&mut fields, None, notes)?;
    fields.finish(notes);
    Ok(Hop::Inline(Box::new(target)))
}

fn cluster(
    fields: &mut Fields<'_>,
    outer: Option<(String, &Value)>,
    notes: &mut Vec<Diagnostic>,
) -> Result<Target, Diagnostic> {
    let at = fields.at.clone();
    let inner = fields.one_of(&["linkedVirtualService", "serviceName"])?;
    if let (Some((one, _)), Some((other, _))) = (&outer, &inner) {
        let message = format!("{one} and {other} say the same thing: remove one of them");
        return Err(Diagnostic::new(Reason::DuplicateField, message));
    }
    let linked = outer.or(inner);
    let extensions = extensions::of_cluster(fields)?;
    let balancer = balancer(fields, notes)?;
    let mut endpoints = endpoints(fields, notes)?;
    let spec = spec(fields, notes)?;
    if let Some((link_at, link)) = linked {
        let link = text(&link_at, link)?.to_owned();
        if spec.is_some() || !endpoints.is_empty() {
            let message =
                format!("{link_at} takes spec and endpoints from `{link}`: remove {at}.spec and {at}.endpoints");
            return Err(Diagnostic::new(Reason::ConflictingFields, message));
        }
        return Ok(Target { selector: None, spec: None, endpoints, balancer, linked: Some(link), extensions });
    }
    let Some(spec) = spec else {
        return Err(Diagnostic::new(Reason::MissingField, format!("{at}.spec is missing: add a protocol")));
    };
    if spec.protocol.is_virtual() && !endpoints.is_empty() {
        let message = format!("{at}.endpoints: {} has no endpoints: remove them", spec.protocol);
        return Err(Diagnostic::new(Reason::InvalidField, message));
    }
    if spec.opened().protocol == Protocol::UnixDomainSocket
        && endpoints.is_empty()
        && let Some(filename) = spec.filename()
    {
        let address = Map::from_iter([("address".to_owned(), filename.into())]);
        endpoints.push(EndpointSource::Static { spec: address, weight: None });
    }
    check_ports(&at, &spec, &endpoints)?;
    Ok(Target { selector: None, spec: Some(spec), endpoints, balancer, linked: None, extensions })
}

/// A spec under `spec`, or beside nothing else: `{unixdomainsocket: {...}}`, `{protocol: UDP, port: 1}`.
fn spec(fields: &mut Fields<'_>, notes: &mut Vec<Diagnostic>) -> Result<Option<Socket>, Diagnostic> {
    let at = fields.path("spec");
    if let Some(value) = fields.get("spec") {
        let mut inner = Fields::of(at, value)?;
        let spec = socket(&mut inner, Side::Cluster, notes)?;
        inner.finish(notes);
        return Ok(Some(spec));
    }
    let by_name = fields.only_key().is_some_and(|key| !BESIDE.contains(&key) && is_protocol(key));
    if by_name || fields.has("protocol") {
        return socket(fields, Side::Cluster, notes).map(Some);
    }
    let named = fields.unread().find(|(key, _)| is_protocol(key));
    let Some((key, value)) = named else { return Ok(None) };
    let wrapped = Value::Object(Map::from_iter([(key.to_owned(), value.clone())]));
    fields.get(key);
    socket(&mut Fields::of(fields.at.clone(), &wrapped)?, Side::Cluster, notes).map(Some)
}

fn balancer(fields: &mut Fields<'_>, notes: &mut Vec<Diagnostic>) -> Result<Option<Balancer>, Diagnostic> {
    let at = fields.path("loadbalancer");
    let Some(value) = fields.get("loadbalancer") else { return Ok(None) };
    let mut inner = Fields::of(at.clone(), value)?;
    let word = text(&inner.path("policy"), inner.require("policy")?)?;
    let key = inner.text("key")?.map(str::to_owned);
    inner.finish(notes);
    let bad = || {
        let words = LbPolicy::NAMES.join(", ");
        let message = format!("{at}.policy: \"{word}\" is not a balancer for endpoints: use one of {words}");
        Diagnostic::new(Reason::BadBalancer, message)
    };
    let name = LbPolicy::NAMES.into_iter().find(|name| *name == word).ok_or_else(bad)?;
    let policy = LbPolicy::parse(Some(name), key.as_deref()).map_err(|_| bad())?;
    Ok(Some(Balancer { name, key, is_ours: !policy.is_of_l7mp() }))
}

fn endpoints(fields: &mut Fields<'_>, notes: &mut Vec<Diagnostic>) -> Result<Vec<EndpointSource>, Diagnostic> {
    let at = fields.path("endpoints");
    let items = fields.list("endpoints")?;
    if items.len() > MOST_ENDPOINTS {
        let message = format!("{at} has {} entries, {MOST_ENDPOINTS} are allowed: use a selector", items.len());
        return Err(Diagnostic::new(Reason::SpecTooLarge, message));
    }
    let mut endpoints = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        endpoints.extend(endpoint(&format!("{at}[{place}]"), item, notes)?);
    }
    Ok(endpoints)
}

/// One endpoint; one of weight zero is left out, since a real l7mp would take it for 1.
fn endpoint(at: &str, value: &Value, notes: &mut Vec<Diagnostic>) -> Result<Option<EndpointSource>, Diagnostic> {
    let mut fields = Fields::of(at, value)?;
    if let Some(chosen) = fields.get("selector") {
        let chosen = selector(&fields.path("selector"), chosen, notes)?;
        fields.finish(notes);
        return Ok(Some(EndpointSource::Dynamic(chosen)));
    }
    if fields.get("name").is_some() {
        let message = format!("{} has no effect: endpoints are named after cluster and address", fields.path("name"));
        notes.push(Diagnostic::new(Reason::IgnoredField, message));
    }
    let beside = fields.number("weight")?;
    let spec_at = fields.path("spec");
    let mut inner = Fields::of(spec_at.clone(), fields.require("spec")?)?;
    let inside = inner.number("weight")?;
    let Some((address_at, address)) = inner.one_of(&["address", "filename"])? else {
        return Err(Diagnostic::new(
            Reason::MissingField,
            format!("{spec_at}.address is missing: add an address or a name"),
        ));
    };
    let address = text(&address_at, address)?;
    if address.contains(char::is_whitespace) {
        let hint = "an address, a DNS name or the path of a socket is expected";
        return Err(invalid(&address_at, &address.into(), hint));
    }
    let mut spec = Map::from_iter([("address".to_owned(), Value::from(address))]);
    let port_at = inner.path("port");
    if let Some(value) = inner.get("port") {
        spec.insert("port".to_owned(), port(&port_at, value)?.into());
    }
    inner.finish(notes);
    fields.finish(notes);
    let weight = beside.or(inside);
    Ok((weight != Some(0)).then_some(EndpointSource::Static { spec, weight }))
}

/// Every endpoint must have a port, its own or the cluster's.
fn check_ports(at: &str, spec: &Socket, endpoints: &[EndpointSource]) -> Result<(), Diagnostic> {
    let needs = matches!(spec.opened().protocol, Protocol::Udp | Protocol::Tcp | Protocol::WebSocket);
    if !needs || spec.port().is_some() {
        return Ok(());
    }
    let has_own = |endpoint: &EndpointSource| match endpoint {
        EndpointSource::Static { spec, .. } => spec.contains_key("port"),
        EndpointSource::Dynamic(_) => false,
    };
    if !endpoints.is_empty() && endpoints.iter().all(has_own) {
        return Ok(());
    }
    let place = if spec.transport.is_some() { "spec.transport.port" } else { "spec.port" };
    Err(Diagnostic::new(Reason::MissingField, format!("{at}.{place} is missing: add a port from 1 to 65535")))
}
