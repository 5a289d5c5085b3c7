//! Neighbours on the tunnel, its forwarding table, and the addresses that the uplink answers for.

use std::net::IpAddr;

use super::route::{IPV4, IPV6, PROTOCOL, Routing, family, octets, read_ip, read_mac};
use super::wire::{CREATE, Message, REPLACE, find, u32_at};
use crate::kernel::ruleset::TUNNEL_INDEX;
use crate::kernel::state::Network;
use crate::kernel::{KernelError, MacAddress};

pub(super) const NEW: u16 = 28;
pub(super) const DELETE: u16 = 29;
const GET: u16 = 30;

const BRIDGE: u8 = 7;
const PERMANENT: u16 = 0x80;
const NO_ARP: u16 = 0x40;
const ON_LINK_ITSELF: u8 = 2;
const PROXY: u8 = 8;

const DESTINATION: u16 = 1;
const LINK_ADDRESS: u16 = 2;
const LINK: u16 = 8;
const MADE_BY: u16 = 12;

impl Routing {
    /// All of them, as far as they are ours.
    pub(super) fn dump_neighbours(&mut self, network: &mut Network, has_tunnel: bool) -> Result<(), KernelError> {
        if has_tunnel {
            let table = header(BRIDGE, TUNNEL_INDEX, 0, 0);
            let peers =
                self.socket.dump("peers", &Message::new(GET, 0, &table), |received| read_peer(received.body))?;
            network.peers.extend(peers.into_iter().flatten());
        }
        for family in [IPV4, IPV6] {
            if has_tunnel {
                let of_tunnel =
                    Message::new(GET, 0, &header(family, 0, 0, 0)).attribute(LINK, &TUNNEL_INDEX.to_ne_bytes());
                let found = self.socket.dump("neighbours", &of_tunnel, |received| read_neighbour(received.body))?;
                network.neighbours.extend(found.into_iter().flatten());
            }
            let proxies = Message::new(GET, 0, &header(family, 0, 0, PROXY));
            let found = self.socket.dump("proxied addresses", &proxies, |received| read_proxy(received.body))?;
            network.proxies.extend(found.into_iter().flatten());
        }
        Ok(())
    }

    pub(super) fn add_neighbour(&mut self, address: IpAddr, mac: MacAddress) -> Result<(), KernelError> {
        let message = Message::new(NEW, CREATE | REPLACE, &header(family(address), TUNNEL_INDEX, PERMANENT, 0))
            .attribute(DESTINATION, &octets(address))
            .attribute(LINK_ADDRESS, &mac.0);
        self.socket.change(&format!("neighbour {address}"), message)
    }

    pub(super) fn remove_neighbour(&mut self, address: IpAddr) -> Result<(), KernelError> {
        let message = Message::new(DELETE, 0, &header(family(address), TUNNEL_INDEX, 0, 0));
        self.socket
            .remove(&format!("the removal of neighbour {address}"), message.attribute(DESTINATION, &octets(address)))
    }

    pub(super) fn add_peer(&mut self, mac: MacAddress, address: IpAddr) -> Result<(), KernelError> {
        let state = PERMANENT | NO_ARP;
        let message = Message::new(NEW, CREATE | REPLACE, &header(BRIDGE, TUNNEL_INDEX, state, ON_LINK_ITSELF))
            .attribute(LINK_ADDRESS, &mac.0)
            .attribute(DESTINATION, &octets(address));
        self.socket.change(&format!("peer {mac}"), message)
    }

    pub(super) fn remove_peer(&mut self, mac: MacAddress) -> Result<(), KernelError> {
        let message = Message::new(DELETE, 0, &header(BRIDGE, TUNNEL_INDEX, 0, ON_LINK_ITSELF));
        self.socket.remove(&format!("the removal of peer {mac}"), message.attribute(LINK_ADDRESS, &mac.0))
    }

    pub(super) fn add_proxy(&mut self, link: u32, address: IpAddr) -> Result<(), KernelError> {
        let message = Message::new(NEW, CREATE | REPLACE, &header(family(address), link, PERMANENT, PROXY))
            .attribute(DESTINATION, &octets(address))
            .attribute(MADE_BY, &[PROTOCOL]);
        self.socket.change(&format!("proxied address {address}"), message)
    }

    pub(super) fn remove_proxy(&mut self, link: u32, address: IpAddr) -> Result<(), KernelError> {
        let message = Message::new(DELETE, 0, &header(family(address), link, 0, PROXY));
        let what = format!("the removal of proxied address {address}");
        self.socket.remove(&what, message.attribute(DESTINATION, &octets(address)))
    }
}

fn header(family: u8, link: u32, state: u16, flags: u8) -> Vec<u8> {
    let mut bytes = vec![family, 0, 0, 0];
    bytes.extend(link.to_ne_bytes());
    bytes.extend(state.to_ne_bytes());
    bytes.extend([flags, 0]);
    bytes
}

#[expect(clippy::option_option, reason = "the outer says whether it could be read, the inner whether it is ours")]
fn read_peer(body: &[u8]) -> Option<Option<(MacAddress, IpAddr)>> {
    let (header, attributes) = body.split_at_checked(12)?;
    if u32_at(header, 4)? != TUNNEL_INDEX {
        return Some(None);
    }
    // Entries that others made may lead to no address.
    let mac = find(attributes, LINK_ADDRESS).and_then(read_mac);
    Some(mac.zip(find(attributes, DESTINATION).and_then(read_ip)))
}

/// Neighbours that the kernel found itself are not ours.
#[expect(clippy::option_option, reason = "the outer says whether it could be read, the inner whether it is ours")]
fn read_neighbour(body: &[u8]) -> Option<Option<(IpAddr, MacAddress)>> {
    let (header, attributes) = body.split_at_checked(12)?;
    let state = u16::from_ne_bytes(header[8..10].try_into().ok()?);
    if state & PERMANENT == 0 || u32_at(header, 4)? != TUNNEL_INDEX {
        return Some(None);
    }
    let address = find(attributes, DESTINATION).and_then(read_ip)?;
    Some(Some((address, find(attributes, LINK_ADDRESS).and_then(read_mac)?)))
}

#[expect(clippy::option_option, reason = "the outer says whether it could be read, the inner whether it is ours")]
fn read_proxy(body: &[u8]) -> Option<Option<IpAddr>> {
    let (_, attributes) = body.split_at_checked(12)?;
    if find(attributes, MADE_BY) != Some(&[PROTOCOL]) {
        return Some(None);
    }
    Some(Some(find(attributes, DESTINATION).and_then(read_ip)?))
}
