//! The fixed ruleset in a real kernel: that others can read it, that it stays fixed, and that it is repaired.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use portolan_drivers::kernel::{Kernel, Mark, NetlinkKernel, Ruleset, diff, ruleset::TUNNEL_LINK};
use portolan_testkit::NetworkNamespace;
use portolan_testkit::egress_lab::UPLINK;

use crate::contract::{converge, gateway, namespace};
use crate::node::{route_slot, slot};

/// How many objects of each kind `nft` lists.
fn objects(namespace: &NetworkNamespace) -> anyhow::Result<BTreeMap<&'static str, usize>> {
    // Rules stand between braces, two steps in, and have a comment.
    let listed = namespace.run(&["nft", "--terse", "list", "ruleset"])?;
    let count = |is: fn(&str) -> bool| listed.lines().filter(|line| is(line.trim_start())).count();
    Ok([
        ("tables", count(|line| line.starts_with("table "))),
        ("chains", count(|line| line.starts_with("chain "))),
        ("sets", count(|line| line.starts_with("set ") || line.starts_with("map "))),
        ("rules", count(|line| line.contains(" comment \""))),
    ]
    .into())
}

#[test]
fn nft_lists_the_ruleset_with_the_reason_of_each_rule() -> anyhow::Result<()> {
    let namespace = namespace()?;
    namespace.enter(|| converge(&mut NetlinkKernel::open(UPLINK).unwrap(), &gateway()));
    let listed = namespace.run(&["nft", "list", "ruleset"])?;
    for expected in ["table inet portolan", "chain forwarding", "map src4", "no node owns the slot", "10.99.0.100"] {
        assert!(listed.contains(expected), "{expected} is missing in:\n{listed}");
    }
    Ok(())
}

#[test]
fn objects_and_rules_stay_the_same_whatever_the_number_of_addresses() -> anyhow::Result<()> {
    let namespace = namespace()?;
    let mut state = gateway();
    namespace.enter(|| converge(&mut NetlinkKernel::open(UPLINK).unwrap(), &state));
    let few = objects(&namespace)?;
    assert_eq!((few["tables"], few["sets"]), (4, 19), "{few:?}");
    assert!(few["rules"] > 50, "{few:?}");
    for number in 10..5_010 {
        state.elements.src4.insert(Ipv4Addr::from(0x0af4_0000 + u32::from(number)), Mark::slot(slot(number)));
        state.elements.translate4(slot(number), Ipv4Addr::from(0xc612_0000 + u32::from(number)));
        route_slot(&mut state, 1, slot(number), 1 + (number % 4) as u8);
    }
    namespace.enter(|| converge(&mut NetlinkKernel::open(UPLINK).unwrap(), &state));
    assert_eq!(objects(&namespace)?, few);
    Ok(())
}

#[test]
fn a_restart_of_whoever_converged_writes_nothing() -> anyhow::Result<()> {
    let namespace = namespace()?;
    namespace.enter(|| {
        converge(&mut NetlinkKernel::open(UPLINK).unwrap(), &gateway());
        // Somebody who hears of every change, whoever made it.
        let mut witness = NetlinkKernel::open(UPLINK).unwrap();
        while witness.wait_for_change(Duration::ZERO).unwrap() {}
        let mut restarted = NetlinkKernel::open(UPLINK).unwrap();
        let delta = diff(&restarted.dump().unwrap(), &gateway());
        assert!(delta.is_empty(), "{delta:#?}");
        restarted.apply(&delta).unwrap();
        assert!(!witness.wait_for_change(Duration::from_millis(200)).unwrap(), "something was written");
    });
    Ok(())
}

/// What others do to a converged node.
const INTERFERENCE: [&[&str]; 12] = [
    &["nft", "flush", "ruleset"],
    &["nft", "delete", "table", "netdev", "portolan"],
    &["nft", "flush", "chain", "inet", "portolan", "post"],
    &["nft", "insert", "rule", "inet", "portolan", "pre", "accept"],
    &["nft", "flush", "set", "inet", "portolan", "held4"],
    &["nft", "add", "element", "inet", "portolan", "own", "{ 0x20024000 : 0x20024000 }"],
    &["ip", "link", "delete", TUNNEL_LINK],
    &["ip", "link", "set", TUNNEL_LINK, "down"],
    &["ip", "rule", "delete", "priority", "27"],
    &["ip", "route", "flush", "table", "9927"],
    &["ip", "neighbour", "delete", "198.18.0.2", "dev", TUNNEL_LINK],
    &["bridge", "fdb", "delete", "66:26:20:00:20:02", "dev", TUNNEL_LINK],
];

#[test]
fn whatever_others_change_is_heard_of_and_repaired() -> anyhow::Result<()> {
    let namespace = namespace()?;
    let mut kernel = namespace.enter(|| NetlinkKernel::open(UPLINK))?;
    namespace.enter(|| converge(&mut kernel, &gateway()));
    for command in INTERFERENCE {
        while kernel.wait_for_change(Duration::ZERO)? {}
        namespace.run(command)?;
        assert!(kernel.wait_for_change(Duration::from_secs(10))?, "nobody heard of {command:?}");
        namespace.enter(|| {
            let delta = diff(&kernel.dump().unwrap(), &gateway());
            assert!(!delta.is_empty(), "{command:?} changed nothing");
            // A link that was down may take what was on it along only when it comes up: repairing goes on until done.
            for _ in 0..3 {
                let delta = diff(&kernel.dump().unwrap(), &gateway());
                kernel.apply(&delta).unwrap();
            }
            converge(&mut kernel, &gateway());
        });
    }
    Ok(())
}

#[test]
fn a_flushed_ruleset_is_absent_and_a_changed_one_is_damaged() -> anyhow::Result<()> {
    let namespace = namespace()?;
    let mut kernel = namespace.enter(|| NetlinkKernel::open(UPLINK))?;
    namespace.enter(|| converge(&mut kernel, &gateway()));
    namespace.run(&["nft", "flush", "chain", "inet", "portolan", "post"])?;
    let Ruleset::Damaged(differences) = namespace.enter(|| kernel.dump())?.ruleset else { panic!("rules are gone") };
    assert!(differences.iter().all(|line| line.contains("chain post rule")), "{differences:?}");
    namespace.run(&["nft", "flush", "ruleset"])?;
    assert_eq!(namespace.enter(|| kernel.dump())?.ruleset, Ruleset::Absent);
    Ok(())
}
