//! Addresses that a namespace does not have yet: which node and which address each of them gets.

use std::net::Ipv4Addr;

use super::action::Step;
use super::cloud::Zone;
use super::decide::HeldBack;
use super::draft::Draft;
use super::index::NodeId;
use super::journal::{Claim, ClaimSpec, ClaimStatus, Owner, OwnerKind, State};
use super::reason::Reason;
use super::room::usable_range;
use super::step::{in_use, no_node};
use super::types::{Namespace, NamespaceName};
use crate::pick;

/// An address that a namespace does not have yet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wish<'a> {
    /// Any address of a zone.
    Zone(&'a Zone),
    /// This address.
    Address(Ipv4Addr),
}

/// How a wish is met.
#[derive(Debug)]
pub(super) struct Placement {
    node: NodeId,
    address: Ipv4Addr,
    requested: bool,
    /// It is there already.
    adopted: bool,
}

/// Why a wish is not met.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Not before something else happened that is under way.
    Wait,
    /// Not before something changes.
    Unmet(Reason, String),
}

impl Refusal {
    fn of(failed: &HeldBack<'_>) -> Self {
        let (reason, message) = failed.report();
        Self::Unmet(reason, message)
    }
}

impl Draft<'_> {
    /// Finds places for all wishes, or says why there is none.
    pub(super) fn place(
        &mut self,
        name: &NamespaceName,
        namespace: &Namespace,
        wishes: &[Wish<'_>],
        barred: &[NodeId],
        held_back: &[HeldBack<'_>],
    ) -> Vec<Result<Placement, Refusal>> {
        let mut barred = [barred, &self.chosen_nodes].concat();
        let mut placements = Vec::with_capacity(wishes.len());
        for wish in wishes {
            let placement = match wish {
                Wish::Zone(zone) => match held_back.iter().find(|failed| failed.zone == *zone) {
                    Some(failed) => Err(Refusal::of(failed)),
                    None => self.place_in_zone(zone, namespace, &barred),
                },
                Wish::Address(address) => self.place_address(*address, name, namespace, &barred),
            };
            barred.extend(placement.as_ref().ok().map(|placement| placement.node));
            placements.push(placement);
        }
        placements
    }

    /// Records a placement.
    pub(super) fn reserve(&mut self, name: &NamespaceName, namespace: &Namespace, placement: &Placement) {
        let Placement { node, address, requested, adopted } = *placement;
        let Some(target) = self.index.target(node) else { return };
        let Some(host) = self.index.nodes[node].host else { return };
        self.room.take(node, address);
        self.chosen_nodes.push(node);
        let spec = ClaimSpec {
            owner: Owner { kind: OwnerKind::Namespace, name: name.clone(), uid: namespace.uid.clone() },
            requested,
            zone: host.zone.clone(),
            subnet: host.subnet.clone(),
            node: target.node.clone(),
        };
        let mut reserved = ClaimStatus::reserved(self.index.world.now);
        // a call for a former owner may still arrive
        let before = self.index.journal.claims.get(&address);
        reserved.earlier.extend(before.into_iter().flat_map(|claim| claim.status.calls().cloned()));
        let (status, step) = if adopted {
            let node = Some(target.node.clone());
            let state = State::Published;
            (ClaimStatus { state, node, target: Some(target), served: true, ..reserved }, Step::Adopt)
        } else {
            (reserved, Step::Reserve)
        };
        let claim = Claim { spec, status, deleting: false };
        if self.index.journal.claims.contains_key(&address) {
            self.update(address, claim, step);
        } else {
            self.create(address, claim, step);
        }
    }

    fn place_in_zone(&mut self, zone: &Zone, namespace: &Namespace, barred: &[NodeId]) -> Result<Placement, Refusal> {
        let drawn = self.room.draw(self.index, zone, barred, &namespace.uid);
        let (node, address) = drawn.map_err(|reason| Refusal::Unmet(reason, no_node(reason, zone, "an address")))?;
        Ok(Placement { node, address, requested: false, adopted: false })
    }

    fn place_address(
        &self,
        address: Ipv4Addr,
        name: &NamespaceName,
        namespace: &Namespace,
        barred: &[NodeId],
    ) -> Result<Placement, Refusal> {
        let invalid = |message: String| Refusal::Unmet(Reason::InvalidRequest, message);
        let taken = || Refusal::Unmet(Reason::AddressInUse, in_use(address));
        let Some(subnet) = self.index.subnet_of(address) else {
            return Err(invalid(format!(
                "{address} is in no subnet of the cluster's nodes: request one of their subnets"
            )));
        };
        let subnet = &subnet.what;
        let bits = address.to_bits();
        if usable_range(subnet.cidr).is_none_or(|(first, last)| !(first..=last).contains(&bits)) {
            return Err(invalid(format!("{address} is reserved by the cloud in {}: request another one", subnet.cidr)));
        }
        if self.index.journal.other_use.contains(&address) || self.room.is_chosen(address) {
            return Err(taken());
        }
        if let Some(claim) = self.index.journal.claims.get(&address) {
            let own = claim.spec.owner.uid == namespace.uid;
            let reusable = claim.is_cooling() && !claim.deleting && claim.status.rolled_back.is_none();
            let leaving = claim.status.state == State::Releasing || own;
            if !reusable {
                return Err(if leaving { Refusal::Wait } else { taken() });
            }
        }
        if subnet.used.contains(&address) || !self.index.shown(address).is_empty() {
            let node = self.index.in_service(address, name).ok_or_else(taken)?;
            if barred.contains(&node) {
                let reason = Reason::NotEnoughNodes;
                return Err(Refusal::Unmet(reason, no_node(reason, &subnet.zone, address)));
            }
            return Ok(Placement { node, address, requested: true, adopted: true });
        }
        let nodes = self.index.by_subnet.get(&subnet.id).map_or(&[][..], Vec::as_slice);
        let key = pick::hash(self.index.world.seed, &[namespace.uid.as_bytes(), subnet.zone.as_bytes()]);
        let node = self.room.choose(nodes, barred, key);
        let node = node.map_err(|reason| Refusal::Unmet(reason, no_node(reason, &subnet.zone, address)))?;
        Ok(Placement { node, address, requested: true, adopted: false })
    }
}
