//! What holds for the plan of every world, settled or not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::lab::Lab;
use super::model::drive;
use crate::ipam::*;

type Law = fn(&Lab, &Plan) -> bool;

const LAWS: [(&str, Law); 9] = [
    ("planning again gives the same", |lab, plan| lab.plan() == *plan),
    ("an object is written once, and a claim is not written and called about at once", |_, plan| {
        let objects = plan.actions.iter().flat_map(objects).collect::<Vec<_>>();
        objects.iter().collect::<BTreeSet<_>>().len() == objects.len()
    }),
    ("a bad namespace changes no other namespace's part", |lab, plan| {
        let mut world = lab.world.clone();
        let bad = Namespace { opted_in: true, egressips: Some("no address".into()), ..Namespace::default() };
        world.namespaces.insert("zz-bad".into(), bad);
        let mut with = super::super::plan(&world, &lab.journal, &lab.calls);
        with.actions.retain(|action| !objects(action).contains(&"Namespace zz-bad".to_owned()));
        with.unmet.retain(|unmet| &*unmet.namespace != "zz-bad");
        with == *plan
    }),
    ("addresses are drawn on the node with the fewest", |lab, plan| {
        let first = created(plan).next().filter(|write| !write.claim.spec.requested && moved(plan).next().is_none());
        first.is_none_or(|write| is_fewest(lab, write))
    }),
    ("nothing is drawn that somebody has or names", |lab, plan| {
        created(plan).filter(|write| !write.claim.spec.requested).all(|write| {
            let cloud = lab.world.cloud.as_ref().unwrap();
            let used = cloud.subnets.values().any(|subnet| subnet.what.used.contains(&write.address));
            !used && !lab.journal.other_use.contains(&write.address)
        })
    }),
    ("hosts are in the subnet of the address", |lab, plan| {
        written(plan).filter(|write| write.step != Step::Release && write.step != Step::RollBack).all(|write| {
            let spec = &write.claim.spec;
            let unchanged = lab.journal.claims.get(&write.address).is_some_and(|claim| claim.spec == *spec);
            let instance = lab.world.nodes.get(&spec.node).and_then(|node| node.instance.as_ref());
            let seen = instance.and_then(|instance| lab.world.cloud.as_ref()?.nodes.get(instance));
            unchanged || seen.is_some_and(|seen| seen.what.subnet == spec.subnet)
        })
    }),
    ("a new address finds room on its node", |lab, plan| {
        let mut new: BTreeMap<&NodeName, usize> = BTreeMap::new();
        for write in created(plan).filter(|write| write.step == Step::Reserve) {
            *new.entry(&write.claim.spec.node).or_default() += 1;
        }
        new.into_iter().all(|(node, new)| new <= room(lab, node))
    }),
    ("an address that is where it should be stays", |lab, plan| {
        moved(plan).all(|write| {
            let claim = &lab.journal.claims[&write.address];
            let node = &lab.world.nodes.get(&claim.spec.node);
            let settled = claim.status.state == State::Published && node.is_some_and(|node| is_whole(lab, node, claim));
            let shown = node.is_some_and(|node| shows(lab, node.instance.as_ref(), write.address));
            !(settled && shown)
        })
    }),
    ("what is taken is shown on an interface of ours", |lab, plan| {
        plan.actions.iter().all(|action| match action {
            Action::Call(call) if call.kind == CallKind::Take => call
                .addresses
                .iter()
                .all(|address| lab.cloud.instances.keys().any(|instance| shows(lab, Some(instance), *address))),
            Action::Call(_)
            | Action::CreateClaim(_)
            | Action::UpdateClaim(_)
            | Action::ConfirmClaim(_)
            | Action::DeleteClaim(_)
            | Action::SetHostSubnet { .. }
            | Action::SetNetNamespace { .. }
            | Action::AnnotateNamespace { .. } => true,
        })
    }),
];

proptest! {
    #[test]
    fn every_plan_keeps_every_law(seed in any::<u64>(), turns in 0..40usize) {
        let mut lab = drive(seed, turns, false);
        if lab.world.cloud.is_none() {
            lab.describe();
        }
        let plan = lab.plan();
        for (law, holds) in LAWS {
            prop_assert!(holds(&lab, &plan), "broken: {law}\n{plan:#?}");
        }
    }
}

/// Names of what an action writes or calls about.
fn objects(action: &Action) -> Vec<String> {
    match action {
        Action::CreateClaim(write) | Action::UpdateClaim(write) | Action::ConfirmClaim(write) => {
            vec![format!("Claim {}", write.address)]
        }
        Action::DeleteClaim(address) => vec![format!("Claim {address}")],
        Action::Call(call) => call.addresses.iter().map(|address| format!("Claim {address}")).collect(),
        Action::SetHostSubnet { name, .. } => vec![format!("HostSubnet {name}")],
        Action::SetNetNamespace { name, .. } => vec![format!("NetNamespace {name}")],
        Action::AnnotateNamespace { name, .. } => vec![format!("Namespace {name}")],
    }
}

fn written(plan: &Plan) -> impl Iterator<Item = &ClaimWrite> {
    plan.actions.iter().filter_map(|action| match action {
        Action::CreateClaim(write) | Action::UpdateClaim(write) | Action::ConfirmClaim(write) => Some(write),
        Action::DeleteClaim(_)
        | Action::Call(_)
        | Action::SetHostSubnet { .. }
        | Action::SetNetNamespace { .. }
        | Action::AnnotateNamespace { .. } => None,
    })
}

fn created(plan: &Plan) -> impl Iterator<Item = &ClaimWrite> {
    written(plan).filter(|write| matches!(write.step, Step::Reserve | Step::Adopt))
}

fn moved(plan: &Plan) -> impl Iterator<Item = &ClaimWrite> {
    written(plan).filter(|write| matches!(write.step, Step::Move | Step::Repair | Step::Block))
}

fn shows(lab: &Lab, instance: Option<&InstanceId>, address: Ipv4Addr) -> bool {
    let cloud = lab.world.cloud.as_ref().unwrap();
    let seen = instance.and_then(|instance| cloud.nodes.get(instance));
    let interface = seen.and_then(|seen| seen.what.interface.as_ref());
    interface.is_some_and(|interface| interface.secondary.contains(&address))
}

/// Nothing is wrong with the node, by the letter of the specification.
fn is_whole(lab: &Lab, node: &Node, claim: &Claim) -> bool {
    let host = lab.world.host_subnets.get(&claim.spec.node);
    let cloud = lab.world.cloud.as_ref().unwrap();
    let seen = node.instance.as_ref().and_then(|instance| cloud.nodes.get(instance));
    let ready = node.not_ready_since.is_none_or(|since| lab.world.now < since + lab.world.options.node_grace);
    let running = seen.is_some_and(|seen| seen.what.state == InstanceState::Running);
    node.compute && !node.deleting && ready && running && host.is_some_and(|host| !host.egress_cidrs)
}

fn room(lab: &Lab, node: &NodeName) -> usize {
    let cloud = lab.world.cloud.as_ref().unwrap();
    let instance = lab.world.nodes[node].instance.as_ref().unwrap();
    let seen = &cloud.nodes[instance].what;
    let secondary = &seen.interface.as_ref().unwrap().secondary;
    let ours = lab.journal.claims.iter().filter(|(_, claim)| claim.nodes().any(|of| of == node));
    let all: BTreeSet<Ipv4Addr> = secondary.iter().copied().chain(ours.map(|(address, _)| *address)).collect();
    usize::from(seen.address_limit).saturating_sub(1 + all.len())
}

fn is_fewest(lab: &Lab, write: &ClaimWrite) -> bool {
    let spec = &write.claim.spec;
    let load = |node: &NodeName| {
        lab.journal
            .claims
            .values()
            .filter(|claim| claim.spec.node == *node && claim.nodes().any(|of| of == node))
            .count()
    };
    let cloud = lab.world.cloud.as_ref().unwrap();
    let own = |node: &NodeName| {
        let claims = lab.journal.claims.values().filter(|claim| claim.spec.owner.name == spec.owner.name);
        claims.flat_map(Claim::nodes).any(|of| of == node)
    };
    lab.world.nodes.iter().all(|(name, node)| {
        let zone = node.instance.as_ref().and_then(|instance| cloud.nodes.get(instance)).map(|seen| &seen.what.zone);
        let fits = zone == Some(&spec.zone)
            && node.not_ready_since.is_none()
            && is_whole(
                lab,
                node,
                &Claim { spec: ClaimSpec { node: name.clone(), ..spec.clone() }, ..write.claim.clone() },
            );
        !fits || own(name) || room(lab, name) == 0 || load(&spec.node) <= load(name)
    })
}
