//! The static path: packets of pods leave with their policy's address, or not at all.
//!
//! Slot 2 is owned by `b`; `a` is a source, `d` a gateway that owns nothing. Every test has a sniffer outside that counts
//! a packet with any other source as a leak.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use portolan_drivers::kernel::{Kernel as _, KernelState, Mark, NetlinkKernel, Range, Slot};
use portolan_testkit::egress_lab::{
    EgressLab, LabNode, Malformed, Seen, TcpFlow, Transport, UPLINK, UdpFlow, ask, egress_addresses,
};

use crate::node::{converge, disown, forget_slot, node_state, own, route_slot, select, slot};

/// Pods that end in this number have the policy.
const SELECTED: u8 = 2;
/// Pods that end in this number have none.
const UNSELECTED: u8 = 3;
/// The addresses of slot 2 end in it.
const EIP: u8 = 100;
const OWNER: u8 = 2;
/// New flows for each case.
const FLOWS: usize = 25;
/// Longer than any answer takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a flow that must not get through is given: most of what is dropped is dropped at once.
const SILENCE: Duration = Duration::from_millis(150);

/// The lab with what agents want on its nodes.
struct Egress {
    lab: EgressLab,
    states: Vec<KernelState>,
}

impl Egress {
    fn new() -> anyhow::Result<Self> {
        let lab = EgressLab::new()?;
        let mut states: Vec<_> = lab.nodes.iter().map(|node| node_state(node.number)).collect();
        for (node, state) in lab.nodes.iter().zip(&mut states) {
            route_slot(state, node.number, slot(2), OWNER);
            if node.pods.is_some() {
                select(state, node, SELECTED, Mark::slot(slot(2)));
                select(state, node, UNSELECTED, Mark::UNSELECTED);
            }
        }
        own(&mut states[1], slot(2), EIP);
        let egress = Self { lab, states };
        egress.lab.nodes.iter().zip(&egress.states).for_each(|(node, state)| drop(converge(node, state)));
        Ok(egress)
    }

    /// Changes what is wanted on a node, and its kernel.
    fn change(&mut self, name: &str, change: impl FnOnce(&LabNode, &mut KernelState)) {
        let node = self.lab.nodes.iter().position(|node| node.network.name() == name).unwrap();
        change(&self.lab.nodes[node], &mut self.states[node]);
        drop(converge(&self.lab.nodes[node], &self.states[node]));
    }

    /// Opens a flow from the pod of a node with this number.
    fn ask(
        &self,
        name: &str,
        pod: u8,
        transport: Transport,
        is_v6: bool,
        at_most: Duration,
    ) -> anyhow::Result<Option<IpAddr>> {
        let node = self.lab.node(name);
        let from = node.pod(pod)[usize::from(is_v6)];
        ask(node.pods(), transport, from, self.lab.outside.server(from), at_most)
    }

    /// Waits until what was sent before has gone its way: a packet behind it was answered.
    fn settle(&self, name: &str) -> anyhow::Result<()> {
        for is_v6 in [false, true] {
            let seen = self.ask(name, UNSELECTED, Transport::Udp, is_v6, LIMIT)?;
            anyhow::ensure!(seen.is_some(), "a pod without policy reaches the outside");
        }
        Ok(())
    }
}

fn eip(is_v6: bool) -> IpAddr {
    let (v4, v6) = egress_addresses(EIP);
    if is_v6 { v6.into() } else { v4.into() }
}

fn eips() -> [IpAddr; 2] {
    [eip(false), eip(true)]
}

const TRANSPORTS: [Transport; 2] = [Transport::Udp, Transport::Tcp];
const WAYS: [(&str, &str); 3] = [("a", "on another node"), ("b", "on the owner"), ("d", "on an idle gateway")];

fn assert_no_leak(seen: &Seen) {
    assert!(seen.leaks.is_empty(), "packets with another source: {:?}", seen.leaks);
}

#[test]
fn every_flow_of_a_selected_pod_leaves_with_the_egress_address() -> anyhow::Result<()> {
    let egress = Egress::new()?;
    let sniffer = egress.lab.outside.sniff(eips())?;
    for (name, place) in WAYS {
        for transport in TRANSPORTS {
            for is_v6 in [false, true] {
                for flow in 0..FLOWS {
                    let seen = egress.ask(name, SELECTED, transport, is_v6, LIMIT)?;
                    assert_eq!(seen, Some(eip(is_v6)), "{transport:?} flow {flow} of a pod {place}");
                }
            }
        }
    }
    let seen = sniffer.finish()?;
    assert_no_leak(&seen);
    let least = u64::try_from(WAYS.len() * TRANSPORTS.len() * 2 * FLOWS)?;
    assert!(seen.expected >= least, "the sniffer missed packets: {seen:?}");
    Ok(())
}

#[test]
fn a_pod_without_policy_leaves_as_the_cni_plugin_has_it() -> anyhow::Result<()> {
    let egress = Egress::new()?;
    for (name, _) in WAYS {
        for is_v6 in [false, true] {
            let node = egress.lab.node(name).addresses()[usize::from(is_v6)];
            assert_eq!(egress.ask(name, UNSELECTED, Transport::Tcp, is_v6, LIMIT)?, Some(node));
        }
    }
    Ok(())
}

#[test]
fn a_pod_that_nobody_knows_yet_does_not_leave() -> anyhow::Result<()> {
    let egress = Egress::new()?;
    let sniffer = egress.lab.outside.sniff([])?;
    for is_v6 in [false, true] {
        assert_eq!(egress.ask("a", 7, Transport::Udp, is_v6, SILENCE)?, None);
    }
    assert_no_leak(&sniffer.finish()?);
    Ok(())
}

#[test]
fn malformed_packets_leave_with_no_other_address() -> anyhow::Result<()> {
    let egress = Egress::new()?;
    let nodes = egress.lab.nodes.iter().flat_map(LabNode::addresses);
    // The nodes' own addresses are of packets of pods without policy, which show that all others have gone their way.
    let sniffer = egress.lab.outside.sniff(eips().into_iter().chain(nodes))?;
    for (name, _) in WAYS {
        let node = egress.lab.node(name);
        for from in node.pod(SELECTED) {
            for kind in Malformed::ALL {
                kind.send(node.pods(), from, egress.lab.outside.server(from).ip())?;
            }
        }
        egress.settle(name)?;
    }
    assert_no_leak(&sniffer.finish()?);
    Ok(())
}

#[test]
fn a_deleted_policy_ends_running_flows_at_once() -> anyhow::Result<()> {
    for (name, place) in WAYS {
        let mut egress = Egress::new()?;
        let node = egress.lab.node(name);
        let flows = node.pod(SELECTED).map(|from| {
            let to = egress.lab.outside.server(from);
            (UdpFlow::open(node.pods(), from, to).unwrap(), TcpFlow::open(node.pods(), from, to, LIMIT).unwrap())
        });
        let [mut v4, mut v6] = flows;
        for ((udp, tcp), eip) in [(&mut v4, eip(false)), (&mut v6, eip(true))] {
            assert_eq!((udp.ask(LIMIT)?, tcp.ask(LIMIT)?), (Some(eip), Some(eip)), "a pod {place}");
        }
        egress.change(name, |node, state| select(state, node, SELECTED, Mark::UNSELECTED));
        let sniffer = egress.lab.outside.sniff([])?;
        for (udp, tcp) in [&mut v4, &mut v6] {
            assert_eq!((udp.ask(SILENCE)?, tcp.ask(SILENCE)?), (None, None), "a pod {place}");
        }
        assert_no_leak(&sniffer.finish()?);
    }
    Ok(())
}

#[test]
fn another_slot_ends_running_flows_of_the_old_one() -> anyhow::Result<()> {
    for (name, place) in WAYS {
        let mut egress = Egress::new()?;
        egress.change("b", |_, state| own(state, slot(3), EIP + 1));
        for number in ["a", "b", "d"] {
            egress.change(number, |node, state| route_slot(state, node.number, slot(3), OWNER));
        }
        let node = egress.lab.node(name);
        let flows =
            node.pod(SELECTED).map(|from| UdpFlow::open(node.pods(), from, egress.lab.outside.server(from)).unwrap());
        for (flow, eip) in flows.iter().zip(eips()) {
            assert_eq!(flow.ask(LIMIT)?, Some(eip), "a pod {place}");
        }
        egress.change(name, |node, state| select(state, node, SELECTED, Mark::slot(slot(3))));
        let sniffer = egress.lab.outside.sniff([])?;
        for flow in &flows {
            assert_eq!(
                flow.ask(SILENCE)?,
                None,
                "a flow of a pod {place} keeps an address that its slot does not have"
            );
        }
        assert_no_leak(&sniffer.finish()?);
        // The owner ends what is left of the old slot, and flows get the new address.
        for node in &egress.lab.nodes {
            forget_slot(node, slot(3));
        }
        let (new4, new6) = egress_addresses(EIP + 1);
        for (flow, new) in flows.iter().zip([IpAddr::from(new4), new6.into()]) {
            assert_eq!(flow.ask(LIMIT)?, Some(new), "a pod {place}");
        }
    }
    Ok(())
}

/// Ways in which the path can be broken: on which node, and how.
type Break = (&'static str, &'static str, fn(&LabNode, &mut KernelState));

const BREAKS: [Break; 8] = [
    ("b", "the slot is missing at the owner", |_, state| disown(state, slot(2), EIP)),
    ("b", "only its address is missing", |_, state| {
        state.elements.eip4.clear();
        state.elements.eip6.clear();
    }),
    ("b", "the lease is over", |_, state| state.elements.granted.clear()),
    ("b", "the lease was never armed", |_, state| state.elements.armed.clear()),
    ("a", "no node owns the slot", |_, state| state.elements.own.clear()),
    ("a", "the routing rule is gone", |_, state| state.network.rules.clear()),
    ("a", "the way through the tunnel is gone", |_, state| {
        state.network.routes.retain(|key, _| key.table != 9927 || key.metric != 1024);
    }),
    ("a", "the tunnel is down", |_, state| {
        state.tunnel.as_mut().unwrap().is_up = false;
        let network = &mut state.network;
        network.addresses.clear();
        network.neighbours.clear();
        network.routes.retain(|key, _| key.metric != 1024);
    }),
];

#[test]
fn a_broken_path_drops_and_never_leaks() -> anyhow::Result<()> {
    for (broken, how, apply) in BREAKS {
        let mut egress = Egress::new()?;
        let node = egress.lab.node("a");
        let running =
            node.pod(SELECTED).map(|from| UdpFlow::open(node.pods(), from, egress.lab.outside.server(from)).unwrap());
        for (flow, eip) in running.iter().zip(eips()) {
            assert_eq!(flow.ask(LIMIT)?, Some(eip));
        }
        egress.change(broken, apply);
        let sniffer = egress.lab.outside.sniff([])?;
        for flow in &running {
            assert_eq!(flow.ask(SILENCE)?, None, "a running flow, while {how}");
        }
        // A pod on the owner is concerned only if the owner is.
        let names: &[&str] = if broken == "b" { &["a", "b", "d"] } else { &["a"] };
        for name in names {
            for transport in TRANSPORTS {
                for is_v6 in [false, true] {
                    let seen = egress.ask(name, SELECTED, transport, is_v6, SILENCE)?;
                    assert_eq!(seen, None, "{transport:?} on {name}, while {how}");
                }
            }
        }
        assert_no_leak(&sniffer.finish()?);
    }
    Ok(())
}

#[test]
fn a_node_whose_own_address_is_asked_for_uses_it() -> anyhow::Result<()> {
    let mut egress = Egress::new()?;
    // Class 5 leads to node `b` and its own address.
    let class = Mark::class(5);
    egress.change("b", |node, state| own(state, Slot::NODE_ADDRESS, 10 + node.number));
    for (name, _) in WAYS {
        egress.change(name, |node, state| {
            select(state, node, 4, class);
            state.elements.own.insert(class, crate::node::way(node.number, Slot::NODE_ADDRESS, OWNER));
        });
    }
    for (name, place) in WAYS {
        for transport in TRANSPORTS {
            for is_v6 in [false, true] {
                let expected = egress.lab.node("b").addresses()[usize::from(is_v6)];
                assert_eq!(
                    egress.ask(name, 4, transport, is_v6, LIMIT)?,
                    Some(expected),
                    "{transport:?}, a pod {place}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn a_class_decides_by_destination() -> anyhow::Result<()> {
    let mut egress = Egress::new()?;
    let class = Mark::class(7);
    egress.change("b", |_, state| own(state, slot(3), EIP + 1));
    for (name, _) in WAYS {
        egress.change(name, |node, state| {
            select(state, node, 5, class);
            route_slot(state, node.number, slot(3), OWNER);
            let (outside4, outside6) = egress_addresses(1);
            let elements = &mut state.elements;
            elements.dst4.insert((class, Range { first: outside4, last: outside4 }), Mark::slot(slot(3)));
            elements.dst6.insert((class, Range { first: outside6, last: outside6 }), Mark::slot(slot(3)));
        });
    }
    let (new4, new6) = egress_addresses(EIP + 1);
    for (name, place) in WAYS {
        let node = egress.lab.node(name);
        for ((from, own), new) in node.pod(5).into_iter().zip(node.addresses()).zip([IpAddr::from(new4), new6.into()]) {
            let outside = &egress.lab.outside;
            let ask = |to| ask(node.pods(), Transport::Tcp, from, to, LIMIT);
            assert_eq!(ask(outside.server(from))?, Some(new), "a pod {place}, to what the policy names");
            assert_eq!(ask(outside.elsewhere(from))?, Some(own), "a pod {place}, to what no policy names");
        }
    }
    // A destination whose slot nobody owns is not reached at all.
    for (name, place) in WAYS {
        egress.change(name, |_, state| state.elements.own.retain(|mark, _| *mark != Mark::slot(slot(3))));
        let node = egress.lab.node(name);
        for from in node.pod(5) {
            let seen = ask(node.pods(), Transport::Udp, from, egress.lab.outside.server(from), SILENCE)?;
            assert_eq!(seen, None, "a pod {place}");
        }
    }
    Ok(())
}

#[test]
fn only_the_holder_of_the_lease_says_that_an_address_is_there() -> anyhow::Result<()> {
    let mut egress = Egress::new()?;
    let claims = |egress: &Egress| {
        let sniffer = egress.lab.outside.sniff([])?;
        for address in eips() {
            egress.lab.outside.look_for(address)?;
        }
        let owner = egress.lab.node("b");
        // What the ruleset drops is an error for whoever sends it, and says nothing.
        let announced = owner.network.enter(|| NetlinkKernel::open(UPLINK).unwrap().announce(&eips().into()));
        egress.settle("b")?;
        let seen = sniffer.finish()?;
        let of = |address: IpAddr| seen.claims.get(&address).cloned().unwrap_or_default();
        anyhow::Ok((eips().map(of), announced.is_ok()))
    };
    let ([v4, v6], is_announced) = claims(&egress)?;
    assert_eq!((v4.len(), v6.len(), is_announced), (1, 1, true), "{v4:?} {v6:?}");
    // The answer and, of the announcement, two forms of ARP; the answer and one advertisement.
    assert!(v4.values().all(|count| *count >= 3) && v6.values().all(|count| *count >= 2), "{v4:?} {v6:?}");
    egress.change("b", |_, state| state.elements.link_granted.clear());
    assert_eq!(claims(&egress)?, ([BTreeMap::new(), BTreeMap::new()], false));
    egress.change("b", |_, state| state.elements.grant(3));
    let ([v4, v6], is_announced) = claims(&egress)?;
    assert_eq!((v4.len(), v6.len(), is_announced), (1, 1, true), "another lap of the lease is as good");
    Ok(())
}
