//! The kernel of a network namespace, over netlink.
//!
//! ```text
//! wire: bytes <- socket: requests and batches <- route, neighbour: links to neighbours
//!                                             <- expression <- nftables: the ruleset and its elements
//! ```

mod announce;
mod changes;
mod expression;
mod neighbour;
mod nftables;
mod route;
mod socket;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use self::announce::Announcer;
use self::changes::Changes;
use self::nftables::Nftables;
use self::route::Routing;
use self::socket::{NETFILTER, Socket};
use self::wire::Message;
use super::ruleset::TUNNEL_LINK;
use super::state::{Delta, KernelState, Network, Route, Setting, TunnelChange};
use super::{Kernel, KernelError, Link, Mark};

/// The kernel, as the network namespace sees it in which this was opened. Settings are read and written by the calling
/// thread, which has to be in the same namespace.
pub struct NetlinkKernel {
    uplink: String,
    routing: Routing,
    nftables: Nftables,
    conntrack: Socket,
    announcer: Announcer,
    changes: Changes,
}

impl NetlinkKernel {
    /// Opens sockets in the network namespace of this thread. The uplink is where egress addresses are announced.
    pub fn open(uplink: &str) -> Result<Self, KernelError> {
        let (routing, nftables) = (Routing::open()?, Nftables::open()?);
        let changes = Changes::open([routing.socket.port()?, nftables.port()?])?;
        let conntrack = Socket::open(NETFILTER, 0)?;
        Ok(Self { uplink: uplink.to_owned(), routing, nftables, conntrack, announcer: Announcer::open()?, changes })
    }

    fn change_tunnel(&mut self, change: &TunnelChange) -> Result<(), KernelError> {
        match change {
            TunnelChange::Create(tunnel) => self.routing.create_tunnel(tunnel),
            TunnelChange::Recreate(tunnel) => {
                self.routing.delete_tunnel()?;
                self.routing.create_tunnel(tunnel)
            }
            TunnelChange::Update(tunnel) => self.routing.update_tunnel(tunnel),
            TunnelChange::Delete => self.routing.delete_tunnel(),
        }
    }

    fn write_settings(&self, settings: &BTreeMap<Setting, u32>) -> Result<(), KernelError> {
        settings.iter().try_for_each(|(setting, value)| {
            let path = self.path(*setting);
            fs::write(&path, value.to_string()).map_err(|error| KernelError::Setting {
                path,
                value: *value,
                cause: error.to_string(),
            })
        })
    }

    fn remove_proxies(&mut self, proxies: &BTreeSet<IpAddr>) -> Result<(), KernelError> {
        if proxies.is_empty() {
            return Ok(());
        }
        let uplink = self.routing.index(&self.uplink)?;
        proxies.iter().try_for_each(|address| self.routing.remove_proxy(uplink, *address))
    }

    fn remove(&mut self, network: &Network) -> Result<(), KernelError> {
        let Network { addresses, rules, routes, neighbours, peers, proxies: _ } = network;
        rules.iter().try_for_each(|rule| self.routing.remove_rule(rule))?;
        // Next hops are on the tunnel by routes of their own, which go last.
        let is_direct = |(_, route): &(_, &Route)| matches!(route, Route::Tunnel);
        let (direct, others): (Vec<_>, Vec<_>) = routes.iter().partition(is_direct);
        others.into_iter().chain(direct).try_for_each(|(key, route)| self.routing.remove_route(key, *route))?;
        neighbours.keys().try_for_each(|address| self.routing.remove_neighbour(*address))?;
        peers.keys().try_for_each(|mac| self.routing.remove_peer(*mac))?;
        addresses.iter().try_for_each(|address| self.routing.remove_address(address))
    }

    fn add(&mut self, network: &Network) -> Result<(), KernelError> {
        let Network { addresses, rules, routes, neighbours, peers, proxies } = network;
        addresses.iter().try_for_each(|address| self.routing.add_address(address))?;
        peers.iter().try_for_each(|(mac, address)| self.routing.add_peer(*mac, *address))?;
        neighbours.iter().try_for_each(|(address, mac)| self.routing.add_neighbour(*address, *mac))?;
        let is_direct = |(_, route): &(_, &Route)| matches!(route, Route::Tunnel);
        let (direct, others): (Vec<_>, Vec<_>) = routes.iter().partition(is_direct);
        direct.into_iter().chain(others).try_for_each(|(key, route)| self.routing.add_route(key, *route))?;
        rules.iter().try_for_each(|rule| self.routing.add_rule(rule))?;
        if !proxies.is_empty() {
            let uplink = self.routing.index(&self.uplink)?;
            proxies.iter().try_for_each(|address| self.routing.add_proxy(uplink, *address))?;
        }
        Ok(())
    }

    fn path(&self, setting: Setting) -> String {
        let uplink = &self.uplink;
        match setting {
            Setting::TunnelReversePathFilter => format!("/proc/sys/net/ipv4/conf/{TUNNEL_LINK}/rp_filter"),
            Setting::ProxyNdp => "/proc/sys/net/ipv6/conf/all/proxy_ndp".into(),
            Setting::ProxyDelay4 => format!("/proc/sys/net/ipv4/neigh/{uplink}/proxy_delay"),
            Setting::ProxyDelay6 => format!("/proc/sys/net/ipv6/neigh/{uplink}/proxy_delay"),
        }
    }
}

impl Kernel for NetlinkKernel {
    fn dump(&mut self) -> Result<KernelState, KernelError> {
        let (_, tunnel) = self.routing.links()?;
        let mut network = Network::default();
        self.routing.dump(&mut network, tunnel.is_some())?;
        self.routing.dump_neighbours(&mut network, tunnel.is_some())?;
        let (ruleset, elements) = self.nftables.dump()?;
        // A link that is not there has no settings.
        let read = |setting: Setting| {
            let value = fs::read_to_string(self.path(setting)).ok()?.trim().parse().ok()?;
            Some((setting, value))
        };
        Ok(KernelState {
            tunnel,
            settings: Setting::ALL.into_iter().filter_map(read).collect(),
            ruleset,
            elements,
            network,
        })
    }

    fn apply(&mut self, delta: &Delta) -> Result<(), KernelError> {
        // While the kernel answers for an address, its packets must still be translated.
        self.remove_proxies(&delta.remove.proxies)?;
        let tunnel = delta.tunnel.as_ref().map_or(Ok(()), |change| self.change_tunnel(change));
        let settings = self.write_settings(&delta.settings);
        // Whatever failed: without rules, pods with a policy would leave with their node's address.
        self.nftables.apply(delta, tunnel.is_ok())?;
        tunnel.and(settings)?;
        self.remove(&delta.remove)?;
        self.add(&delta.add)
    }

    fn announce(&mut self, addresses: &BTreeSet<IpAddr>) -> Result<(), KernelError> {
        let (links, _) = self.routing.links()?;
        let no_link = || KernelError::NoLink { name: self.uplink.clone() };
        let uplink = links.get(&self.uplink).ok_or_else(no_link)?;
        let mac = uplink.mac.ok_or_else(no_link)?;
        // One that cannot be sent must not hold back the others.
        let sent = addresses.iter().map(|address| self.announcer.announce(uplink.index, mac, *address));
        sent.fold(Ok(()), Result::and)
    }

    fn links(&mut self) -> Result<BTreeMap<String, Link>, KernelError> {
        Ok(self.routing.links()?.0)
    }

    fn wait_for_change(&mut self, at_most: Duration) -> Result<bool, KernelError> {
        self.changes.wait(at_most)
    }

    fn forget_flows(&mut self, mark: Mark, mask: u32) -> Result<(), KernelError> {
        const DELETE: u16 = 1 << 8 | 2;
        const MARK: u16 = 8;
        const MASK: u16 = 21;
        let of_any_family = [0; 4];
        let message = Message::new(DELETE, 0, &of_any_family)
            .attribute(MARK, &mark.0.to_be_bytes())
            .attribute(MASK, &mask.to_be_bytes());
        self.conntrack.change("the end of flows", message)
    }
}
