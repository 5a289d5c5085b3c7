//! Resolves overlapping policies of one pod: each destination has exactly one winner.
//!
//! Per destination: highest priority, then longest destination prefix, then a namespaced policy before a cluster
//! policy, then the older one, then namespace and name. A policy without destinations means every destination
//! outside the cluster, with prefix length 0. The CIDRs of the cluster are not known here, so such a policy is a
//! catch-all: it wins wherever no range does, and in the ranges that it beats by priority.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::PolicyName;
use crate::net::{Family, IntervalSet, Range};

/// A policy that selects the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidatePolicy {
    /// Its name.
    pub name: PolicyName,
    /// Higher wins.
    pub priority: i64,
    /// When it was created, in seconds.
    pub created: i64,
    /// Destinations; empty for every destination outside the cluster.
    pub destinations: Vec<IpNet>,
}

/// The policy in effect for each destination.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EffectivePolicies {
    /// Disjoint ranges, IPv4 first, ascending; adjacent ranges with the same winner are merged.
    pub ranges: Vec<(Range, Winner)>,
    /// The winner outside the cluster for destinations without a range.
    pub catch_all: Option<PolicyName>,
    /// Policies that win no destination, and the strongest policy that overrides them; none if none of their
    /// destinations can be served at all.
    pub shadowed: BTreeMap<PolicyName, Option<PolicyName>>,
}

/// The winner of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Winner {
    /// This policy, inside and outside the cluster.
    Policy(PolicyName),
    /// Inside the cluster this policy, which names the range; outside of it the catch-all, by its priority.
    InsideCluster(PolicyName),
}

/// One destination of one policy.
struct Destination<'a> {
    policy: &'a CandidatePolicy,
    /// None for the catch-all.
    net: Option<IpNet>,
}

/// Resolves the policies that select one pod.
pub fn resolve_overlaps(policies: &[CandidatePolicy]) -> EffectivePolicies {
    let mut destinations: Vec<Destination<'_>> = Vec::new();
    for policy in policies {
        destinations.extend(policy.destinations.iter().map(|net| Destination { policy, net: Some(net.trunc()) }));
        if policy.destinations.is_empty() {
            destinations.push(Destination { policy, net: None });
        }
    }
    destinations.sort_by_key(|destination| {
        let length = destination.net.map_or(0, |net| net.prefix_len());
        let name = &destination.policy.name;
        (
            Reverse(destination.policy.priority),
            Reverse(length),
            name.namespace.is_none(),
            destination.policy.created,
            name,
        )
    });
    let catch_all = destinations.iter().position(|destination| destination.net.is_none());
    let elsewhere = catch_all.map(|index| destinations[index].policy.name.clone());
    let (mut decided, mut won) = (never_served(), Vec::new());
    for (index, destination) in destinations.iter().enumerate() {
        let Some(net) = destination.net else { continue };
        let range = Range::from(net);
        let decided = &mut decided[usize::from(range.family() == Family::V6)];
        let name = destination.policy.name.clone();
        let beaten = catch_all.is_some_and(|catch_all| catch_all < index);
        for (first, last) in decided.gaps(range.first(), range.last()) {
            let winner = if beaten { Winner::InsideCluster(name.clone()) } else { Winner::Policy(name.clone()) };
            won.push((Range::between(range.family(), first, last), winner));
        }
        decided.insert(range.first(), range.last());
    }
    won.sort_by_key(|(range, _)| *range);
    let ranges = merge(won);
    let shadowed = shadowed(policies, &destinations, &ranges, elsewhere.as_ref());
    EffectivePolicies { ranges, catch_all: elsewhere, shadowed }
}

/// Destinations that no policy may serve: loopback, link-local (including the cloud metadata service), multicast and
/// broadcast. IPv4, then IPv6.
fn never_served() -> [IntervalSet; 2] {
    let mut sets = [IntervalSet::default(), IntervalSet::default()];
    for block in
        ["127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32", "::1/128", "fe80::/10", "ff00::/8"]
    {
        let range = Range::from(block.parse::<IpNet>().expect("a block written above"));
        sets[usize::from(range.family() == Family::V6)].insert(range.first(), range.last());
    }
    sets
}

/// True if no policy may serve the destination.
pub fn is_never_served(destination: IpAddr) -> bool {
    let range = Range::from(destination);
    never_served()[usize::from(destination.is_ipv6())].contains(range.first())
}

fn merge(won: Vec<(Range, Winner)>) -> Vec<(Range, Winner)> {
    let mut merged: Vec<(Range, Winner)> = Vec::with_capacity(won.len());
    for (range, winner) in won {
        match merged.last_mut() {
            Some((last, same))
                if *same == winner
                    && last.family() == range.family()
                    && last.last().checked_add(1) == Some(range.first()) =>
            {
                *last = Range::between(range.family(), last.first(), range.last());
            }
            _ => merged.push((range, winner)),
        }
    }
    merged
}

fn shadowed(
    policies: &[CandidatePolicy],
    destinations: &[Destination<'_>],
    ranges: &[(Range, Winner)],
    elsewhere: Option<&PolicyName>,
) -> BTreeMap<PolicyName, Option<PolicyName>> {
    let winners: BTreeSet<&PolicyName> = ranges
        .iter()
        .map(|(_, winner)| match winner {
            Winner::Policy(name) | Winner::InsideCluster(name) => name,
        })
        .chain(elsewhere)
        .collect();
    let overridden = policies.iter().filter(|policy| !winners.contains(&policy.name));
    overridden
        .map(|policy| {
            let own = |destination: &&Destination<'_>| destination.policy.name == policy.name;
            let overlaps = |net: Option<IpNet>| {
                destinations.iter().filter(own).any(|destination| match (destination.net, net) {
                    (Some(a), Some(b)) => a.contains(&b) || b.contains(&a),
                    (None, None) => true,
                    (Some(_), None) | (None, Some(_)) => false,
                })
            };
            let stronger = destinations
                .iter()
                .find(|destination| destination.policy.name != policy.name && overlaps(destination.net));
            (policy.name.clone(), stronger.map(|destination| destination.policy.name.clone()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(namespace: &str, name: &str) -> PolicyName {
        PolicyName { namespace: (!namespace.is_empty()).then(|| namespace.into()), name: name.into() }
    }

    fn candidate(policy: &str, priority: i64, destinations: &[&str]) -> CandidatePolicy {
        let destinations = destinations.iter().map(|net| net.parse().unwrap()).collect();
        CandidatePolicy { name: name("shop", policy), priority, created: 0, destinations }
    }

    fn shown(effective: &EffectivePolicies) -> Vec<String> {
        let line = |(range, winner): &(Range, Winner)| match winner {
            Winner::Policy(name) => format!("{range} {name}"),
            Winner::InsideCluster(name) => format!("{range} inside the cluster {name}"),
        };
        effective.ranges.iter().map(line).collect()
    }

    #[test]
    fn the_longer_prefix_wins_inside_the_shorter_one() {
        let effective =
            resolve_overlaps(&[candidate("wide", 0, &["10.0.0.0/8"]), candidate("narrow", 0, &["10.1.0.0/16"])]);
        let lines = [
            "10.0.0.0-10.0.255.255 shop/wide",
            "10.1.0.0-10.1.255.255 shop/narrow",
            "10.2.0.0-10.255.255.255 shop/wide",
        ];
        assert_eq!(shown(&effective), lines);
        assert!(effective.shadowed.is_empty() && effective.catch_all.is_none());
    }

    #[test]
    fn priority_beats_prefix_and_the_shadowed_learn_by_whom() {
        let effective =
            resolve_overlaps(&[candidate("wide", 1, &["10.0.0.0/8"]), candidate("narrow", 0, &["10.1.0.0/16"])]);
        assert_eq!(shown(&effective), ["10.0.0.0-10.255.255.255 shop/wide"]);
        assert_eq!(effective.shadowed, BTreeMap::from([(name("shop", "narrow"), Some(name("shop", "wide")))]));
    }

    #[test]
    fn ties_go_to_the_namespaced_then_older_then_first_by_name() {
        let mut cluster = candidate("a", 0, &["10.0.0.0/8"]);
        cluster.name.namespace = None;
        let mut young = candidate("b", 0, &["10.0.0.0/8"]);
        young.created = 9;
        let (old, twin) = (candidate("d", 0, &["10.0.0.0/8"]), candidate("c", 0, &["10.0.0.0/8"]));
        for (policies, winner) in [
            (vec![cluster.clone(), young.clone()], "shop/b"),
            (vec![cluster.clone(), young.clone(), old.clone()], "shop/d"),
            (vec![cluster, young, old, twin], "shop/c"),
        ] {
            assert_eq!(shown(&resolve_overlaps(&policies)), [format!("10.0.0.0-10.255.255.255 {winner}")]);
        }
    }

    #[test]
    fn a_catch_all_wins_where_no_range_does_unless_its_priority_is_higher() {
        let ranged = candidate("ranged", 0, &["10.0.0.0/8"]);
        let effective = resolve_overlaps(&[candidate("all", 0, &[]), ranged.clone()]);
        assert_eq!(
            (shown(&effective), effective.catch_all),
            (vec!["10.0.0.0-10.255.255.255 shop/ranged".into()], Some(name("shop", "all")))
        );
        let effective = resolve_overlaps(&[candidate("all", 5, &[]), ranged]);
        assert_eq!(shown(&effective), ["10.0.0.0-10.255.255.255 inside the cluster shop/ranged"]);
        let effective = resolve_overlaps(&[candidate("a", 0, &[]), candidate("b", 0, &[])]);
        assert_eq!(effective.shadowed, BTreeMap::from([(name("shop", "b"), Some(name("shop", "a")))]));
    }

    #[test]
    fn zero_cidr_destination_leaves_out_what_is_never_served() {
        let effective = resolve_overlaps(&[candidate("all", 0, &["0.0.0.0/0", "::/0"])]);
        for (address, served) in [
            ("8.8.8.8", true),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("239.1.1.1", false),
            ("255.255.255.255", false),
            ("2001:db8::1", true),
            ("fe80::1", false),
            ("ff02::1", false),
            ("::1", false),
        ] {
            let range = Range::from(address.parse::<IpAddr>().unwrap());
            let won = effective
                .ranges
                .iter()
                .any(|(r, _)| r.family() == range.family() && r.first() <= range.first() && range.first() <= r.last());
            assert_eq!((won, is_never_served(address.parse().unwrap())), (served, !served), "{address}");
        }
        let effective = resolve_overlaps(&[candidate("metadata", 0, &["169.254.169.254/32"])]);
        assert_eq!(effective.shadowed, BTreeMap::from([(name("shop", "metadata"), None)]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn each_destination_has_the_winner_that_the_order_says(
            destinations in prop::collection::vec((0i64..3, 0i64..2, prop::collection::vec((0u8..16, 28u8..=32), 0..4), any::<bool>()), 0..6)
        ) {
            let policies: Vec<CandidatePolicy> = destinations.into_iter().enumerate().map(|(n, (priority, created, nets, cluster))| CandidatePolicy {
                name: name(if cluster { "" } else { "shop" }, &format!("p{n}")),
                priority,
                created,
                destinations: nets.into_iter().map(|(host, length)| format!("10.0.0.{host}/{length}").parse().unwrap()).collect(),
            }).collect();
            let effective = resolve_overlaps(&policies);
            for host in 0..32u8 {
                let address: IpAddr = format!("10.0.0.{host}").parse().unwrap();
                let mut best: Option<(_, &CandidatePolicy)> = None;
                for policy in &policies {
                    for net in policy.destinations.iter().filter(|net| net.contains(&address)) {
                        let rank = (-policy.priority, -i16::from(net.prefix_len()), policy.name.namespace.is_none(), policy.created, &policy.name);
                        if best.as_ref().is_none_or(|(other, _)| rank < *other) { best = Some((rank, policy)); }
                    }
                }
                let number = Range::from(address).first();
                let won = effective.ranges.iter().find(|(range, _)| range.first() <= number && number <= range.last()).map(|(_, winner)| winner);
                let catch_all = policies.iter().filter(|p| p.destinations.is_empty()).map(|p| p.priority).max();
                match (won, best) {
                    (None, None) => {}
                    (Some(Winner::Policy(name)), Some((_, policy))) => {
                        prop_assert_eq!(name, &policy.name);
                        prop_assert!(catch_all.is_none_or(|priority| priority <= policy.priority));
                    }
                    (Some(Winner::InsideCluster(name)), Some((_, policy))) => {
                        prop_assert_eq!(name, &policy.name);
                        prop_assert!(catch_all.is_some_and(|priority| priority > policy.priority));
                    }
                    (won, best) => prop_assert!(false, "{:?} {:?}", won, best),
                }
            }
            for pair in effective.ranges.windows(2) {
                prop_assert!(pair[0].0.family() != pair[1].0.family() || pair[0].0.last() < pair[1].0.first());
            }
        }
    }
}
