//! Stores -> the planner's world, complete at first and then change by change. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use portolan_api::address_claim::{AddressClaim, HoldingState};
use portolan_api::egress::{EgressClusterInfoStatus, Phase};
use portolan_core::egress::{
    AddressRecord, Affected, Change, GatewayName, Ledger, Move, Node, NodeName, Planner, Policy, PolicyName, World,
};
use portolan_core::net::{AddressSet, Range, parse_claim_name};
use portolan_core::select::Labels;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use super::observe::{Cache, Changes, FlapDamping, says_ready};
use super::ranges;
use super::recorded::{GatewayGrants, granted_earlier};
use super::selected::Selected;
use super::validate::{Families, Gateways, PolicyView, Problem, gateways, labels, policy, resolve};
use crate::runtime::store::Key;

/// The planner, and what is reported to users beside its plan.
pub(super) struct Model {
    pub(super) planner: Planner,
    pub(super) gateways: Gateways,
    /// Why policies are not accepted, by policy.
    pub(super) problems: BTreeMap<PolicyName, Problem>,
    pub(super) selected: Selected,
    /// The ranges inside the cluster, as EgressClusterInfo reports them.
    pub(super) found: EgressClusterInfoStatus,
    inside: AddressSet,
    families: Families,
}

/// Everything whose desired state may have changed, kept until it is written.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) policies: BTreeSet<PolicyName>,
    pub(super) gateways: BTreeSet<GatewayName>,
    /// Policies whose slices may differ.
    pub(super) slices: BTreeSet<PolicyName>,
    /// Nodes whose tunnel may differ.
    pub(super) tunnels: BTreeSet<String>,
    /// EgressClusterInfo may differ.
    pub(super) info: bool,
    pub(super) moves: Vec<Move>,
    /// The usable nodes changed, so standby nodes may have, too.
    pub(super) standby: bool,
}

impl Dirty {
    fn take(&mut self, touched: Affected) {
        let Affected { addresses, policies, gateways, moves } = touched;
        self.addresses.extend(addresses);
        self.policies.extend(policies);
        self.gateways.extend(gateways);
        self.moves.extend(moves);
    }
}

impl Model {
    /// Builds the model from all objects; everything is dirty.
    pub(super) fn whole(cache: &Cache, families: Families, damping: &mut FlapDamping, now: Instant) -> (Self, Dirty) {
        let found = ranges::detect(cache);
        let inside = inside(cache, &found);
        let gateways = checked(cache, families, &inside);
        let mut world = World { seed: seed(cache), keep_unused: cache.has_undecodable(), ..World::default() };
        for (name, checked) in &gateways.by_name {
            world.gateways.insert(name.clone(), checked.gateway.clone());
        }
        let mut dirty = Dirty { info: true, standby: true, tunnels: cache.nodes_and_tunnels(), ..Dirty::default() };
        cache.nodes.for_each(|key, _| {
            let name: NodeName = key.name.as_str().into();
            if let Some(node) = node(cache, &name, damping, now) {
                world.nodes.insert(name, node);
            }
        });
        let mut ledger = Ledger::default();
        cache.claims.for_each(|key, claim| {
            let Some(address) = parse_claim_name(&key.name) else { return };
            if taken(claim) {
                world.taken.insert(address);
            }
            ledger.addresses.extend(held(claim).map(|held| (address, held)));
            dirty.addresses.insert(address);
        });
        let shown = GatewayGrants::read(cache);
        let (mut problems, mut selected) = (BTreeMap::new(), Selected::default());
        each_policy(cache, |view| {
            let (name, namespace) = (view.name(), namespace_labels(cache, view));
            selected.expect(&name, view);
            let own = resolve(view, &namespace, &gateways);
            let own = own.as_ref().and_then(|own| Some((own, gateways.by_name.get(own)?)));
            let granted = shown.granted(cache, view, own);
            let standing = policy(view, &namespace, &gateways, granted.as_ref().map(|granted| &granted.gateway));
            ledger.bindings.extend(granted.map(|granted| (name.clone(), granted)));
            problems.extend(standing.problem.map(|problem| (name.clone(), problem)));
            world.policies.extend(standing.policy.map(|policy| (name.clone(), policy)));
            dirty.policies.insert(name.clone());
            dirty.slices.insert(name);
        });
        selected.all_pods(cache);
        dirty.gateways.extend(world.gateways.keys().cloned());
        let planner = Planner::new(world, ledger);
        dirty.addresses.extend(planner.addresses());
        dirty.moves = planner.moves().to_vec();
        (Self { planner, gateways, problems, selected, found, inside, families }, dirty)
    }

    /// True for addresses of nodes, pods, services and tunnels.
    pub(super) fn is_inside(&self, address: IpAddr) -> bool {
        self.inside.contains(address)
    }

    /// Applies changes to the model.
    pub(super) fn follow(
        &mut self,
        cache: &Cache,
        changed: &Changes,
        damping: &mut FlapDamping,
        now: Instant,
        dirty: &mut Dirty,
    ) {
        dirty.take(self.planner.change(Change::KeepUnused(cache.has_undecodable())));
        self.follow_nodes(cache, changed, damping, now, dirty);
        let regrouped = self.follow_gateways(cache, changed, dirty);
        self.follow_claims(cache, changed, dirty);
        self.follow_policies(cache, changed, regrouped, dirty);
        self.follow_pods(cache, changed, dirty);
    }

    /// Accepts nodes that were lost and have been ready long enough since.
    pub(super) fn end_damping(&mut self, cache: &Cache, damping: &mut FlapDamping, now: Instant, dirty: &mut Dirty) {
        let over: Vec<NodeName> =
            damping.waiting().filter(|(_, until)| *until <= now).map(|(node, _)| node.clone()).collect();
        self.nodes(cache, over, damping, now, dirty);
    }

    fn follow_nodes(
        &mut self,
        cache: &Cache,
        changed: &Changes,
        damping: &mut FlapDamping,
        now: Instant,
        dirty: &mut Dirty,
    ) {
        let names: BTreeSet<&String> = changed.nodes.iter().chain(&changed.tunnels).map(|key| &key.name).collect();
        dirty.tunnels.extend(names.iter().map(|name| (*name).clone()));
        let names = names.into_iter().map(|name| name.as_str().into()).collect();
        self.nodes(cache, names, damping, now, dirty);
    }

    /// Changes several nodes at once, so that no address moves twice.
    fn nodes(
        &mut self,
        cache: &Cache,
        names: Vec<NodeName>,
        damping: &mut FlapDamping,
        now: Instant,
        dirty: &mut Dirty,
    ) {
        let mut changes = Vec::new();
        for name in names {
            let now = node(cache, &name, damping, now);
            dirty.standby |= self.planner.node(&name) != now.as_ref();
            // The phase of a tunnel is shown by every gateway that selects the node.
            dirty.gateways.extend(self.planner.gateways_of(&name));
            changes.push((name, now));
        }
        dirty.take(self.planner.change_nodes(changes));
    }

    /// True when policies must be validated again, because the gateways they may use changed.
    fn follow_gateways(&mut self, cache: &Cache, changed: &Changes, dirty: &mut Dirty) -> bool {
        if changed.ranges || !changed.nodes.is_empty() || !changed.tunnels.is_empty() {
            let found = ranges::detect(cache);
            let inside = inside(cache, &found);
            if found == self.found && inside == self.inside && changed.gateways.is_empty() && !changed.ranges {
                return false;
            }
            dirty.info = true;
            (self.found, self.inside) = (found, inside);
        } else if changed.gateways.is_empty() {
            return false;
        }
        let now = checked(cache, self.families, &self.inside);
        let before = std::mem::replace(&mut self.gateways, now.clone());
        let names: BTreeSet<&GatewayName> = before.by_name.keys().chain(now.by_name.keys()).collect();
        for name in names {
            let (was, is) = (before.by_name.get(name), now.by_name.get(name));
            if was == is {
                continue;
            }
            dirty.gateways.insert(name.clone());
            if was.map(|was| &was.gateway) != is.map(|is| &is.gateway) {
                dirty.standby = true;
                dirty.take(self.planner.change(Change::Gateway(name.clone(), is.map(|is| is.gateway.clone()))));
            }
        }
        // Someone else may have overwritten a status.
        dirty.gateways.extend(changed.gateways.iter().map(|key| key.name.as_str().into()));
        before != now
    }

    fn follow_claims(&mut self, cache: &Cache, changed: &Changes, dirty: &mut Dirty) {
        for key in &changed.claims {
            let Some(address) = parse_claim_name(&key.name) else { continue };
            let claim = cache.claims.get(key);
            let (held, taken) = (claim.as_deref().and_then(held), claim.as_deref().is_some_and(taken));
            dirty.take(self.planner.change(Change::Taken(address, taken)));
            dirty.take(self.planner.change(Change::ObservedRecord(address, held)));
            dirty.addresses.insert(address);
            // A policy's `Programmed` condition follows from the state of its address.
            dirty.policies.extend(self.planner.users(address).cloned());
            dirty.gateways.extend(self.planner.planned(address).map(|placed| placed.record.gateway));
            if claim.is_none() {
                // A gateway that is being deleted can go after its last claim.
                cache.gateways.for_each(|key, gateway| {
                    if gateway.metadata.deletion_timestamp.is_some() {
                        dirty.gateways.insert(key.name.as_str().into());
                    }
                });
            }
        }
    }

    fn follow_policies(&mut self, cache: &Cache, changed: &Changes, regrouped: bool, dirty: &mut Dirty) {
        let mut keys: BTreeSet<(bool, Arc<Key>)> = changed.policies.iter().map(|key| (false, key.clone())).collect();
        keys.extend(changed.cluster_policies.iter().map(|key| (true, key.clone())));
        for namespace in &changed.namespaces {
            cache.policies.in_namespace(&namespace.name, |key, _| _ = keys.insert((false, key.clone())));
        }
        if regrouped {
            cache.policies.for_each(|key, _| _ = keys.insert((false, key.clone())));
            cache.cluster_policies.for_each(|key, _| _ = keys.insert((true, key.clone())));
        }
        for (of_cluster, key) in keys {
            let policy = cache.policies.get(&key).filter(|_| !of_cluster);
            let cluster_policy = cache.cluster_policies.get(&key).filter(|_| of_cluster);
            let view = policy.as_deref().map(PolicyView::from).or(cluster_policy.as_deref().map(PolicyView::from));
            let namespace = (!of_cluster).then(|| key.namespace.as_str().into());
            self.policy(cache, PolicyName { namespace, name: key.name.as_str().into() }, view, dirty);
        }
    }

    fn policy(&mut self, cache: &Cache, name: PolicyName, view: Option<PolicyView<'_>>, dirty: &mut Dirty) {
        dirty.policies.insert(name.clone());
        if self.selected.policy(cache, &name, view) {
            dirty.slices.insert(name.clone());
        }
        let recorded = self.planner.binding(&name).map(|binding| binding.gateway);
        let standing = view.map(|view| policy(view, &namespace_labels(cache, view), &self.gateways, recorded.as_ref()));
        let standing = standing.unwrap_or_default();
        match standing.problem {
            Some(problem) => self.problems.insert(name.clone(), problem),
            None => self.problems.remove(&name),
        };
        let uid = |policy: Option<&Policy>| policy.map(|policy| policy.uid.clone());
        let known = uid(self.planner.policy(&name)) == uid(standing.policy.as_ref());
        let own = standing.policy.as_ref().map(|policy| policy.gateway.clone());
        dirty.take(self.planner.change(Change::Policy(name.clone(), standing.policy)));
        // A policy that a stale list hid may have been granted an address by another leader meanwhile.
        if let (Some(view), Some(own)) = (view, own.filter(|_| !known))
            && let Some(granted) = granted_earlier(cache, view, &own)
        {
            dirty.take(self.planner.change(Change::ObservedBinding(name, Some(granted))));
        }
    }

    fn follow_pods(&mut self, cache: &Cache, changed: &Changes, dirty: &mut Dirty) {
        let mut pods = changed.pods.clone();
        for namespace in &changed.namespaces {
            cache.pods.in_namespace(&namespace.name, |key, _| _ = pods.insert(key.clone()));
        }
        for pod in &pods {
            dirty.slices.extend(self.selected.pod(cache, pod));
        }
        // The owner reference names the policy of a slice: a label value may be too short for the name.
        let owner = |metadata: &kube::api::ObjectMeta| {
            metadata.owner_references.iter().flatten().next().map(|owner| owner.name.as_str().into())
        };
        for key in &changed.slices {
            let policy = cache.slices.get(key).and_then(|slice| owner(&slice.metadata));
            dirty.slices.extend(policy.map(|name| PolicyName { namespace: Some(key.namespace.as_str().into()), name }));
        }
        for key in &changed.cluster_slices {
            let policy = cache.cluster_slices.get(key).and_then(|slice| owner(&slice.metadata));
            dirty.slices.extend(policy.map(|name| PolicyName { namespace: None, name }));
        }
    }
}

/// Visits the policies of both kinds.
pub(super) fn each_policy(cache: &Cache, mut visit: impl FnMut(PolicyView<'_>)) {
    cache.policies.for_each(|_, policy| visit(PolicyView::from(&**policy)));
    cache.cluster_policies.for_each(|_, policy| visit(PolicyView::from(&**policy)));
}

pub(super) fn checked(cache: &Cache, families: Families, inside: &AddressSet) -> Gateways {
    let seen = cache.gateways.all();
    gateways(seen.values().map(AsRef::as_ref), families, inside)
}

/// Addresses that no pool may hold: those of nodes, pods, services and tunnels.
pub(super) fn inside(cache: &Cache, found: &EgressClusterInfoStatus) -> AddressSet {
    let mut inside: AddressSet = ranges::all(found).filter_map(|text| text.parse::<Range>().ok()).collect();
    cache.tunnels.for_each(|_, tunnel| {
        let tunnel = tunnel.status.as_ref().and_then(|status| status.tunnel.as_ref());
        let texts = tunnel.into_iter().flat_map(|tunnel| [&tunnel.ipv4, &tunnel.ipv6]).flatten();
        texts.filter_map(|text| text.parse::<Range>().ok()).for_each(|range| inside.insert(range));
    });
    inside
}

/// None when the node does not exist.
fn node(cache: &Cache, name: &NodeName, damping: &mut FlapDamping, now: Instant) -> Option<Node> {
    let key = Key::of_cluster(name);
    let Some(node) = cache.nodes.get(&key) else {
        damping.forget(name);
        return None;
    };
    let ready = says_ready(&node) && phase(cache, name) == Phase::Ready;
    Some(Node { labels: labels(&node.metadata), ready: damping.update(name, ready, now), capacity: None })
}

/// The phase of a node's tunnel; one that does not exist is pending.
pub(super) fn phase(cache: &Cache, node: &str) -> Phase {
    let tunnel = cache.tunnels.get(&Key::of_cluster(node));
    tunnel.and_then(|tunnel| tunnel.status.as_ref()?.phase).unwrap_or_default()
}

/// The allocation that a claim records. A standby node that took over meanwhile counts.
fn held(claim: &AddressClaim) -> Option<AddressRecord> {
    let record = claim.spec.egress.as_ref()?;
    let mut held = AddressRecord {
        gateway: record.gateway.as_str().into(),
        pair: record.pair.as_deref().and_then(|pair| pair.parse().ok()),
        slot: record.slot,
        node: record.node.as_deref().map(NodeName::from),
        epoch: record.epoch,
    };
    let says = claim.status.as_ref().and_then(|status| status.egress.as_ref());
    if let Some(says) = says
        && let (Some(node), Some(epoch)) = (&says.node, says.epoch)
        && epoch > record.epoch
        && says.state == Some(HoldingState::Held)
        && record.standby.contains(node)
    {
        (held.node, held.epoch) = (Some(node.as_str().into()), epoch);
    }
    Some(held)
}

/// True when the address cannot be allocated: it has another use, or its claim is being deleted.
fn taken(claim: &AddressClaim) -> bool {
    claim.spec.egress.is_none() || claim.metadata.deletion_timestamp.is_some()
}

pub(super) fn namespace_labels(cache: &Cache, view: PolicyView<'_>) -> Labels {
    let Some(namespace) = view.metadata.namespace.clone().filter(|_| !view.of_cluster) else {
        return Labels::default();
    };
    let namespace = cache.namespaces.get(&Key::of_cluster(&namespace));
    namespace.map(|namespace| labels(&namespace.metadata)).unwrap_or_default()
}

/// Equal on every replica and after every restart: derived from the uid of `kube-system`.
fn seed(cache: &Cache) -> u64 {
    let system = cache.namespaces.get(&Key::of_cluster("kube-system"));
    xxh3_64(system.and_then(|namespace| namespace.metadata.uid.clone()).unwrap_or_default().as_bytes())
}
