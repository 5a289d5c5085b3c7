//! How clients connect to a VirtualService or to a Service without proxies: the client's spec, and the addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Map;

use super::compiled::{CalleeAddress, Family, ReachableCallee};
use super::dependencies::{Callee, Dependency, PodSetId};
use super::pod_sets::SetPurpose;
use super::state::Resolver;
use crate::mesh::control::endpoint_ban::EndpointBan;
use crate::mesh::control::selector::Selector;
use crate::mesh::control::types::{MeshKind, ObjectName, Protocol, Socket};
use crate::mesh::control::world::{EndpointSlice, ProxyRole, Service, SliceEndpoint};
use crate::mesh::control::{Diagnostic, Reason};

impl Resolver {
    /// How clients connect to a callee.
    pub(super) fn reach(
        &mut self,
        callee: &Callee,
        reads: &mut BTreeSet<Dependency>,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Result<ReachableCallee, Diagnostic> {
        match callee {
            Callee::VirtualService(name) => self.reach_virtual_service(name, reads),
            Callee::Service(name) => self.reach_service(name, reads, diagnostics),
        }
    }

    fn reach_virtual_service(
        &mut self,
        name: &ObjectName,
        reads: &mut BTreeSet<Dependency>,
    ) -> Result<ReachableCallee, Diagnostic> {
        reads.insert(Dependency::Object(MeshKind::VirtualService, name.clone()));
        let Some(found) = self.virtual_service(name).cloned() else {
            let message = format!("VirtualService `{}` is invalid: see its status", name.name);
            return Err(Diagnostic::new(Reason::RefInvalid, message));
        };
        let set = self.set(SetPurpose::Callee, &name.namespace, &found.selector);
        let socket = as_client(&found.listener)?;
        let at = match found.listener.filename() {
            Some(filename) => CalleeAddress::File(filename.to_owned(), set),
            None => CalleeAddress::Pods(set),
        };
        Ok(ReachableCallee { socket, tls: found.extensions.tls.clone(), at })
    }

    fn reach_service(
        &mut self,
        name: &ObjectName,
        reads: &mut BTreeSet<Dependency>,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Result<ReachableCallee, Diagnostic> {
        reads.insert(Dependency::Service(name.clone()));
        reads.insert(Dependency::Slices(name.clone()));
        let Some(service) = self.world.services.get(name).cloned() else {
            return Err(Diagnostic::new(Reason::RefNotFound, format!("Service `{name}` does not exist: create it")));
        };
        let port = self.only_port(name, &service)?;
        let set = self.set(SetPurpose::Callee, &name.namespace, &Selector::service(Arc::clone(&name.name)));
        reads.insert(Dependency::Members(Arc::clone(&set)));
        let members = self.sets.get(&set).map(|set| &set.members).into_iter().flatten();
        let proxies =
            members.clone().filter(|pod| self.proxy_roles.get(*pod).is_some_and(|mark| *mark != ProxyRole::Naked));
        match (members.clone().count(), proxies.count()) {
            (_, 0) => {}
            (all, proxies) if all == proxies => {
                let message = format!(
                    "all pods of Service `{}` run a proxy, which needs a VirtualService: create VirtualService `{}`",
                    name.name, name.name
                );
                return Err(Diagnostic::new(Reason::ProxyServiceNeedsVirtualService, message));
            }
            (all, proxies) => {
                let message = format!("only {proxies} of {all} pods of Service `{}` run a proxy", name.name);
                diagnostics.push(Diagnostic::new(Reason::MixedPods, message));
            }
        }
        let at = match &service.external_name {
            Some(elsewhere) => CalleeAddress::Name(Arc::clone(elsewhere)),
            None => CalleeAddress::Pods(set),
        };
        Ok(ReachableCallee { socket: port, tls: None, at })
    }

    /// The client's spec for a Service: its only port, with the port number of its pods.
    pub(super) fn only_port(&self, name: &ObjectName, service: &Service) -> Result<Socket, Diagnostic> {
        let [port] = &service.ports[..] else {
            let ports = service.ports.iter().map(|port| format!("{}/{}", port.port, port.protocol)).collect::<Vec<_>>();
            let message = format!(
                "Service `{}` has {} ports ({}): create a VirtualService for the port to use",
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
                let message = format!(
                    "Service `{}` uses protocol {other}, which proxies do not support: use TCP or UDP",
                    name.name
                );
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
                "the port of Service `{}` has different numbers on its pods ({list}): create VirtualServices by label",
                name.name
            );
            return Err(Diagnostic::new(Reason::MixedPorts, message));
        }
        let number = numbers.first().copied().or(port.target_port).unwrap_or(port.port);
        Ok(Socket::at_port(protocol, number))
    }

    /// Addresses of the pods of a set, sorted by family and number; true for those that are draining.
    pub(super) fn addresses(
        &self,
        id: &PodSetId,
        family: Option<Family>,
        reads: &mut BTreeSet<Dependency>,
    ) -> Vec<(IpAddr, bool)> {
        reads.insert(Dependency::Endpoints(Arc::clone(id)));
        let Some(set) = self.sets.get(id) else { return Vec::new() };
        let mut found: BTreeMap<(bool, IpAddr), bool> = BTreeMap::new();
        let mut add = |ip: IpAddr, draining: bool| {
            found.entry((ip.is_ipv6(), ip)).and_modify(|was| *was &= draining).or_insert(draining);
        };
        if let Some(service) = &set.service {
            reads.insert(Dependency::Slices(service.clone()));
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
                if let Some(ip) =
                    ip.filter(|ip| !matches!(self.world.settings.ban_ip(**ip), EndpointBan::Everywhere(_)))
                {
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
            let allowed =
                if one.pod.is_some() { !matches!(ban, EndpointBan::Everywhere(_)) } else { ban == EndpointBan::None };
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

/// The client's spec for a listener.
fn as_client(listener: &Socket) -> Result<Socket, Diagnostic> {
    let mut socket = Socket { protocol: listener.protocol, fields: Map::new(), transport: None };
    if listener.protocol == Protocol::Http {
        let message = "proxies do not support HTTP as a client: use a Target with TCP";
        return Err(Diagnostic::new(Reason::UnsupportedByProxy, message));
    }
    if let Some(transport) = &listener.transport {
        socket.transport = Some(Box::new(as_client(transport)?));
    }
    let kept: &[&str] = match listener.protocol {
        Protocol::UnixDomainSocket => &["filename", "type", "framing"],
        // both sides must use the same framing
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
