//! The whole plan, and what is read out of the planner's state for it: views and standbys.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::choose::{NodeId, Nodes, Seeker, Site, rank};
use super::planner::Planner;
use super::policies::PolicyId;
use super::state::Gate;
use super::summary::GatewayUsage;
use super::{Eip, EipUsers, GatewayName, GatewayView, Ledger, NodeName, Plan, PolicyName, World};

/// How many nodes stand by for an address.
const STANDBYS: usize = 3;

/// What should be, given what is: total, and the same for the same input.
pub fn plan(world: &World, ledger: &Ledger) -> Plan {
    Planner::new(world.clone(), ledger.clone()).plan()
}

impl Planner {
    /// Everything that was decided; its moves are those of the last decision.
    pub fn plan(&self) -> Plan {
        let mut plan =
            Plan { recycled: self.recycled(), moves: self.moves.clone(), bindings: self.bindings(), ..Plan::default() };
        let unmet = |name: &PolicyName| Some((name.clone(), self.unmet(name)?));
        plan.unmet = self.policies.iter().filter_map(|(_, row)| unmet(&row.name)).collect();
        for (gateway, gate) in &self.gates {
            plan.views.insert(gateway.clone(), self.view_of(gate, usize::MAX));
            let in_service = gate.seats.values().filter(|seat| !seat.users.is_empty());
            for address in in_service.flat_map(|seat| seat.recorded.addresses()) {
                plan.addresses.extend(self.planned(address).map(|placed| (address, placed)));
            }
        }
        let mut copy = Copy::of(self);
        for node in self.nodes.ids() {
            for (_, eip, standby) in self.after_loss(node, None, &mut copy) {
                for address in eip.addresses() {
                    if let Some(placed) = plan.addresses.get_mut(&address) {
                        placed.standby.clone_from(&standby);
                    }
                }
            }
        }
        plan
    }

    /// What a gateway shows, with at most `limit` policies named in all.
    pub fn view(&self, gateway: &str, limit: usize) -> Option<GatewayView> {
        self.gates.get(gateway).map(|gate| self.view_of(gate, limit))
    }

    /// Who takes over each address of one owner, first choice first, if that owner is lost.
    pub fn standby(&self, gateway: &GatewayName, node: &str) -> BTreeMap<IpAddr, Vec<NodeName>> {
        let Some(node) = self.nodes.find(node) else { return BTreeMap::new() };
        let all =
            self.after_loss(node, Some(gateway), &mut Copy::of(self)).into_iter().filter(|(of, _, _)| of == gateway);
        all.flat_map(|(_, eip, standby)| eip.addresses().map(move |address| (address, standby.clone()))).collect()
    }

    fn view_of(&self, gate: &Gate, limit: usize) -> GatewayView {
        let GatewayUsage { total, free, granted: policies, .. } = GatewayUsage::of(gate);
        let mut sites: Vec<(&NodeName, NodeId)> =
            gate.sites.iter().map(|site| (self.nodes.name(site.node), site.node)).collect();
        sites.sort_unstable();
        let mut room = limit;
        let mut nodes = BTreeMap::new();
        for (name, node) in sites {
            let mut entries = Vec::new();
            if let Some(locals) = gate.locals.get(&Some(node)) {
                let ids: Vec<PolicyId> = locals.iter().map(|(_, _, id)| *id).collect();
                entries.push(self.entry(Eip::default(), &ids, &mut room));
            }
            for eip in gate.by_node.get(&Some(node)).into_iter().flatten() {
                entries.push(self.entry(*eip, &gate.seats[eip].users, &mut room));
            }
            nodes.insert(name.clone(), entries);
        }
        GatewayView { nodes, total, free, policies }
    }

    fn entry(&self, eip: Eip, users: &[PolicyId], room: &mut usize) -> EipUsers {
        let policies: Vec<PolicyName> =
            self.policies.names(users.iter().copied(), *room).into_iter().cloned().collect();
        *room -= policies.len();
        EipUsers { eip, policies }
    }

    /// Where the addresses of a node would go if it were lost: the orphans' own procedure on a copy. Room on nodes is
    /// shared by all gateways, so where it is bounded, gateways before `last` in order go first, as they really would.
    fn after_loss(
        &self,
        lost: NodeId,
        last: Option<&GatewayName>,
        copy: &mut Copy,
    ) -> Vec<(GatewayName, Eip, Vec<NodeName>)> {
        let mut found = Vec::new();
        let mut taken = Vec::new();
        for (gateway, gate) in &self.gates {
            let concerned =
                last.is_none_or(|last| if copy.nodes.is_some() { gateway <= last } else { gateway == last });
            let Some(eips) = gate.by_node.get(&Some(lost)).filter(|_| concerned) else { continue };
            let sites = copy.sites.entry(gateway.clone()).or_insert_with(|| gate.sites.clone());
            let at = sites.binary_search_by_key(&lost, |site| site.node);
            if let Ok(at) = at {
                sites[at].ready = false;
            }
            let mut loaded = Vec::new();
            for eip in gate.in_order(eips.iter().copied()) {
                let not = |node| self.is_barred(eip, node);
                let seeker = Seeker { key: gate.key(eip, self.world.seed), takes_room: true, not: &not };
                let chosen = rank(gate.spec.mode, sites, copy.nodes.as_ref().unwrap_or(&self.nodes), seeker, STANDBYS);
                if let Some(first) = chosen.first() {
                    let load = gate.seats[&eip].load();
                    sites[*first].load += load;
                    sites[*first].eips += 1;
                    loaded.push((*first, load));
                    if let Some(nodes) = &mut copy.nodes {
                        nodes.rehouse(None, Some(sites[*first].node));
                        taken.push(sites[*first].node);
                    }
                }
                let names = chosen.iter().map(|place| self.nodes.name(sites[*place].node).clone());
                found.push((gateway.clone(), eip, names.collect()));
            }
            for (place, load) in loaded {
                sites[place].load -= load;
                sites[place].eips -= 1;
            }
            if let Ok(at) = at {
                sites[at].ready = true;
            }
        }
        if let Some(nodes) = &mut copy.nodes {
            for node in taken {
                nodes.rehouse(Some(node), None);
            }
        }
        found
    }
}

/// What a simulated loss may change, and puts back.
struct Copy {
    sites: BTreeMap<GatewayName, Vec<Site>>,
    /// Only where room is bounded.
    nodes: Option<Nodes>,
}

impl Copy {
    fn of(planner: &Planner) -> Self {
        Self { sites: BTreeMap::new(), nodes: planner.nodes.any_capacity().then(|| planner.nodes.clone()) }
    }
}
