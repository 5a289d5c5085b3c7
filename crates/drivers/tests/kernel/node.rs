//! What an agent would want in the kernel of a node of the lab.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use portolan_drivers::kernel::{
    Kernel, KernelState, MacAddress, Mark, NetlinkKernel, NodeNumber, Range, Route, RouteKey, RoutingRule, Ruleset,
    SLOT, Setting, Slot, Tunnel, diff,
    ruleset::{NEXT_HOP4, NEXT_HOP6, Parameters},
    scope,
};
use portolan_testkit::egress_lab::{LabNode, UPLINK, egress_addresses};

/// The table that marked packets are routed by.
const TABLE: u32 = 9927;
const MAIN: u32 = 254;
const METRIC: u32 = 1024;

/// A node with nothing but its tunnel and what it knows of the cluster.
pub(crate) fn node_state(number: u8) -> KernelState {
    let node = node_number(number);
    let mut state = KernelState {
        tunnel: Some(Tunnel {
            mac: node.mac(),
            parent: UPLINK.into(),
            local: egress_addresses(10 + number).0.into(),
            mtu: 1450,
            is_up: true,
        }),
        settings: [
            (Setting::TunnelReversePathFilter, 2),
            (Setting::ProxyNdp, 1),
            (Setting::ProxyDelay4, 0),
            (Setting::ProxyDelay6, 0),
        ]
        .into(),
        ruleset: Ruleset::Loaded(Parameters { node, uplink: UPLINK.into() }),
        ..KernelState::default()
    };
    let network = &mut state.network;
    let (own4, own6) = tunnel_addresses(number);
    network.addresses = [IpNet::new(own4, 16).unwrap(), IpNet::new(own6, 112).unwrap()].into();
    for peer in (1..=4).filter(|peer| *peer != number) {
        let (peer4, peer6) = tunnel_addresses(peer);
        let mac = node_number(peer).mac();
        network.peers.insert(mac, egress_addresses(10 + peer).0.into());
        network.neighbours.extend([(peer4, mac), (peer6, mac)]);
    }
    let any_mac = MacAddress([0x66, 0x26, 0, 0, 0, 0]);
    network.neighbours.extend([(NEXT_HOP4.into(), any_mac), (NEXT_HOP6.into(), any_mac)]);
    for is_ipv6 in [false, true] {
        let rule = RoutingRule { is_ipv6, priority: 27, mark: 0x2000_2000, mask: 0xf000_2000, table: TABLE };
        network.rules.insert(rule);
    }
    network.routes.insert(key(MAIN, "169.254.99.27/32", METRIC), Route::Tunnel);
    for (anywhere, next_hop) in [("0.0.0.0/0", IpAddr::from(NEXT_HOP4)), ("::/0", NEXT_HOP6.into())] {
        network.routes.insert(key(TABLE, anywhere, METRIC), Route::Via(next_hop));
        network.routes.insert(key(TABLE, anywhere, 4_000_000_000), Route::Blackhole);
    }
    let elements = &mut state.elements;
    for other in 1..=4 {
        let bits = if other == number { scope::all(&[scope::INSIDE, scope::LOCAL_POD]) } else { scope::INSIDE };
        let (first, last) = (Ipv4Addr::new(10, 244, other, 0), Ipv4Addr::new(10, 244, other, 255));
        elements.net4.insert(Range { first, last }, bits);
        let v6 = |tail: u16| Ipv6Addr::new(0xfd44, other.into(), 0, 0, tail, tail, tail, tail);
        elements.net6.insert(Range { first: v6(0), last: v6(0xffff) }, bits);
        let (node4, node6) = egress_addresses(10 + other);
        let bits = scope::all(&[scope::INSIDE, scope::NODE]);
        elements.addr4.insert(node4, bits);
        elements.addr6.insert(node6, bits);
    }
    state
}

/// Has a node translate to the addresses of a slot that end in this number, answer for them, and hold the lease.
pub(crate) fn own(state: &mut KernelState, slot: Slot, last: u8) {
    let (eip4, eip6) = egress_addresses(last);
    state.elements.translate4(slot, eip4);
    state.elements.translate6(slot, eip6);
    if slot != Slot::NODE_ADDRESS {
        for address in [IpAddr::from(eip4), eip6.into()] {
            state.network.proxies.insert(address);
            let key = RouteKey { table: MAIN, destination: address.into(), metric: METRIC };
            state.network.routes.insert(key, Route::Tunnel);
        }
        state.elements.grant(0);
    }
}

/// Takes that back.
pub(crate) fn disown(state: &mut KernelState, slot: Slot, last: u8) {
    let (eip4, eip6) = egress_addresses(last);
    let elements = &mut state.elements;
    elements.eip4.remove(&slot.mark());
    elements.eip6.remove(&slot.mark());
    elements.held4.remove(&(slot.mark(), eip4));
    elements.held6.remove(&(slot.mark(), eip6));
    elements.link_held4.remove(&eip4);
    elements.link_held6.remove(&eip6);
    for address in [IpAddr::from(eip4), eip6.into()] {
        state.network.proxies.remove(&address);
        state.network.routes.retain(|key, _| key.destination.addr() != address);
    }
}

/// Has the pods of a node that end in this number leave by a mark.
pub(crate) fn select(state: &mut KernelState, node: &LabNode, last: u8, mark: Mark) {
    for address in node.pod(last) {
        match address {
            IpAddr::V4(address) => drop(state.elements.src4.insert(address, mark)),
            IpAddr::V6(address) => drop(state.elements.src6.insert(address, mark)),
        }
    }
}

/// Says to a node which node owns a slot.
pub(crate) fn route_slot(state: &mut KernelState, number: u8, slot: Slot, owner: u8) {
    state.elements.own.insert(Mark::slot(slot), way(number, slot, owner));
}

/// The way of a slot, seen from a node.
pub(crate) fn way(number: u8, slot: Slot, owner: u8) -> Mark {
    if number == owner { Mark::owned_here(slot) } else { Mark::owned_by(slot, node_number(owner)) }
}

/// Makes the kernel of a node be in a state, and gives the driver back.
pub(crate) fn converge(node: &LabNode, desired: &KernelState) -> NetlinkKernel {
    node.network.enter(|| {
        let mut kernel = NetlinkKernel::open(UPLINK).expect("a node has an uplink");
        let delta = diff(&kernel.dump().expect("the kernel can be read"), desired);
        kernel.apply(&delta).expect("the kernel takes a state");
        kernel
    })
}

/// Ends the flows of a slot, as whoever takes it back does.
pub(crate) fn forget_slot(node: &LabNode, slot: Slot) {
    node.network.enter(|| {
        NetlinkKernel::open(UPLINK)
            .expect("a node has an uplink")
            .forget_flows(slot.mark(), SLOT)
            .expect("flows can be ended");
    });
}

pub(crate) fn slot(number: u16) -> Slot {
    Slot::new(number).expect("a small number")
}

pub(crate) fn node_number(number: u8) -> NodeNumber {
    NodeNumber::new(number.into()).expect("a small number")
}

fn tunnel_addresses(number: u8) -> (IpAddr, IpAddr) {
    let v6 = Ipv6Addr::new(0xfd11, 0, 0, 0, 0, 0, 0, number.into());
    (Ipv4Addr::new(198, 18, 0, number).into(), v6.into())
}

fn key(table: u32, destination: &str, metric: u32) -> RouteKey {
    RouteKey { table, destination: destination.parse().expect("a range"), metric }
}
