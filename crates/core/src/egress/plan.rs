//! The complete plan, with gateway views and standbys read from the planner's state.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::placement::{CandidateNode, NodeId, Nodes, PlacementRequest, rank};
use super::planner::Planner;
use super::policies::PolicyId;
use super::state::GatewayState;
use super::summary::GatewayUsage;
use super::{Eip, EipUsers, GatewayName, GatewayView, Ledger, NodeName, Plan, PolicyName, World};

/// Standby nodes per address.
const STANDBYS: usize = 3;

/// Plans a world from scratch. Total and deterministic.
pub fn plan(world: &World, ledger: &Ledger) -> Plan {
    Planner::new(world.clone(), ledger.clone()).plan()
}

impl Planner {
    /// All decisions; the moves are those of the last round.
    pub fn plan(&self) -> Plan {
        let mut plan =
            Plan { recycled: self.recycled(), moves: self.moves.clone(), bindings: self.bindings(), ..Plan::default() };
        let unmet = |name: &PolicyName| Some((name.clone(), self.unmet(name)?));
        plan.unmet = self.policies.iter().filter_map(|(_, entry)| unmet(&entry.name)).collect();
        for (gateway, state) in &self.gateways {
            plan.views.insert(gateway.clone(), self.view_of(state, usize::MAX));
            let in_service = state.allocations.values().filter(|allocation| !allocation.users.is_empty());
            for address in in_service.flat_map(|allocation| allocation.recorded.addresses()) {
                plan.addresses.extend(self.planned(address).map(|placed| (address, placed)));
            }
        }
        let mut simulation = Simulation::of(self);
        for node in self.nodes.ids() {
            for AfterLoss { eip, standby, .. } in self.after_loss(node, None, &mut simulation) {
                for address in eip.addresses() {
                    if let Some(placed) = plan.addresses.get_mut(&address) {
                        placed.standby.clone_from(&standby);
                    }
                }
            }
        }
        plan
    }

    /// The view of a gateway, with at most `limit` policy names in total.
    pub fn view(&self, gateway: &str, limit: usize) -> Option<GatewayView> {
        self.gateways.get(gateway).map(|state| self.view_of(state, limit))
    }

    /// The nodes that take over each address of a node if it is lost, first choice first.
    pub fn standby(&self, gateway: &GatewayName, node: &str) -> BTreeMap<IpAddr, Vec<NodeName>> {
        let Some(node) = self.nodes.find(node) else { return BTreeMap::new() };
        let all = self
            .after_loss(node, Some(gateway), &mut Simulation::of(self))
            .into_iter()
            .filter(|one| one.gateway == *gateway);
        all.flat_map(|one| one.eip.addresses().map(move |address| (address, one.standby.clone()))).collect()
    }

    fn view_of(&self, state: &GatewayState, limit: usize) -> GatewayView {
        let GatewayUsage { total, free, granted: policies, .. } = GatewayUsage::of(state);
        let mut candidates: Vec<(&NodeName, NodeId)> =
            state.candidates.iter().map(|candidate| (self.nodes.name(candidate.node), candidate.node)).collect();
        candidates.sort_unstable();
        let mut left = limit;
        let mut nodes = BTreeMap::new();
        for (name, node) in candidates {
            let mut entries = Vec::new();
            if let Some(users) = state.node_address_users.get(&Some(node)) {
                let ids: Vec<PolicyId> = users.iter().map(|order| order.policy).collect();
                entries.push(self.entry(Eip::default(), &ids, &mut left));
            }
            for eip in state.by_node.get(&Some(node)).into_iter().flatten() {
                entries.push(self.entry(*eip, &state.allocations[eip].users, &mut left));
            }
            nodes.insert(name.clone(), entries);
        }
        GatewayView { nodes, total, free, policies }
    }

    fn entry(&self, eip: Eip, users: &[PolicyId], left: &mut usize) -> EipUsers {
        let policies: Vec<PolicyName> =
            self.policies.names(users.iter().copied(), *left).into_iter().cloned().collect();
        *left -= policies.len();
        EipUsers { eip, policies }
    }

    /// Where the addresses of a node would go if it were lost: the same procedure as after a real loss, on a copy.
    /// Node capacity is shared by all gateways, so where it is limited, gateways up to `last` are simulated in order.
    fn after_loss(&self, lost: NodeId, last: Option<&GatewayName>, simulation: &mut Simulation) -> Vec<AfterLoss> {
        let mut found = Vec::new();
        let mut taken = Vec::new();
        for (gateway, state) in &self.gateways {
            let is_simulated =
                last.is_none_or(|last| if simulation.nodes.is_some() { gateway <= last } else { gateway == last });
            let Some(eips) = state.by_node.get(&Some(lost)).filter(|_| is_simulated) else { continue };
            let candidates = simulation.candidates.entry(gateway.clone()).or_insert_with(|| state.candidates.clone());
            let at = candidates.binary_search_by_key(&lost, |candidate| candidate.node);
            if let Ok(at) = at {
                candidates[at].ready = false;
            }
            let mut loaded = Vec::new();
            for eip in state.in_order(eips.iter().copied()) {
                let excluded = |node| self.is_node_excluded(eip, node);
                let request =
                    PlacementRequest { key: state.key(eip, self.world.seed), uses_capacity: true, excluded: &excluded };
                let chosen = rank(
                    state.spec.mode,
                    candidates,
                    simulation.nodes.as_ref().unwrap_or(&self.nodes),
                    request,
                    STANDBYS,
                );
                if let Some(first) = chosen.first() {
                    let load = state.allocations[&eip].load();
                    candidates[*first].load += load;
                    candidates[*first].eips += 1;
                    loaded.push((*first, load));
                    if let Some(nodes) = &mut simulation.nodes {
                        nodes.move_address(None, Some(candidates[*first].node));
                        taken.push(candidates[*first].node);
                    }
                }
                let names = chosen.iter().map(|place| self.nodes.name(candidates[*place].node).clone());
                found.push(AfterLoss { gateway: gateway.clone(), eip, standby: names.collect() });
            }
            for (place, load) in loaded {
                candidates[place].load -= load;
                candidates[place].eips -= 1;
            }
            if let Ok(at) = at {
                candidates[at].ready = true;
            }
        }
        if let Some(nodes) = &mut simulation.nodes {
            for node in taken {
                nodes.move_address(Some(node), None);
            }
        }
        found
    }
}

/// The nodes that would take over an address.
struct AfterLoss {
    gateway: GatewayName,
    eip: Eip,
    standby: Vec<NodeName>,
}

/// State that a simulated loss changes and restores.
struct Simulation {
    candidates: BTreeMap<GatewayName, Vec<CandidateNode>>,
    /// Only where a node has a capacity.
    nodes: Option<Nodes>,
}

impl Simulation {
    fn of(planner: &Planner) -> Self {
        Self { candidates: BTreeMap::new(), nodes: planner.nodes.any_capacity().then(|| planner.nodes.clone()) }
    }
}
