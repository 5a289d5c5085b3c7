//! The fixed ruleset: what happens to a packet, in the order in which it meets the chains.
//!
//! Nothing here depends on how many addresses, pods or policies there are: those are elements of the maps
//! ([`super::elements`]). It depends on the node's number and on the name of the uplink only.
//!
//! ```text
//! pod -> pre: which slot, which node -> [tunnel: slot and node become MAC addresses] -> pre of the owner: the slot
//!     becomes the flow's mark -> forwarding: is it ours -> nat: the slot's address -> post: really? -> uplink
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use super::mark::{MAC_PREFIX, Mark, NODE, NodeNumber, ROLE, Role, SLOT, TUNNEL, scope};
use super::nft::{Bytes, Chain, ChainKind, Family, Header, Hook, HookPoint, IpVersion, Rule};
use super::rule::{FlowState, rule};

/// The tables' name in every family.
pub const TABLE: &str = "portolan";
/// The link to the other nodes.
pub const TUNNEL_LINK: &str = "egress.vxlan";
/// Its index, which the ruleset has as a constant; indexes that the kernel gives itself stay far below.
pub const TUNNEL_INDEX: u32 = 0x2626_2626;
/// The port of its UDP packets.
pub const TUNNEL_PORT: u16 = 7789;
/// Where packets go that have the tunnel's mark: any address there, as their MAC addresses are written from the mark.
pub const NEXT_HOP4: Ipv4Addr = Ipv4Addr::new(169, 254, 99, 27);
/// As [`NEXT_HOP4`].
pub const NEXT_HOP6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x27);

/// Laps of the lease: renewal k arms and is granted lap k mod 4.
const LAPS: u32 = 4;
/// Others translate at 90 and 95; masquerading is at 100.
const NAT_PRIORITY: i32 = 50;
/// A packet at its source node that goes through the tunnel.
const THROUGH_TUNNEL: u32 = Role::Source.bits() | TUNNEL;
const IS_THROUGH_TUNNEL: u32 = ROLE | TUNNEL;
const SOURCE: u32 = Role::Source.bits();
const GATEWAY: u32 = Role::Gateway.bits();
const ICMPV6: u8 = 58;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// What differs from node to node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// The number of this node.
    pub node: NodeNumber,
    /// The link on which egress addresses are announced.
    pub uplink: String,
}

/// Names of the maps for one version of IP.
struct Maps {
    ip: IpVersion,
    src: &'static str,
    dst: &'static str,
    net: &'static str,
    addr: &'static str,
    eip: &'static str,
    held: &'static str,
}

const VERSIONS: [Maps; 2] = [
    Maps { ip: IpVersion::V4, src: "src4", dst: "dst4", net: "net4", addr: "addr4", eip: "eip4", held: "held4" },
    Maps { ip: IpVersion::V6, src: "src6", dst: "dst6", net: "net6", addr: "addr6", eip: "eip6", held: "held6" },
];

/// All chains with their rules.
pub fn chains(parameters: &Parameters) -> Vec<Chain> {
    vec![
        // Those that others jump to come first.
        part(Family::Inet, "way", way()),
        part(Family::Inet, "gate", gate()),
        part(Family::Netdev, "gate", gate()),
        base(Family::Inet, "raw_pre", HookPoint::Prerouting, -300, untracked_tunnel()),
        base(Family::Inet, "raw_out", HookPoint::Output, -300, untracked_tunnel()),
        // After destination NAT, so that the real destination counts, and after the CNI's mangle.
        base(Family::Inet, "pre", HookPoint::Prerouting, -90, pre()),
        base(Family::Ip, "relay", HookPoint::Prerouting, -89, relay(&NEXT_HOP4.octets())),
        base(Family::Ip6, "relay", HookPoint::Prerouting, -89, relay(&NEXT_HOP6.octets())),
        base(Family::Inet, "forwarding", HookPoint::Forward, -10, forwarding()),
        // The first binding wins.
        nat_chain(),
        base(Family::Inet, "post", HookPoint::Postrouting, 110, post()),
        base(Family::Inet, "local_in", HookPoint::Input, 0, local_in()),
        base(Family::Inet, "local_out", HookPoint::Output, 0, local_out()),
        of_link("tunnel", TUNNEL_LINK, tunnel(parameters.node)),
        of_link("uplink", &parameters.uplink, uplink()),
    ]
}

/// Without it every inner flow leaves an outer one in conntrack that is never answered.
fn untracked_tunnel() -> Vec<Rule> {
    vec![rule("outer packets of the tunnel are no flows").udp_to(TUNNEL_PORT).notrack()]
}

/// Which slot and which node: the decision.
fn pre() -> Vec<Rule> {
    let mut rules =
        vec![rule("without conntrack nothing translates it").in_by(TUNNEL_LINK).state(FlowState::INVALID).drop()];
    rules.extend(VERSIONS.map(|Maps { ip, src, .. }| {
        rule("malformed, from a pod with a policy")
            .state(FlowState::INVALID)
            .version(ip)
            .source_in(ip, src)
            .value_is_not(ROLE, Role::Unselected.bits())
            .drop()
    }));
    rules.extend([
        rule("the sender's MAC says slot and source node")
            .in_by(TUNNEL_LINK)
            .original()
            .bytes(Header::Link, 6, &MAC_PREFIX)
            .mark_flow_from_sender(GATEWAY)
            .accept(),
        rule("a frame of nobody we know").in_by(TUNNEL_LINK).original().drop(),
        rule("a reply goes back to its source node").reply().flow_mark_is(ROLE, GATEWAY).mark_as_flow(SOURCE).accept(),
        rule("any other reply").reply().accept(),
        rule("a reply at its source node").in_by(TUNNEL_LINK).accept(),
    ]);
    rules.extend(VERSIONS.map(|Maps { ip, addr, .. }| {
        rule("an address taken over: the previous owner may have the flow")
            .state(FlowState::NEW)
            .version(ip)
            .destination_in(ip, addr)
            .value_is(ROLE, SOURCE)
            .mark_with_value()
            .accept()
    }));
    rules.push(rule("the note: what the pod is").clear_note());
    rules.extend(
        VERSIONS
            .map(|Maps { ip, src, .. }| rule("the pod's slot or class").version(ip).source_in(ip, src).note_value()),
    );
    rules.extend(VERSIONS.map(|Maps { ip, dst, .. }| {
        rule("a class decides by destination")
            .note_is(ROLE, Role::Class.bits())
            .version(ip)
            .note_and_destination_in(ip, dst)
            .note_value()
            .jump("way")
    }));
    for Maps { ip, addr, net, .. } in VERSIONS {
        for map in [addr, net] {
            rules.push(
                rule("inside the cluster")
                    .version(ip)
                    .destination_in(ip, map)
                    .value_is(ROLE | scope::INSIDE.0, scope::INSIDE.0)
                    .clear_note()
                    .accept(),
            );
        }
    }
    rules.extend([
        to_owner(),
        rule("no node owns the slot").note_is(ROLE, SOURCE).drop(),
        rule("a running flow whose policy is gone").original().flow_mark_is(ROLE, SOURCE).drop(),
        rule("a pod that no policy selects here").note_is_not_empty().clear_note().accept(),
    ]);
    rules.extend(VERSIONS.map(|Maps { ip, net, .. }| {
        rule("a pod of this node that is not known yet")
            .version(ip)
            .source_in(ip, net)
            .value_is(ROLE | scope::LOCAL_POD.0, scope::LOCAL_POD.0)
            .drop()
    }));
    rules
}

/// For a slot or class that a destination has chosen: its owner, or nothing.
fn way() -> Vec<Rule> {
    vec![to_owner(), rule("no node owns the slot").drop()]
}

fn to_owner() -> Rule {
    rule("to the slot's owner").note_in("own").mark_flow_with_value().clear_note().accept()
}

/// The new owner of an address sends packets of flows that it does not know to the previous one. The copy is not tracked.
fn relay(next_hop: &[u8]) -> Vec<Rule> {
    vec![
        rule("to the previous owner")
            .not_in_by(TUNNEL_LINK)
            .state(FlowState::NEW)
            .mark_is(IS_THROUGH_TUNNEL | SLOT, THROUGH_TUNNEL)
            .count()
            .copy_to(next_hop, TUNNEL_INDEX)
            .drop(),
    ]
}

fn forwarding() -> Vec<Rule> {
    let mut rules = vec![
        rule("nobody asked for it: no RST, no ICMP")
            .out_by(TUNNEL_LINK)
            .flow_mark_is_none_of(ROLE, &[SOURCE, GATEWAY])
            .drop(),
        rule("without conntrack nothing translates it")
            .out_by(TUNNEL_LINK)
            .state(FlowState::INVALID_OR_UNTRACKED)
            .drop(),
    ];
    for Maps { ip, src, addr, eip, .. } in VERSIONS {
        rules.extend([
            rule("untracked, from a pod with a policy")
                .state(FlowState::INVALID_OR_UNTRACKED)
                .version(ip)
                .source_in(ip, src)
                .value_is_not(ROLE, Role::Unselected.bits())
                .drop(),
            rule("a slot that is not here").version(ip).in_by(TUNNEL_LINK).original().flow_slot_not_in(eip).drop(),
            rule("a pod must not speak as a node")
                .version(ip)
                .udp_to(TUNNEL_PORT)
                .destination_in(ip, addr)
                .value_is(ROLE | scope::NODE.0, scope::NODE.0)
                .drop(),
        ]);
    }
    rules.push(rule("what fits the tunnel").out_by(TUNNEL_LINK).syn().clamp_mss());
    rules
}

fn nat() -> Vec<Rule> {
    let keep = |Maps { ip, .. }: Maps| {
        rule("no other NAT before the tunnel").out_by(TUNNEL_LINK).version(ip).snat_to_itself(ip)
    };
    let mut rules = Vec::from(VERSIONS.map(keep));
    for Maps { ip, eip, .. } in VERSIONS {
        for role in [SOURCE, GATEWAY] {
            rules.push(rule("the slot's address").version(ip).flow_mark_is(ROLE, role).snat_to_slot(ip, eip));
        }
    }
    rules.extend([SOURCE, GATEWAY].map(|role| rule("a slot without address").flow_mark_is(ROLE, role).drop()));
    rules
}

/// What was decided is what happens, whatever others did to marks and routes.
fn post() -> Vec<Rule> {
    let mut rules = vec![
        rule("the mark again, as others may have changed it").out_by(TUNNEL_LINK).mark_as_flow(SOURCE).count(),
        rule("must not leave but through the tunnel")
            .original()
            .flow_mark_is(IS_THROUGH_TUNNEL, THROUGH_TUNNEL)
            .not_out_by(TUNNEL_LINK)
            .drop(),
    ];
    for (mask, mark) in LEAVES_HERE {
        rules.extend(VERSIONS.map(|Maps { ip, held, .. }| {
            rule("an address that the slot does not have")
                .version(ip)
                .original()
                .flow_mark_is(mask, mark)
                .not_out_by(TUNNEL_LINK)
                .flow_slot_and_source_not_in(ip, held)
                .drop()
        }));
        rules.push(
            rule("only while the lease holds")
                .original()
                .flow_mark_is(mask, mark)
                .flow_slot_is_egress_address()
                .jump("gate"),
        );
    }
    rules
}

/// Marks of flows that leave the cluster on this node.
const LEAVES_HERE: [(u32, u32); 2] = [(ROLE, GATEWAY), (IS_THROUGH_TUNNEL, SOURCE)];

/// Goes on while some lap of the lease is both armed, which ends by itself, and granted, which a majority did.
fn gate() -> Vec<Rule> {
    let holds = |lap| rule("this lap holds").contains("armed", Mark(lap)).contains("granted", Mark(lap)).end_chain();
    let mut rules: Vec<Rule> = (0..LAPS).map(holds).collect();
    rules.push(rule("the lease has ended").drop());
    rules
}

fn local_in() -> Vec<Rule> {
    let known = |Maps { ip, addr, .. }: Maps| {
        rule("a node")
            .udp_to(TUNNEL_PORT)
            .version(ip)
            .source_in(ip, addr)
            .value_is(ROLE | scope::NODE.0, scope::NODE.0)
            .accept()
    };
    let mut rules = Vec::from(VERSIONS.map(known));
    rules.push(rule("nobody else speaks to the tunnel").udp_to(TUNNEL_PORT).drop());
    rules
}

fn local_out() -> Vec<Rule> {
    const REDIRECT: u8 = 137;
    let redirected = Bytes { header: Header::Transport, offset: 24, length: 16 };
    vec![
        rule("senders stay with us while flows are relayed")
            .transport(ICMPV6)
            .bytes(Header::Transport, 0, &[REDIRECT])
            .bytes_in(redirected, "addr6")
            .drop(),
    ]
}

/// Slot and node as MAC addresses: receiver and sender say what the mark says, and the mark ends here, as the outer packet
/// would inherit it.
fn tunnel(node: NodeNumber) -> Vec<Rule> {
    const DESTINATION: u32 = 0;
    const SENDER: u32 = 6;
    let own = TUNNEL | u32::from(node.get());
    vec![
        rule("slot and node as MAC addresses")
            .mark_is(IS_THROUGH_TUNNEL, THROUGH_TUNNEL)
            .write_mac(DESTINATION, ROLE | TUNNEL | NODE, 0)
            .write_mac(SENDER, ROLE | SLOT, own)
            .clear_mark()
            .count(),
    ]
}

/// No frame says that an egress address is here unless the lease holds: answers of the kernel and announcements alike.
fn uplink() -> Vec<Rule> {
    const ADVERTISEMENT: u8 = 136;
    let sender = Bytes { header: Header::Network, offset: 14, length: 4 };
    let target = Bytes { header: Header::Network, offset: 48, length: 16 };
    vec![
        rule("ARP from an egress address").ethertype(ARP).bytes_in(sender, "held4").jump("gate"),
        rule("advertisement of an egress address")
            .ethertype(IPV6)
            .bytes(Header::Network, 6, &[ICMPV6])
            .bytes(Header::Network, 40, &[ADVERTISEMENT])
            .bytes_in(target, "held6")
            .jump("gate"),
    ]
}

fn part(family: Family, name: &'static str, rules: Vec<Rule>) -> Chain {
    Chain { family, name, hook: None, rules }
}

fn base(family: Family, name: &'static str, point: HookPoint, priority: i32, rules: Vec<Rule>) -> Chain {
    let hook = Hook { point, priority, kind: ChainKind::Filter, link: None };
    Chain { family, name, hook: Some(hook), rules }
}

fn nat_chain() -> Chain {
    let hook = Hook { point: HookPoint::Postrouting, priority: NAT_PRIORITY, kind: ChainKind::Nat, link: None };
    Chain { family: Family::Inet, name: "nat", hook: Some(hook), rules: nat() }
}

fn of_link(name: &'static str, link: &str, rules: Vec<Rule>) -> Chain {
    let hook = Hook { point: HookPoint::Egress, priority: 0, kind: ChainKind::Filter, link: Some(link.to_owned()) };
    Chain { family: Family::Netdev, name, hook: Some(hook), rules }
}
