//! How a VirtualService or a naked Service is reached: its spec as a client has it, and its addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::Resolver;
use super::keys::{Callee, Key, SetId};
use super::sets::Purpose;
use crate::mesh::control::allowed::Ban;
use crate::mesh::control::selector::Selector;
use crate::mesh::control::types::{MeshKind, ObjectName, Protocol, Socket};
use crate::mesh::control::world::{EndpointSlice, ProxyRole, Service, SliceEndpoint};
use crate::mesh::control::{Diagnostic, Reason};

/// How somebody is reached.
#[derive(Debug, Clone)]
pub(super) struct Reached {
    pub(super) socket: Socket,
    pub(super) tls: Option<Value>,
    pub(super) at: Place,
}

/// Where somebody is reached.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// At the addresses of these pods.
    Pods(SetId),
    /// At a name elsewhere.
    Name(Arc<str>),
    /// At a socket file, from these pods only.
    File(String, SetId),
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl Resolver {
    /// How a callee is reached, with remarks.
    pub(super) fn reach(
        &mut self,
        callee: &Callee,
        reads: &mut BTreeSet<Key>,
        notes: &mut Vec<Diagnostic>,
    ) -> Result<Reached, Diagnostic> {
        match callee {
            Callee::VirtualService(name) => self.reach_virtual_service(name, reads),
            Callee::Service(name) => self.reach_service(name, reads, notes),
        }
    }

    fn reach_virtual_service(&mut self, name: &ObjectName, reads: &mut BTreeSet<Key>) -> Result<Reached, Diagnostic> {
        reads.insert(Key::Object(MeshKind::VirtualService, name.clone()));
        let Some(found) = self.virtual_service(name).cloned() else {
            let message = format!("VirtualService `{}` is refused: see its status", name.name);
            return Err(Diagnostic::new(Reason::RefInvalid, message));
        };
        let set = self.set(Purpose::Callee, &name.namespace, &found.selector);
        let socket = as_client(&found.listener)?;
        let at = match found.listener.filename() {
            Some(filename) => Place::File(filename.to_owned(), set),
            None => Place::Pods(set),
        };
        Ok(Reached { socket, tls: found.extensions.tls.clone(), at })
    }

    fn reach_service(
        &mut self,
        name: &ObjectName,
        reads: &mut BTreeSet<Key>,
        notes: &mut Vec<Diagnostic>,
    ) -> Result<Reached, Diagnostic> {
        reads.insert(Key::Service(name.clone()));
        reads.insert(Key::Slices(name.clone()));
        let Some(service) = self.world.services.get(name).cloned() else {
            return Err(Diagnostic::new(Reason::RefNotFound, format!("there is no Service `{name}`: create it")));
        };
        let port = self.only_port(name, &service)?;
        let set = self.set(Purpose::Callee, &name.namespace, &Selector::service(Arc::clone(&name.name)));
        reads.insert(Key::Members(Arc::clone(&set)));
        let members = self.sets.get(&set).map(|set| &set.members).into_iter().flatten();
        let proxies = members.clone().filter(|pod| self.marks.get(*pod).is_some_and(|mark| *mark != ProxyRole::Naked));
        match (members.clone().count(), proxies.count()) {
            (_, 0) => {}
            (all, proxies) if all == proxies => {
                let message = format!(
                    "every pod of Service `{}` runs a proxy, which must be told what to do: write a VirtualService `{}`",
                    name.name, name.name
                );
                return Err(Diagnostic::new(Reason::ProxyServiceNeedsVirtualService, message));
            }
            (all, proxies) => {
                let message =
                    format!("{proxies} of {all} pods of Service `{}` run a proxy, the rest do not", name.name);
                notes.push(Diagnostic::new(Reason::MixedPods, message));
            }
        }
        let at = match &service.external_name {
            Some(elsewhere) => Place::Name(Arc::clone(elsewhere)),
            None => Place::Pods(set),
        };
        Ok(Reached { socket: port, tls: None, at })
    }

    /// The generated spec of a Service: its only port, as its pods have it.
    pub(super) fn only_port(&self, name: &ObjectName, service: &Service) -> Result<Socket, Diagnostic> {
        let [port] = &service.ports[..] else {
            let ports = service.ports.iter().map(|port| format!("{}/{}", port.port, port.protocol)).collect::<Vec<_>>();
            let message = format!(
                "Service `{}` has {} ports ({}): write a VirtualService for the one you mean",
                name.name,
                ports.len(),
                ports.join(", ")
            );
            return Err(Diagnostic::new(Reason::AmbiguousPort, message));
        };
        let protocol = match (&*port.protocol, port.app_protocol.as_deref()) {
            ("TCP" | "", Some("kubernetes.io/ws")) => Protocol::WebSocket,
            ("TCP" | "", _) => Protocol::Tcp,
            ("UDP", _) => Protocol::Udp,
            (other, _) => {
                let message = format!("Service `{}` speaks {other}, which no proxy does: use TCP or UDP", name.name);
                return Err(Diagnostic::new(Reason::UnsupportedProtocol, message));
            }
        };
        let named = |slice: &EndpointSlice| {
            slice.ports.iter().filter(|own| own.name == port.name).map(|own| own.port).collect::<Vec<_>>()
        };
        let numbers: BTreeSet<u16> = self.slices(name).flat_map(named).collect();
        if numbers.len() > 1 {
            let list = numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
            let message = format!(
                "the port of Service `{}` has different numbers among its pods ({list}): write VirtualServices by label",
                name.name
            );
            return Err(Diagnostic::new(Reason::MixedPorts, message));
        }
        let number = numbers.first().copied().or(port.target_port).unwrap_or(port.port);
        Ok(Socket::at_port(protocol, number))
    }

    /// Addresses of a set's pods, sorted by family and number; true for those that only keep what they have.
    pub(super) fn addresses(
        &self,
        id: &SetId,
        family: Option<Family>,
        reads: &mut BTreeSet<Key>,
    ) -> Vec<(IpAddr, bool)> {
        reads.insert(Key::Endpoints(Arc::clone(id)));
        let Some(set) = self.sets.get(id) else { return Vec::new() };
        let mut found: BTreeMap<(bool, IpAddr), bool> = BTreeMap::new();
        let mut add = |ip: IpAddr, draining: bool| {
            found.entry((ip.is_ipv6(), ip)).and_modify(|was| *was &= draining).or_insert(draining);
        };
        if let Some(service) = &set.service {
            reads.insert(Key::Slices(service.clone()));
            let belongs = |pod: Option<&ObjectName>| match pod {
                Some(pod) => set.is_whole_service || set.members.contains(pod),
                None => set.is_whole_service,
            };
            for (ip, draining) in self.slice_addresses(service, family, belongs) {
                add(ip, draining);
            }
        } else {
            for name in &set.members {
                let Some(pod) = self.world.pods.get(name).filter(|pod| pod.ready) else { continue };
                let ip = pod.addresses.iter().find(|ip| family.is_none_or(|family| family == Family::of(**ip)));
                if let Some(ip) = ip.filter(|ip| !matches!(self.world.settings.ban_ip(**ip), Ban::Everywhere(_))) {
                    add(*ip, pod.terminating);
                }
            }
        }
        found.into_iter().map(|((_, ip), draining)| (ip, draining)).collect()
    }

    fn slice_addresses(
        &self,
        service: &ObjectName,
        family: Option<Family>,
        belongs: impl Fn(Option<&ObjectName>) -> bool,
    ) -> Vec<(IpAddr, bool)> {
        let publish = self.world.services.get(service).is_some_and(|service| service.publish_not_ready);
        let all: Vec<_> = self.slices(service).flat_map(|slice| &slice.endpoints).collect();
        let preferred = family.or_else(|| {
            let plain = all.iter().filter(|one| one.pod.is_none());
            plain.map(|one| Family::of(one.address)).min_by_key(|family| *family == Family::V6)
        });
        let fits = |one: &&&SliceEndpoint| {
            let primary =
                one.pod.as_ref().and_then(|pod| self.world.pods.get(pod)).and_then(|pod| pod.addresses.first());
            let wanted = family.or_else(|| primary.map(|ip| Family::of(*ip))).or(preferred);
            let ban = self.world.settings.ban_ip(one.address);
            let allowed = if one.pod.is_some() { !matches!(ban, Ban::Everywhere(_)) } else { ban == Ban::None };
            allowed && belongs(one.pod.as_ref()) && wanted.is_none_or(|wanted| wanted == Family::of(one.address))
        };
        let fitting: Vec<_> = all.iter().filter(fits).collect();
        let is_ready = |one: &SliceEndpoint| one.ready || (publish && !one.terminating);
        let any_ready = fitting.iter().any(|one| is_ready(one));
        let mut found = Vec::new();
        for one in fitting {
            if is_ready(one) || (!any_ready && one.serving) {
                found.push((one.address, false));
            } else if one.serving && one.terminating {
                found.push((one.address, true));
            }
        }
        found
    }

    /// The EndpointSlices of a Service.
    pub(super) fn slices(&self, service: &ObjectName) -> impl Iterator<Item = &EndpointSlice> + use<'_> {
        let names = self.slices_of.get(service).into_iter().flatten();
        names.filter_map(|name| self.world.slices.get(name))
    }
}

/// A listener's spec as its clients have it.
fn as_client(listener: &Socket) -> Result<Socket, Diagnostic> {
    let mut socket = Socket { protocol: listener.protocol, fields: Map::new(), transport: None };
    if listener.protocol == Protocol::Http {
        let message = "no proxy is an HTTP client yet: reach it over TCP with a Target of your own";
        return Err(Diagnostic::new(Reason::UnsupportedByProxy, message));
    }
    if let Some(transport) = &listener.transport {
        socket.transport = Some(Box::new(as_client(transport)?));
    }
    let kept: &[&str] = match listener.protocol {
        Protocol::UnixDomainSocket => &["filename", "type", "framing"],
        // both ends must agree on it
        Protocol::Tcp => &["port", "framing"],
        Protocol::Udp | Protocol::WebSocket => &["port"],
        Protocol::JsonSocket
        | Protocol::Http
        | Protocol::Echo
        | Protocol::Discard
        | Protocol::Logger
        | Protocol::Stdio
        | Protocol::Sync
        | Protocol::Metric
        | Protocol::Prometheus
        | Protocol::JsonEncap
        | Protocol::JsonDecap
        | Protocol::L7mpController => &[],
    };
    for key in kept {
        if let Some(value) = listener.fields.get(*key) {
            socket.fields.insert((*key).to_owned(), value.clone());
        }
    }
    Ok(socket)
}
