//! The endpoints that a local Service gets from a remote.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::addresses::{self, AddressRefused};
use super::names::SliceGroup;
use super::nodes::{NodeEndpoints, sorted};
use super::packing::Wanted;
use super::reason::{Reason, Unmet};
use super::rules::{Rules, TargetMode};
use super::types::{
    Endpoint, EndpointConditions, EndpointPort, Local, LocalService, NodeName, Remote, RemoteName, ServiceName,
    SliceContent, Source, SourceSlice, SourceSlices, TargetPort,
};
use crate::net::Family;

/// What becomes of the slices that a Service has from a remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endpoints {
    /// They stay as they are.
    Keep,
    /// They take no traffic.
    NotReady,
    /// They hold nothing.
    Emptied,
    /// They hold exactly this.
    Exactly(BTreeMap<SliceGroup, Wanted>),
}

impl Endpoints {
    /// A recorded slice, where it is not replaced by others.
    pub(super) fn in_place(&self, recorded: &SliceContent) -> SliceContent {
        let mut content = recorded.clone();
        match self {
            Self::Keep | Self::Exactly(_) => {}
            Self::NotReady => {
                content.endpoints.iter_mut().for_each(|one| one.conditions = EndpointConditions::NOT_READY);
            }
            Self::Emptied => content.endpoints.clear(),
        }
        content
    }
}

/// The half of the plan that gives Services their endpoints, for one remote.
pub(super) struct EndpointPlanner<'a> {
    pub(super) local: &'a Local,
    pub(super) name: &'a RemoteName,
    pub(super) remote: &'a Remote,
    pub(super) nodes: &'a NodeEndpoints,
}

impl EndpointPlanner<'_> {
    /// Endpoints of a mirror whose source is mirrored.
    pub(super) fn of_source(
        &self,
        service: &LocalService,
        source_name: &ServiceName,
        source: &Source,
        unmet: &mut Vec<Unmet>,
    ) -> Endpoints {
        match self.remote.rules.target {
            TargetMode::NodePort => self.of_nodes(service, source_name, source, unmet),
            TargetMode::LoadBalancer => self.of_load_balancer(service, source, unmet),
            TargetMode::Pod => self.of_pods(service, source_name, source, unmet),
        }
    }

    /// Endpoints of a Service whose ports say where its traffic goes: made by a user, or frozen.
    pub(super) fn of_target_ports(
        &self,
        service: &LocalService,
        source: Option<&Source>,
        unmet: &mut Vec<Unmet>,
    ) -> Endpoints {
        let mut ports = Vec::new();
        for port in &service.spec.ports {
            let number = match &port.target {
                TargetPort::Number(number) => Ok(*number),
                TargetPort::Name(name) => source.and_then(|source| node_port_named(source, name)).ok_or(name),
            };
            match number {
                Ok(number) => ports.push(port.endpoint(number)),
                Err(name) => unmet.push(self.unmet(
                    Reason::NamedTargetPort,
                    format!(
                        "port {} has the targetPort `{name}`, which no Service of this name in {} resolves to a \
                         nodePort: write the number",
                        port.port, self.name
                    ),
                )),
            }
        }
        let families = self.families(&service.spec.families, None, unmet);
        let ports = self.allowed(ports, unmet);
        self.node_groups(&families, &ports, None, unmet)
    }

    fn of_nodes(
        &self,
        service: &LocalService,
        source_name: &ServiceName,
        source: &Source,
        unmet: &mut Vec<Unmet>,
    ) -> Endpoints {
        let mut ports = Vec::new();
        for port in &source.spec.ports {
            match port.node_port {
                Some(number) => ports.push(port.endpoint(number)),
                None => unmet.push(self.unmet(
                    Reason::NoNodePort,
                    format!("port {} of the Service in {} has no nodePort", port.port, self.name),
                )),
            }
        }
        let only = if source.local_traffic_only {
            match &self.remote.slices {
                SourceSlices::Unread => return Endpoints::Keep,
                SourceSlices::Forbidden => {
                    unmet.push(self.unmet(
                        Reason::EndpointSlicesForbidden,
                        format!(
                            "externalTrafficPolicy is Local, but EndpointSlices of {} cannot be read: all nodes are \
                             used; grant list and watch on endpointslices",
                            self.name
                        ),
                    ));
                    None
                }
                SourceSlices::Read(slices) => Some(nodes_with_endpoints(slices.get(source_name))),
            }
        } else {
            None
        };
        let families = self.families(&service.spec.families, Some(&source.spec.families), unmet);
        let ports = self.allowed(ports, unmet);
        self.node_groups(&families, &ports, only.as_ref(), unmet)
    }

    fn node_groups(
        &self,
        families: &[Family],
        ports: &[EndpointPort],
        only: Option<&BTreeSet<NodeName>>,
        unmet: &mut Vec<Unmet>,
    ) -> Endpoints {
        let remote = self.name;
        if self.nodes.usable == 0 {
            let kept = if self.remote.rules.nodes.keep_when_none { "; endpoints stay as they were" } else { "" };
            unmet.push(self.unmet(Reason::NoUsableNode, format!("no node of {remote} is usable{kept}")));
            if self.remote.rules.nodes.keep_when_none {
                return Endpoints::Keep;
            }
        }
        self.report_refused(&self.nodes.refused, unmet);
        if self.nodes.beyond_limit > 0 {
            let message = format!(
                "{} nodes of {remote} are beyond limits.nodes and get no traffic: raise the limit",
                self.nodes.beyond_limit
            );
            unmet.push(self.unmet(Reason::LimitExceeded, message));
        }
        let groups = families.iter().map(|family| {
            let wanted =
                Wanted { family: *family, ports: ports.to_vec(), endpoints: self.nodes.of_family(*family, only) };
            (self.group(*family, String::new()), wanted)
        });
        Endpoints::Exactly(groups.collect())
    }

    fn of_load_balancer(&self, service: &LocalService, source: &Source, unmet: &mut Vec<Unmet>) -> Endpoints {
        if source.ingress.is_empty() {
            let (reason, problem) = if source.ingress_has_hostname {
                (Reason::HostnameIngress, "has only a host name: use targetMode NodePort or Pod")
            } else {
                (Reason::NoIngressAddress, "has no address yet")
            };
            unmet.push(self.unmet(reason, format!("the load balancer of the Service in {} {problem}", self.name)));
        }
        let ports = source.spec.ports.iter().map(|port| port.endpoint(port.port));
        let ports = self.allowed(ports.collect(), unmet);
        let mut refused = BTreeMap::new();
        let allowed: Vec<IpAddr> =
            source.ingress.iter().copied().filter(|address| self.is_allowed(*address, &mut refused)).collect();
        self.report_refused(&refused, unmet);
        let has = |family| allowed.iter().any(|address| Family::of(*address) == family);
        let mut families: Vec<Family> = service.spec.families.clone();
        if !allowed.is_empty() {
            families.retain(|family| has(*family));
            if families.is_empty() {
                unmet.push(self.no_common_family());
            }
        }
        let groups = families.into_iter().map(|family| {
            let of_family = allowed.iter().filter(|address| Family::of(**address) == family);
            let endpoints = sorted(of_family.map(|address| ready(*address))).into();
            (self.group(family, String::new()), Wanted { family, ports: ports.clone(), endpoints })
        });
        Endpoints::Exactly(groups.collect())
    }

    fn of_pods(
        &self,
        service: &LocalService,
        source_name: &ServiceName,
        source: &Source,
        unmet: &mut Vec<Unmet>,
    ) -> Endpoints {
        let SourceSlices::Read(slices) = &self.remote.slices else {
            if self.remote.slices == SourceSlices::Forbidden {
                let message = format!(
                    "EndpointSlices of {} cannot be read, so there are no endpoints: grant list and watch on \
                     endpointslices",
                    self.name
                );
                unmet.push(self.unmet(Reason::EndpointSlicesForbidden, message));
            }
            return Endpoints::Keep;
        };
        let mut refused = BTreeMap::new();
        let mut groups: BTreeMap<SliceGroup, (Vec<EndpointPort>, Vec<Endpoint>)> = BTreeMap::new();
        let common = |family: Family| service.spec.families.contains(&family) && source.spec.families.contains(&family);
        let slices = slices.get(source_name).into_iter().flat_map(BTreeMap::values);
        for slice in slices.filter(|slice| common(slice.family)) {
            let ports = self.allowed(slice.ports.clone(), unmet);
            let group = self.group(slice.family, port_set(&ports));
            let (_, endpoints) = groups.entry(group).or_insert_with(|| (ports, Vec::new()));
            let of_slice = slice.endpoints.iter().map(|source| &source.endpoint);
            endpoints.extend(of_slice.filter(|endpoint| self.is_allowed(endpoint.address, &mut refused)).cloned());
        }
        self.report_refused(&refused, unmet);
        if !service.spec.families.iter().any(|family| source.spec.families.contains(family)) {
            unmet.push(self.no_common_family());
        }
        let groups = groups.into_iter().map(|(group, (ports, endpoints))| {
            let wanted = Wanted { family: group.family, ports, endpoints: sorted(endpoints.into_iter()).into() };
            (group, wanted)
        });
        Endpoints::Exactly(groups.collect())
    }

    /// Families that the Service, its source and the nodes have in common. Without any node: as if nodes had all.
    fn families(&self, of_service: &[Family], of_source: Option<&[Family]>, unmet: &mut Vec<Unmet>) -> Vec<Family> {
        let of_nodes: Vec<Family> = self.nodes.families().collect();
        let common = of_service.iter().copied().filter(|family| {
            of_source.is_none_or(|source| source.contains(family)) && (of_nodes.is_empty() || of_nodes.contains(family))
        });
        let common: Vec<Family> = common.collect();
        if common.is_empty() {
            unmet.push(self.no_common_family());
        }
        common
    }

    fn allowed(&self, ports: Vec<EndpointPort>, unmet: &mut Vec<Unmet>) -> Vec<EndpointPort> {
        let Rules { ports: (first, last), .. } = self.remote.rules;
        let (allowed, refused): (Vec<_>, Vec<_>) =
            ports.into_iter().partition(|port| (first..=last).contains(&port.port));
        if let Some(port) = refused.first() {
            let message = format!(
                "port {} of endpoints in {} is not in addresses.ports ({first}-{last}) and is left out",
                port.port, self.name
            );
            unmet.push(self.unmet(Reason::PortNotAllowed, message));
        }
        allowed
    }

    fn is_allowed(&self, address: IpAddr, refused: &mut BTreeMap<IpAddr, AddressRefused>) -> bool {
        match addresses::check(self.local, &self.remote.rules, address) {
            Ok(()) => true,
            Err(why) => {
                refused.insert(address, why);
                false
            }
        }
    }

    fn report_refused(&self, refused: &BTreeMap<IpAddr, AddressRefused>, unmet: &mut Vec<Unmet>) {
        let Some((address, why)) = refused.first_key_value() else { return };
        let others = match refused.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        let message = format!("address {address} of {}{others} {}: it gets no traffic", self.name, why.message());
        unmet.push(self.unmet(Reason::AddressNotAllowed, message));
    }

    fn no_common_family(&self) -> Unmet {
        let message = format!("the Service and its endpoints in {} have no IP family in common", self.name);
        self.unmet(Reason::NoCommonIpFamily, message)
    }

    fn unmet(&self, reason: Reason, message: String) -> Unmet {
        Unmet { remote: Some(self.name.clone()), reason, message }
    }

    fn group(&self, family: Family, ports: String) -> SliceGroup {
        SliceGroup { remote: self.name.clone(), family, ports }
    }
}

fn ready(address: IpAddr) -> Endpoint {
    Endpoint { address, conditions: EndpointConditions::READY, zone: None, hostname: None }
}

/// The nodePort of the port with this targetPort name, or else with this name.
fn node_port_named(source: &Source, name: &str) -> Option<u16> {
    let ports = &source.spec.ports;
    let by_target = ports.iter().find(|port| matches!(&port.target, TargetPort::Name(target) if **target == *name));
    by_target.or_else(|| ports.iter().find(|port| *port.name == *name))?.node_port
}

/// Nodes on which a ready endpoint of the Service runs.
fn nodes_with_endpoints(slices: Option<&BTreeMap<std::sync::Arc<str>, SourceSlice>>) -> BTreeSet<NodeName> {
    let endpoints = slices.into_iter().flat_map(BTreeMap::values).flat_map(|slice| &slice.endpoints);
    endpoints.filter(|source| source.endpoint.conditions.ready).filter_map(|source| source.node.clone()).collect()
}

/// A port set as text: equal for equal sets.
pub(super) fn port_set(ports: &[EndpointPort]) -> String {
    let mut words: Vec<String> =
        ports.iter().map(|port| format!("{}/{}/{}", port.name, port.protocol.as_str(), port.port)).collect();
    words.sort_unstable();
    words.join(",")
}
