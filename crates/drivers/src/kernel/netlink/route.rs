//! Links, addresses, rules and routes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::socket::{ROUTE, Socket};
use super::wire::{CREATE, EXCLUSIVE, Message, REPLACE, attributes, find, put, put_nested, text, u16_at, u32_at};
use crate::kernel::ruleset::{TUNNEL_INDEX, TUNNEL_LINK, TUNNEL_PORT};
use crate::kernel::state::{Network, Route, RouteKey, RoutingRule, Tunnel};
use crate::kernel::{KernelError, Link, MacAddress};

/// Who made a route, a rule or a proxied address: us. Routing daemons have their numbers in /etc/iproute2/rt_protos.
pub(super) const PROTOCOL: u8 = 227;

pub(super) const IPV4: u8 = 2;
pub(super) const IPV6: u8 = 10;
const FAMILIES: [u8; 2] = [IPV4, IPV6];

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;
pub(super) const NEW_ROUTE: u16 = 24;
pub(super) const DELETE_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;
pub(super) const NEW_RULE: u16 = 32;
pub(super) const DELETE_RULE: u16 = 33;
const GET_RULE: u16 = 34;

const IS_UP: u32 = 1;
const VNI: u32 = 100;
const SCOPE_LINK: u8 = 253;
const SCOPE_UNIVERSE: u8 = 0;
const UNICAST: u8 = 1;
const BLACKHOLE: u8 = 6;

pub(super) struct Routing {
    pub(super) socket: Socket,
}

impl Routing {
    pub(super) fn open() -> Result<Self, KernelError> {
        Ok(Self { socket: Socket::open_strict(ROUTE)? })
    }

    /// All links with their addresses, and the tunnel if it is there.
    pub(super) fn links(&mut self) -> Result<(BTreeMap<String, Link>, Option<Tunnel>), KernelError> {
        let found =
            self.socket.dump("links", &Message::new(GET_LINK, 0, &[0; 16]), |received| read_link(received.body))?;
        let mut names = BTreeMap::new();
        let mut links = BTreeMap::new();
        let mut tunnel = None;
        for (name, link, details) in found {
            names.insert(link.index, name.clone());
            if name == TUNNEL_LINK {
                tunnel = Some((link.clone(), details));
            }
            links.insert(name, link);
        }
        for (index, address) in self.addresses(None)? {
            if let Some(link) = names.get(&index).and_then(|name| links.get_mut(name)) {
                link.addresses.insert(address);
            }
        }
        let tunnel = tunnel.map(|(link, details)| {
            // Another link of this name is replaced: it is none of ours, whatever it carries.
            let details = details.filter(|_| link.index == TUNNEL_INDEX);
            let (parent, local) = details.unwrap_or((0, IpAddr::from([0, 0, 0, 0])));
            let parent = names.get(&parent).cloned().unwrap_or_default();
            let mac = link.mac.unwrap_or(MacAddress([0; 6]));
            Tunnel { mac, parent, local, mtu: link.mtu, is_up: link.is_up }
        });
        Ok((links, tunnel))
    }

    /// What routes packets, as far as it is ours.
    pub(super) fn dump(&mut self, network: &mut Network, has_tunnel: bool) -> Result<(), KernelError> {
        if has_tunnel {
            let addresses = self.addresses(Some(TUNNEL_INDEX))?;
            network.addresses = addresses.into_iter().map(|(_, address)| address).collect();
        }
        for family in FAMILIES {
            let rules = Message::new(GET_RULE, 0, &[family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            let rules = self.socket.dump("rules", &rules, |received| read_rule(received.body))?;
            network.rules.extend(rules.into_iter().flatten());
            let routes = Message::new(GET_ROUTE, 0, &[family, 0, 0, 0, 0, PROTOCOL, 0, 0, 0, 0, 0, 0]);
            let routes = self.socket.dump("routes", &routes, |received| read_route(received.body))?;
            network.routes.extend(routes.into_iter().flatten());
        }
        Ok(())
    }

    pub(super) fn create_tunnel(&mut self, tunnel: &Tunnel) -> Result<(), KernelError> {
        let parent = self.index(&tunnel.parent)?;
        let mut data = attributes(&[
            (1, &VNI.to_ne_bytes()),
            (3, &parent.to_ne_bytes()),
            (15, &TUNNEL_PORT.to_be_bytes()),
            // Peers are what the control plane says, not what arrives.
            (7, &[0]),
        ]);
        match tunnel.local {
            IpAddr::V4(local) => put(&mut data, 4, &local.octets()),
            IpAddr::V6(local) => put(&mut data, 17, &local.octets()),
        }
        let mut info = attributes(&[(1, b"vxlan\0")]);
        put_nested(&mut info, 2, &data);
        let message = link_message(NEW_LINK, CREATE | EXCLUSIVE, tunnel)
            .attribute(1, &tunnel.mac.0)
            .attribute(3, &[TUNNEL_LINK.as_bytes(), &[0]].concat())
            .nested(18, &info);
        self.socket.change("a new tunnel", message)
    }

    pub(super) fn update_tunnel(&mut self, tunnel: &Tunnel) -> Result<(), KernelError> {
        // Without the MAC address: setting even the same one again makes the kernel forget all neighbours.
        self.socket.change("a change of the tunnel", link_message(NEW_LINK, 0, tunnel))
    }

    pub(super) fn delete_tunnel(&mut self) -> Result<(), KernelError> {
        let by_name = Message::new(DELETE_LINK, 0, &[0; 16]).attribute(3, &[TUNNEL_LINK.as_bytes(), &[0]].concat());
        self.socket.change("the end of the tunnel", by_name)
    }

    pub(super) fn add_address(&mut self, address: &IpNet) -> Result<(), KernelError> {
        self.socket.change(&format!("address {address}"), address_message(NEW_ADDRESS, CREATE | REPLACE, address))
    }

    pub(super) fn remove_address(&mut self, address: &IpNet) -> Result<(), KernelError> {
        self.socket.remove(&format!("the removal of address {address}"), address_message(DELETE_ADDRESS, 0, address))
    }

    pub(super) fn add_rule(&mut self, rule: &RoutingRule) -> Result<(), KernelError> {
        self.socket.change(&format!("rule {rule:?}"), rule_message(NEW_RULE, CREATE | EXCLUSIVE, rule))
    }

    pub(super) fn remove_rule(&mut self, rule: &RoutingRule) -> Result<(), KernelError> {
        self.socket.remove(&format!("the removal of rule {rule:?}"), rule_message(DELETE_RULE, 0, rule))
    }

    pub(super) fn add_route(&mut self, key: &RouteKey, route: Route) -> Result<(), KernelError> {
        let message = route_message(NEW_ROUTE, CREATE | REPLACE, key, route);
        self.socket.change(&format!("the route to {} in table {}", key.destination, key.table), message)
    }

    pub(super) fn remove_route(&mut self, key: &RouteKey, route: Route) -> Result<(), KernelError> {
        let message = route_message(DELETE_ROUTE, 0, key, route);
        self.socket.remove(&format!("the removal of the route to {} in table {}", key.destination, key.table), message)
    }

    /// The number of a link.
    pub(super) fn index(&self, name: &str) -> Result<u32, KernelError> {
        let no_link = |_| KernelError::NoLink { name: name.to_owned() };
        rustix::net::netdevice::name_to_index(&self.socket, name).map_err(no_link)
    }

    /// Addresses of all links, or of one, with the number of their link.
    fn addresses(&mut self, link: Option<u32>) -> Result<Vec<(u32, IpNet)>, KernelError> {
        let mut found = Vec::new();
        for family in FAMILIES {
            let [a, b, c, d] = link.unwrap_or_default().to_ne_bytes();
            let request = Message::new(GET_ADDRESS, 0, &[family, 0, 0, 0, a, b, c, d]);
            let addresses = self.socket.dump("addresses", &request, |received| read_address(received.body))?;
            found.extend(addresses.into_iter().flatten());
        }
        Ok(found)
    }
}

pub(super) fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { IPV4 } else { IPV6 }
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().into(),
        IpAddr::V6(address) => address.octets().into(),
    }
}

pub(super) fn read_ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

pub(super) fn read_mac(bytes: &[u8]) -> Option<MacAddress> {
    bytes.try_into().ok().map(MacAddress)
}

/// A link's name and properties, and for a VXLAN link of ours the number of its parent and its local address.
#[expect(clippy::type_complexity, reason = "one message, taken apart at once")]
fn read_link(body: &[u8]) -> Option<(String, Link, Option<(u32, IpAddr)>)> {
    let (header, attributes) = body.split_at_checked(16)?;
    let name = text(find(attributes, 3)?)?.to_owned();
    let link = Link {
        index: u32_at(header, 4)?,
        mac: find(attributes, 1).and_then(read_mac),
        mtu: u32_at(find(attributes, 4)?, 0)?,
        is_up: u32_at(header, 8)? & IS_UP != 0,
        addresses: BTreeSet::new(),
    };
    let details = find(attributes, 18).and_then(|info| {
        let data = find(info, 2)?;
        let number = |kind| u32_at(find(data, kind)?, 0);
        let local = find(data, 4).or_else(|| find(data, 17)).and_then(read_ip)?;
        let is_as_made = find(info, 1) == Some(b"vxlan\0")
            && number(1) == Some(VNI)
            && find(data, 15) == Some(&TUNNEL_PORT.to_be_bytes())
            && find(data, 7) == Some(&[0]);
        is_as_made.then_some((number(3)?, local))
    });
    Some((name, link, details))
}

/// An address that someone has given; None in the second place for those that the kernel makes of the MAC address.
#[expect(clippy::option_option, reason = "the outer says whether it could be read, the inner whether it counts")]
fn read_address(body: &[u8]) -> Option<Option<(u32, IpNet)>> {
    let (header, attributes) = body.split_at_checked(8)?;
    let address = read_ip(find(attributes, 2).or_else(|| find(attributes, 1))?)?;
    if header[3] == SCOPE_LINK && header[0] == IPV6 {
        return Some(None);
    }
    Some(Some((u32_at(header, 4)?, IpNet::new(address, header[1]).ok()?)))
}

#[expect(clippy::option_option, reason = "the outer says whether it could be read, the inner whether it is ours")]
fn read_rule(body: &[u8]) -> Option<Option<RoutingRule>> {
    let (header, attributes) = body.split_at_checked(12)?;
    if find(attributes, 21) != Some(&[PROTOCOL]) {
        return Some(None);
    }
    let number = |kind| find(attributes, kind).and_then(|data| u32_at(data, 0)).unwrap_or_default();
    let is_ipv6 = header[0] == IPV6;
    Some(Some(RoutingRule { is_ipv6, priority: number(6), mark: number(10), mask: number(16), table: number(15) }))
}

#[expect(clippy::option_option, reason = "the outer says whether it could be read, the inner whether it is ours")]
fn read_route(body: &[u8]) -> Option<Option<(RouteKey, Route)>> {
    let (header, attributes) = body.split_at_checked(12)?;
    if header[5] != PROTOCOL {
        return Some(None);
    }
    let anywhere = if header[0] == IPV4 { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let destination = find(attributes, 1).and_then(read_ip).unwrap_or(anywhere);
    let number = |kind| find(attributes, kind).and_then(|data| u32_at(data, 0)).unwrap_or_default();
    let route = match (header[7], find(attributes, 5).and_then(read_ip)) {
        (BLACKHOLE, _) => Route::Blackhole,
        (_, Some(next_hop)) => Route::Via(next_hop),
        (_, None) => Route::Tunnel,
    };
    let key = RouteKey { table: number(15), destination: IpNet::new(destination, header[1]).ok()?, metric: number(6) };
    Some(Some((key, route)))
}

fn link_message(kind: u16, flags: u16, tunnel: &Tunnel) -> Message {
    let up = if tunnel.is_up { IS_UP } else { 0 };
    let header = [0, TUNNEL_INDEX, up, IS_UP].map(u32::to_ne_bytes).concat();
    Message::new(kind, flags, &header).attribute(4, &tunnel.mtu.to_ne_bytes())
}

fn address_message(kind: u16, flags: u16, address: &IpNet) -> Message {
    const NO_DETECTION: u8 = 2;
    let [a, b, c, d] = TUNNEL_INDEX.to_ne_bytes();
    let header = [family(address.addr()), address.prefix_len(), NO_DETECTION, 0, a, b, c, d];
    let octets = octets(address.addr());
    Message::new(kind, flags, &header).attribute(2, &octets).attribute(1, &octets)
}

fn rule_message(kind: u16, flags: u16, rule: &RoutingRule) -> Message {
    const TO_TABLE: u8 = 1;
    let family = if rule.is_ipv6 { IPV6 } else { IPV4 };
    Message::new(kind, flags, &[family, 0, 0, 0, 0, 0, 0, TO_TABLE, 0, 0, 0, 0])
        .attribute(6, &rule.priority.to_ne_bytes())
        .attribute(10, &rule.mark.to_ne_bytes())
        .attribute(16, &rule.mask.to_ne_bytes())
        .attribute(15, &rule.table.to_ne_bytes())
        .attribute(21, &[PROTOCOL])
}

fn route_message(kind: u16, flags: u16, key: &RouteKey, route: Route) -> Message {
    let family = family(key.destination.addr());
    let (scope, what) = match route {
        Route::Tunnel if family == IPV4 => (SCOPE_LINK, UNICAST),
        Route::Tunnel | Route::Via(_) => (SCOPE_UNIVERSE, UNICAST),
        Route::Blackhole => (SCOPE_UNIVERSE, BLACKHOLE),
    };
    let header = [family, key.destination.prefix_len(), 0, 0, 0, PROTOCOL, scope, what, 0, 0, 0, 0];
    let mut message = Message::new(kind, flags, &header)
        .attribute(1, &octets(key.destination.addr()))
        .attribute(15, &key.table.to_ne_bytes())
        .attribute(6, &key.metric.to_ne_bytes());
    if !matches!(route, Route::Blackhole) {
        message = message.attribute(4, &TUNNEL_INDEX.to_ne_bytes());
    }
    if let Route::Via(next_hop) = route {
        message = message.attribute(5, &octets(next_hop));
    }
    message
}

/// The protocol of a route in a message about one.
pub(super) fn route_protocol(body: &[u8]) -> Option<u8> {
    body.get(5).copied()
}

/// The number of the link in a message about an address, a link or a neighbour.
pub(super) fn link_index(body: &[u8]) -> Option<u32> {
    u16_at(body, 0).and(u32_at(body, 4))
}
