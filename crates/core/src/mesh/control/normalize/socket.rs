//! Listener and cluster specs: flat, or one key that is the protocol's name.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::fields::{Fields, invalid, port, text};
use crate::mesh::control::types::{Protocol, Socket};
use crate::mesh::control::{Diagnostic, Reason};

/// Which side of a connection a spec is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Listener,
    Cluster,
}

/// Reads a spec; `fields` may hold other keys, which are left unread.
pub(super) fn socket(fields: &mut Fields<'_>, side: Side, notes: &mut Vec<Diagnostic>) -> Result<Socket, Diagnostic> {
    if let Some((word, protocol)) = fields.only_key().and_then(|key| Some((key, find(key, &fields.at, notes)?))) {
        let inner_at = fields.path(word);
        let empty = Value::Object(Map::new());
        let mut inner = Fields::of(inner_at, fields.get(word).unwrap_or(&empty))?;
        let socket = of_protocol(&mut inner, protocol, side, notes)?;
        inner.finish(notes);
        return Ok(socket);
    }
    let at = fields.path("protocol");
    let word = text(&at, fields.require("protocol")?)?;
    let unknown = || {
        let known = Protocol::ALL.into_iter().filter(|known| fits(*known, side)).map(Protocol::as_str);
        let known = known.collect::<Vec<_>>().join(", ");
        Diagnostic::new(Reason::BadProtocol, format!("{at}: \"{word}\" is not a protocol: use one of {known}"))
    };
    let protocol = find(word, &at, notes).ok_or_else(unknown)?;
    of_protocol(fields, protocol, side, notes)
}

/// Whether a word is a protocol's name, in any case or in the misspelling of the shipped operator.
pub(super) fn is_protocol(word: &str) -> bool {
    find(word, "", &mut Vec::new()).is_some()
}

fn find(word: &str, at: &str, notes: &mut Vec<Diagnostic>) -> Option<Protocol> {
    if word.eq_ignore_ascii_case("Sdtio") {
        notes.push(Diagnostic::new(Reason::Misspelt, format!("{at}: read `{word}` as `Stdio`: correct it")));
        return Some(Protocol::Stdio);
    }
    Protocol::find(word)
}

fn fits(protocol: Protocol, side: Side) -> bool {
    match side {
        Side::Listener => protocol.listens(),
        Side::Cluster => !matches!(protocol, Protocol::L7mpController | Protocol::Http),
    }
}

fn of_protocol(
    fields: &mut Fields<'_>,
    protocol: Protocol,
    side: Side,
    notes: &mut Vec<Diagnostic>,
) -> Result<Socket, Diagnostic> {
    let at = fields.at.clone();
    if protocol == Protocol::L7mpController {
        let message = format!("{at}: L7mpController is the proxy's own API and cannot be offered: remove it");
        return Err(Diagnostic::new(Reason::ReservedProtocol, message));
    }
    if side == Side::Cluster && protocol == Protocol::Http {
        let message = format!("{at}: no proxy is an HTTP client yet: use TCP");
        return Err(Diagnostic::new(Reason::UnsupportedByProxy, message));
    }
    if !fits(protocol, side) {
        let message = format!("{at}: nobody can listen on {protocol}: it is for Targets");
        return Err(Diagnostic::new(Reason::BadProtocol, message));
    }
    let mut socket = Socket { protocol, fields: Map::new(), transport: None };
    match protocol {
        Protocol::JsonSocket => transport(fields, &mut socket, side, notes)?,
        Protocol::UnixDomainSocket => {
            copy_text(fields, &mut socket, &["filename"])?;
            one_word(fields, &mut socket, "type", &["stream", "seqpacket", "datagram"])?;
            copy(fields, &mut socket, &["mode"]);
            one_word(fields, &mut socket, "framing", &["none", "len16", "len32"])?;
            if side == Side::Listener && socket.filename().is_none() {
                return Err(Diagnostic::new(Reason::MissingField, format!("{at}.filename is missing: add it")));
            }
        }
        Protocol::Udp | Protocol::Tcp | Protocol::WebSocket | Protocol::Http => {
            ports(fields, &mut socket, side, notes)?;
        }
        Protocol::Logger => copy_text(fields, &mut socket, &["log_file", "log_prefix"])?,
        Protocol::Sync => {
            fields.require("query")?;
            copy_text(fields, &mut socket, &["query"])?;
            copy(fields, &mut socket, &["max_members", "pair"]);
        }
        Protocol::Metric => copy_text(fields, &mut socket, &["byteCounterName", "packetCounterName"])?,
        Protocol::Echo
        | Protocol::Discard
        | Protocol::Stdio
        | Protocol::Prometheus
        | Protocol::JsonEncap
        | Protocol::JsonDecap
        | Protocol::L7mpController => {}
    }
    Ok(socket)
}

fn ports(
    fields: &mut Fields<'_>,
    socket: &mut Socket,
    side: Side,
    notes: &mut Vec<Diagnostic>,
) -> Result<(), Diagnostic> {
    let at = fields.path("port");
    match fields.get("port") {
        Some(value) => drop(socket.fields.insert("port".to_owned(), port(&at, value)?.into())),
        None if side == Side::Listener => {
            return Err(Diagnostic::new(Reason::MissingField, format!("{at} is missing: add a port from 1 to 65535")));
        }
        None => {}
    }
    if socket.protocol == Protocol::Tcp {
        one_word(fields, socket, "framing", &["none", "len16", "len32"])?;
    }
    if matches!(socket.protocol, Protocol::WebSocket | Protocol::Http) {
        copy_text(fields, socket, &["path"])?;
        copy(fields, socket, &["subprotocols"]);
    }
    if side == Side::Cluster {
        peer(fields, socket, "bind", true)?;
        if fields.get("connect").is_some() {
            let message = format!("{} means nothing in a cluster: did you mean `bind`?", fields.path("connect"));
            notes.push(Diagnostic::new(Reason::IgnoredField, message));
        }
        return Ok(());
    }
    address(fields, socket, "address")?;
    if socket.protocol == Protocol::Udp {
        peer(fields, socket, "connect", false)?;
        mode(fields, socket)?;
    }
    Ok(())
}

/// The mode of a UDP listener; other members of `options` are for the VirtualService and are left there.
fn mode(fields: &mut Fields<'_>, socket: &mut Socket) -> Result<(), Diagnostic> {
    let at = fields.path("options.mode");
    let options = if fields.has("options") { fields.get("options") } else { None };
    let Some(value) = options.and_then(|options| options.get("mode")) else { return Ok(()) };
    if !matches!(value.as_str(), Some("server" | "singleton")) {
        return Err(invalid(&at, value, "use server or singleton"));
    }
    let connect = socket.fields.get("connect");
    let is_whole = connect.is_some_and(|connect| connect.get("address").is_some() && connect.get("port").is_some());
    if value == "singleton" && !is_whole {
        return Err(invalid(&at, value, "a singleton needs connect.address and connect.port: add them"));
    }
    socket.fields.insert("options".to_owned(), serde_json::json!({"mode": value}));
    Ok(())
}

/// A member of `connect` or `bind`.
fn peer(fields: &mut Fields<'_>, socket: &mut Socket, key: &str, several: bool) -> Result<(), Diagnostic> {
    let at = fields.path(key);
    let Some(value) = fields.get(key) else { return Ok(()) };
    let mut inner = Fields::of(at.clone(), value)?;
    let mut kept = Map::new();
    let address_at = inner.path("address");
    match inner.get("address") {
        Some(Value::Array(items)) if several => {
            for item in items {
                ip(&address_at, item)?;
            }
            kept.insert("address".to_owned(), Value::Array(items.clone()));
        }
        Some(value) => drop(kept.insert("address".to_owned(), ip(&address_at, value)?.clone())),
        None => {}
    }
    let port_at = inner.path("port");
    if let Some(value) = inner.get("port") {
        kept.insert("port".to_owned(), port(&port_at, value)?.into());
    }
    socket.fields.insert(key.to_owned(), Value::Object(kept));
    Ok(())
}

fn address(fields: &mut Fields<'_>, socket: &mut Socket, key: &str) -> Result<(), Diagnostic> {
    let at = fields.path(key);
    if let Some(value) = fields.get(key) {
        socket.fields.insert(key.to_owned(), ip(&at, value)?.clone());
    }
    Ok(())
}

fn ip<'v>(at: &str, value: &'v Value) -> Result<&'v Value, Diagnostic> {
    let is_ip = value.as_str().is_some_and(|text| text.parse::<IpAddr>().is_ok());
    if is_ip { Ok(value) } else { Err(invalid(at, value, "an IP address like 10.0.0.1 is expected")) }
}

fn transport(
    fields: &mut Fields<'_>,
    socket: &mut Socket,
    side: Side,
    notes: &mut Vec<Diagnostic>,
) -> Result<(), Diagnostic> {
    let Some((at, value)) = fields.one_of(&["transport", "transport_spec"])? else {
        let message = format!("{} is missing: say what the JSONSocket runs over", fields.path("transport"));
        return Err(Diagnostic::new(Reason::MissingField, message));
    };
    let mut inner = Fields::of(at.clone(), value)?;
    let transport = self::socket(&mut inner, side, notes)?;
    inner.finish(notes);
    let carries =
        [Protocol::Udp, Protocol::Tcp, Protocol::WebSocket, Protocol::UnixDomainSocket].contains(&transport.protocol);
    if !carries {
        return Err(invalid(&at, value, "a JSONSocket runs over UDP, TCP, WebSocket or UnixDomainSocket"));
    }
    socket.transport = Some(Box::new(transport));
    if side == Side::Cluster {
        let items = fields.list("header")?;
        if fields.has("header") {
            socket.fields.insert("header".to_owned(), Value::Array(items.to_vec()));
        }
        copy(fields, socket, &["handshake"]);
    }
    Ok(())
}

fn copy(fields: &mut Fields<'_>, socket: &mut Socket, keys: &[&str]) {
    for key in keys {
        if let Some(value) = fields.get(key) {
            socket.fields.insert((*key).to_owned(), value.clone());
        }
    }
}

fn copy_text(fields: &mut Fields<'_>, socket: &mut Socket, keys: &[&str]) -> Result<(), Diagnostic> {
    for key in keys {
        let at = fields.path(key);
        if let Some(value) = fields.get(key) {
            let word = value.as_str().ok_or_else(|| invalid(&at, value, "a text is expected"))?;
            socket.fields.insert((*key).to_owned(), word.into());
        }
    }
    Ok(())
}

fn one_word(fields: &mut Fields<'_>, socket: &mut Socket, key: &str, words: &[&str]) -> Result<(), Diagnostic> {
    let at = fields.path(key);
    let Some(value) = fields.get(key) else { return Ok(()) };
    let known = value.as_str().filter(|word| words.contains(word));
    let word = known.ok_or_else(|| invalid(&at, value, &format!("use one of {}", words.join(", "))))?;
    socket.fields.insert(key.to_owned(), word.into());
    Ok(())
}
