//! What every back end does alike.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use portolan_drivers::kernel::{
    Delta, Kernel, KernelError, KernelState, Link, Mark, MemoryKernel, NetlinkKernel, Range, Route, RouteKey, Ruleset,
    Slot, TunnelChange, diff, scope,
};
use portolan_testkit::NetworkNamespace;
use portolan_testkit::egress_lab::{UPLINK, egress_addresses};

use crate::node::{node_state, own, route_slot, slot};

macro_rules! contract {
    ($($test:ident)*) => {
        mod memory { $(
            #[test]
            fn $test() {
                let link = super::Link { index: 2, mac: None, mtu: 1500, is_up: true, addresses: super::BTreeSet::new() };
                super::$test(&mut super::MemoryKernel::new([(super::UPLINK.into(), link)].into()));
            }
        )* }
        mod netlink { $(
            #[test]
            fn $test() -> anyhow::Result<()> {
                let namespace = super::namespace()?;
                namespace.enter(|| super::$test(&mut super::NetlinkKernel::open(super::UPLINK).unwrap()));
                Ok(())
            }
        )* }
    };
}

contract! {
    nothing_of_ours_is_there_at_first
    a_state_that_was_applied_is_dumped
    changes_of_every_kind_are_applied_and_nothing_else
    what_goes_leaves_nothing_behind
    elements_change_all_or_none
    a_tunnel_that_is_made_anew_has_all_that_was_on_it
    the_uplink_is_listed
    nobody_else_changes_anything
    removing_what_is_gone_already_is_a_success
    a_second_tunnel_is_refused
    without_its_tunnel_a_node_has_the_rest_of_the_rules
}

/// A network with an uplink.
pub(crate) fn namespace() -> anyhow::Result<NetworkNamespace> {
    let namespace = NetworkNamespace::new("contract")?;
    let (v4, v6) = egress_addresses(11);
    namespace.ip(&[
        &format!("link add {UPLINK} type veth peer name other"),
        &format!("address add {v4}/24 dev {UPLINK}"),
        &format!("address add {v6}/64 dev {UPLINK} nodad"),
        &format!("link set {UPLINK} up"),
        "link set other up",
    ])?;
    Ok(namespace)
}

/// Makes the kernel be in a state, and shows that it is: what was dumped needs no change.
pub(crate) fn converge(kernel: &mut dyn Kernel, desired: &KernelState) {
    let delta = diff(&kernel.dump().unwrap(), desired);
    kernel.apply(&delta).unwrap();
    let actual = kernel.dump().unwrap();
    assert_eq!(actual.ruleset, desired.ruleset);
    assert_eq!(actual.elements, desired.elements);
    assert_eq!(actual.network, desired.network);
    let rest = diff(&actual, desired);
    assert!(rest.is_empty(), "{rest:#?}");
}

/// A gateway with all that there is.
pub(crate) fn gateway() -> KernelState {
    let mut state = node_state(1);
    own(&mut state, slot(2), 100);
    own(&mut state, slot(3), 101);
    own(&mut state, Slot::NODE_ADDRESS, 11);
    route_slot(&mut state, 1, slot(2), 1);
    route_slot(&mut state, 1, slot(4), 2);
    let elements = &mut state.elements;
    elements.src4.insert(Ipv4Addr::new(10, 244, 1, 2), Mark::slot(slot(2)));
    elements.src4.insert(Ipv4Addr::new(10, 244, 1, 3), Mark::class(7));
    elements.src6.insert("fd44:1::3".parse().unwrap(), Mark::class(7));
    let to = |first: [u8; 4], last: [u8; 4]| Range { first: first.into(), last: last.into() };
    elements.dst4.insert((Mark::class(7), to([192, 0, 2, 0], [192, 0, 2, 127])), Mark::slot(slot(2)));
    elements.dst4.insert((Mark::class(7), to([192, 0, 2, 128], [192, 0, 2, 128])), Mark::slot(slot(3)));
    elements.dst4.insert((Mark::class(8), to([0, 0, 0, 0], [255, 255, 255, 255])), Mark::slot(slot(3)));
    let v6 = Range { first: "2001:db8::".parse().unwrap(), last: "2001:db8::ffff".parse().unwrap() };
    elements.dst6.insert((Mark::class(7), v6), Mark::slot(slot(2)));
    // Ranges that touch, one address alone, and the last address there is.
    elements.net4.insert(to([10, 96, 0, 0], [10, 96, 255, 255]), scope::INSIDE);
    elements.net4.insert(to([10, 97, 0, 0], [10, 97, 0, 0]), scope::LOCAL_POD);
    elements.net4.insert(to([240, 0, 0, 0], [255, 255, 255, 255]), scope::INSIDE);
    let top = Range { first: "ff00::".parse().unwrap(), last: std::net::Ipv6Addr::from([0xff; 16]) };
    elements.net6.insert(top, scope::INSIDE);
    state
}

fn nothing_of_ours_is_there_at_first(kernel: &mut dyn Kernel) {
    let actual = kernel.dump().unwrap();
    assert_eq!(KernelState { settings: BTreeMap::new(), ..actual }, KernelState::default());
    assert!(diff(&KernelState::default(), &KernelState::default()).is_empty());
}

fn a_state_that_was_applied_is_dumped(kernel: &mut dyn Kernel) {
    let desired = gateway();
    converge(kernel, &desired);
    let actual = kernel.dump().unwrap();
    assert_eq!((&actual.tunnel, &actual.ruleset), (&desired.tunnel, &desired.ruleset));
}

fn changes_of_every_kind_are_applied_and_nothing_else(kernel: &mut dyn Kernel) {
    converge(kernel, &gateway());
    let mut changed = gateway();
    changed.tunnel.as_mut().unwrap().mtu = 1400;
    route_slot(&mut changed, 1, slot(2), 3);
    own(&mut changed, slot(5), 105);
    changed.elements.src4.remove(&Ipv4Addr::new(10, 244, 1, 2));
    let peer = changed.network.peers.keys().next().copied().unwrap();
    changed.network.peers.insert(peer, Ipv4Addr::new(10, 99, 0, 77).into());
    let neighbour = changed.network.neighbours.keys().next().copied().unwrap();
    changed.network.neighbours.insert(neighbour, peer);
    let gone = changed.network.proxies.first().copied().unwrap();
    changed.network.proxies.remove(&gone);
    changed.network.routes.retain(|key, _| key.destination.addr() != gone);
    let delta = diff(&kernel.dump().unwrap(), &changed);
    assert_eq!(delta.ruleset, None, "elements change without the ruleset");
    // The slot's way changed, a pod went, and a slot's addresses came, each in three places.
    assert_eq!((delta.remove_elements.len(), delta.add_elements.len()), (2, 7));
    assert_eq!((delta.remove.proxies.len(), delta.add.proxies.len()), (1, 2));
    assert_eq!((delta.add.peers.len(), delta.remove.peers.len()), (1, 0), "a peer is replaced in place");
    converge(kernel, &changed);
}

fn what_goes_leaves_nothing_behind(kernel: &mut dyn Kernel) {
    converge(kernel, &gateway());
    converge(kernel, &KernelState::default());
    let actual = kernel.dump().unwrap();
    assert_eq!(KernelState { settings: BTreeMap::new(), ..actual }, KernelState::default());
}

fn elements_change_all_or_none(kernel: &mut dyn Kernel) {
    converge(kernel, &gateway());
    let mut delta = diff(&kernel.dump().unwrap(), &gateway());
    delta.add_elements.own.insert(Mark::slot(slot(9)), Mark::owned_here(slot(9)));
    delta.remove_elements.own.insert(Mark::slot(slot(10)), Mark::owned_here(slot(10)));
    let refused = kernel.apply(&delta);
    assert!(
        matches!(&refused, Err(KernelError::Refused { cause, .. }) if *cause == rustix::io::Errno::NOENT),
        "{refused:?}"
    );
    assert_eq!(kernel.dump().unwrap().elements, gateway().elements);
}

fn a_tunnel_that_is_made_anew_has_all_that_was_on_it(kernel: &mut dyn Kernel) {
    converge(kernel, &gateway());
    let mut moved = gateway();
    moved.tunnel.as_mut().unwrap().local = egress_addresses(12).0.into();
    let delta = diff(&kernel.dump().unwrap(), &moved);
    kernel.apply(&delta).unwrap();
    converge(kernel, &moved);
}

fn the_uplink_is_listed(kernel: &mut dyn Kernel) {
    let links = kernel.links().unwrap();
    assert!(links[UPLINK].is_up, "{links:?}");
    assert_eq!(links[UPLINK].mtu, 1500);
}

fn nobody_else_changes_anything(kernel: &mut dyn Kernel) {
    // What happened before, such as links that were set up, is read first.
    while kernel.wait_for_change(Duration::ZERO).unwrap() {}
    converge(kernel, &gateway());
    converge(kernel, &KernelState { ruleset: Ruleset::Absent, ..KernelState::default() });
    let mut others = 0;
    // The kernel says of its own accord that a link came up.
    while kernel.wait_for_change(Duration::ZERO).unwrap() {
        others += 1;
    }
    assert!(others < 10, "our own changes are no news: {others}");
}

fn removing_what_is_gone_already_is_a_success(kernel: &mut dyn Kernel) {
    converge(kernel, &gateway());
    let mut delta = diff(&gateway(), &gateway());
    let mut other = node_state(2).network;
    other.peers.retain(|mac, _| !gateway().network.peers.contains_key(mac));
    other.neighbours.retain(|address, _| !gateway().network.neighbours.contains_key(address));
    other.addresses.retain(|address| !gateway().network.addresses.contains(address));
    (other.rules, other.routes) = Default::default();
    other.proxies.insert(Ipv4Addr::new(10, 99, 0, 200).into());
    other
        .routes
        .insert(RouteKey { table: 9927, destination: "192.0.2.0/24".parse().unwrap(), metric: 7 }, Route::Blackhole);
    delta.remove = other;
    assert!(!delta.is_empty());
    kernel.apply(&delta).unwrap();
    converge(kernel, &gateway());
}

fn a_second_tunnel_is_refused(kernel: &mut dyn Kernel) {
    converge(kernel, &gateway());
    let delta = Delta { tunnel: Some(TunnelChange::Create(gateway().tunnel.unwrap())), ..Delta::default() };
    let refused = kernel.apply(&delta);
    assert!(
        matches!(&refused, Err(KernelError::Refused { cause, .. }) if *cause == rustix::io::Errno::EXIST),
        "{refused:?}"
    );
}

fn without_its_tunnel_a_node_has_the_rest_of_the_rules(kernel: &mut dyn Kernel) {
    let mut lost = gateway();
    lost.tunnel.as_mut().unwrap().parent = "nowhere".into();
    let delta = diff(&kernel.dump().unwrap(), &lost);
    let failed = kernel.apply(&delta);
    assert_eq!(failed, Err(KernelError::NoLink { name: "nowhere".into() }));
    let actual = kernel.dump().unwrap();
    let Ruleset::Damaged(missing) = &actual.ruleset else { panic!("{:?}", actual.ruleset) };
    assert!(missing.iter().all(|line| line.contains("chain tunnel") || line.contains("egress.vxlan")), "{missing:?}");
    assert!(actual.network.is_empty());
    converge(kernel, &gateway());
}
