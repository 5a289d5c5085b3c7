//! The nodes of a remote as endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::addresses::{self, AddressRefused};
use super::rules::NodeRules;
use super::types::{Endpoint, EndpointConditions, Local, Node, NodeName, Remote};
use crate::net::Family;

/// The endpoints that the nodes of a remote make, by family and node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeEndpoints {
    by_family: BTreeMap<Family, BTreeMap<NodeName, Endpoint>>,
    /// Those of all nodes, sorted by address, each address once: most Services have exactly these.
    all: BTreeMap<Family, Arc<[Endpoint]>>,
    /// Addresses that are not allowed.
    pub(super) refused: BTreeMap<IpAddr, AddressRefused>,
    /// Nodes that take traffic.
    pub(super) usable: usize,
    /// Nodes beyond the limit, which are not taken into account.
    pub(super) beyond_limit: usize,
}

impl NodeEndpoints {
    /// What a remote without nodes makes.
    pub(super) const fn none() -> Self {
        Self { by_family: BTreeMap::new(), all: BTreeMap::new(), refused: BTreeMap::new(), usable: 0, beyond_limit: 0 }
    }

    /// What the nodes of a remote make.
    pub(super) fn of(local: &Local, remote: &Remote) -> Self {
        let mut all = Self::default();
        let limit = remote.rules.limits.nodes;
        let mut nodes: Vec<(&NodeName, &Node)> = remote.nodes.iter().collect();
        if nodes.len() > limit {
            nodes.sort_by_key(|(name, node)| (node.created, *name));
            all.beyond_limit = nodes.len() - limit;
            nodes.truncate(limit);
        }
        for (name, node) in nodes {
            let Some(conditions) = conditions(&remote.rules.nodes, node) else { continue };
            all.usable += usize::from(conditions.ready);
            for family in [Family::V4, Family::V6] {
                let Some(address) = address(&remote.rules.nodes, node, family) else { continue };
                match addresses::check(local, &remote.rules, address) {
                    Ok(()) => {
                        let endpoint = Endpoint { address, conditions, zone: node.zone.clone(), hostname: None };
                        all.by_family.entry(family).or_default().insert(name.clone(), endpoint);
                    }
                    Err(why) => drop(all.refused.insert(address, why)),
                }
            }
        }
        let families = all.by_family.iter();
        all.all = families.map(|(family, nodes)| (*family, sorted(nodes.values().cloned()).into())).collect();
        all
    }

    /// Endpoints of a family, only of these nodes if any are named; sorted by address, each address once.
    pub(super) fn of_family(&self, family: Family, only: Option<&BTreeSet<NodeName>>) -> Arc<[Endpoint]> {
        let Some(only) = only else { return self.all.get(&family).cloned().unwrap_or_default() };
        let nodes = self.by_family.get(&family).into_iter().flatten();
        let nodes = nodes.filter(|(name, _)| only.contains(*name));
        sorted(nodes.map(|(_, endpoint)| endpoint.clone())).into()
    }

    /// Families of which nodes have addresses.
    pub(super) fn families(&self) -> impl Iterator<Item = Family> {
        self.by_family.keys().copied()
    }
}

/// Sorted by address; of two with the same address the one that takes traffic.
pub(super) fn sorted(endpoints: impl Iterator<Item = Endpoint>) -> Vec<Endpoint> {
    let mut endpoints: Vec<Endpoint> = endpoints.collect();
    endpoints.sort_by(|one, other| {
        one.address.cmp(&other.address).then_with(|| other.conditions.ready.cmp(&one.conditions.ready))
    });
    endpoints.dedup_by(|one, other| one.address == other.address);
    endpoints
}

/// None: the node takes no traffic at all.
fn conditions(rules: &NodeRules, node: &Node) -> Option<EndpointConditions> {
    let usable = node.ready
        && !node.damped
        && rules.selector.matches(&node.labels)
        && !(rules.exclude_labelled && node.excluded)
        && !(rules.exclude_cordoned && node.cordoned);
    let drains = node.leaving && usable;
    if drains { Some(EndpointConditions::DRAINING) } else { usable.then_some(EndpointConditions::READY) }
}

/// The first address of the most preferred kind.
fn address(rules: &NodeRules, node: &Node, family: Family) -> Option<IpAddr> {
    rules.addresses.iter().find_map(|kind| {
        let of_kind = node.addresses.iter().filter(|one| one.kind == *kind);
        of_kind.map(|one| one.address).find(|address| Family::of(*address) == family)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::rules::Rules;
    use crate::mirror::types::{AddressKind, NodeAddress};

    fn node(addresses: &[(AddressKind, &str)]) -> Node {
        let addresses =
            addresses.iter().map(|(kind, text)| NodeAddress { kind: *kind, address: text.parse().unwrap() });
        Node { ready: true, addresses: addresses.collect(), ..Node::default() }
    }

    fn remote(rules: NodeRules, nodes: Vec<Node>) -> Remote {
        let nodes = nodes.into_iter().enumerate().map(|(number, node)| (format!("n{number}").into(), node));
        Remote { rules: Rules { nodes: rules, ..Rules::default() }, nodes: nodes.collect(), ..Remote::default() }
    }

    fn addresses(remote: &Remote, family: Family) -> Vec<String> {
        let endpoints = NodeEndpoints::of(&Local::default(), remote).of_family(family, None);
        endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect()
    }

    #[test]
    fn one_address_per_family_and_the_preferred_kind_first() {
        use AddressKind::{External, Internal};
        let dual =
            node(&[(External, "192.0.2.9"), (Internal, "10.0.0.2"), (Internal, "10.0.0.3"), (Internal, "fd00::2")]);
        let external = node(&[(External, "192.0.2.1")]);
        let internal_only = remote(NodeRules::default(), vec![dual.clone(), external.clone()]);
        assert_eq!(addresses(&internal_only, Family::V4), ["10.0.0.2"]);
        assert_eq!(addresses(&internal_only, Family::V6), ["fd00::2"]);
        let both = NodeRules { addresses: vec![External, Internal], ..NodeRules::default() };
        assert_eq!(addresses(&remote(both, vec![dual, external]), Family::V4), ["192.0.2.1", "192.0.2.9"]);
    }

    #[test]
    fn nodes_that_take_no_traffic_are_left_out_and_leaving_ones_drain() {
        let all = |change: fn(&mut Node), rules: NodeRules| {
            let mut one = node(&[(AddressKind::Internal, "10.0.0.1")]);
            change(&mut one);
            let endpoints = NodeEndpoints::of(&Local::default(), &remote(rules, vec![one]));
            endpoints.of_family(Family::V4, None).first().map(|endpoint| endpoint.conditions)
        };
        let plain = NodeRules::default();
        assert_eq!(all(|_| {}, plain.clone()), Some(EndpointConditions::READY));
        assert_eq!(all(|node| node.ready = false, plain.clone()), None);
        assert_eq!(all(|node| node.damped = true, plain.clone()), None);
        assert_eq!(all(|node| node.excluded = true, plain.clone()), None);
        assert_eq!(all(|node| node.cordoned = true, plain.clone()), Some(EndpointConditions::READY));
        assert_eq!(all(|node| node.leaving = true, plain.clone()), Some(EndpointConditions::DRAINING));
        let strict = NodeRules { exclude_cordoned: true, exclude_labelled: false, ..plain };
        assert_eq!(all(|node| node.cordoned = true, strict.clone()), None);
        assert_eq!(all(|node| node.excluded = true, strict), Some(EndpointConditions::READY));
    }

    #[test]
    fn beyond_the_limit_the_oldest_nodes_count() {
        let mut nodes: Vec<Node> =
            (0..4).map(|number| node(&[(AddressKind::Internal, &format!("10.0.0.{number}"))])).collect();
        for (node, created) in nodes.iter_mut().zip([4, 1, 3, 2]) {
            node.created = created;
        }
        let mut remote = remote(NodeRules::default(), nodes);
        remote.rules.limits.nodes = 2;
        assert_eq!(addresses(&remote, Family::V4), ["10.0.0.1", "10.0.0.3"]);
        assert_eq!(NodeEndpoints::of(&Local::default(), &remote).beyond_limit, 2);
    }
}
