//! How the Services and nodes of a remote fare, in numbers.

use std::collections::BTreeMap;

use portolan_api::mirror::UnmetService;
use portolan_core::mirror::{Decision, Reason, RemoteName, Row, ServiceName, Unmet};

use super::model::Model;

/// How the Services and nodes of a remote fare.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) nodes: usize,
    pub(super) usable_nodes: usize,
    pub(super) candidates: usize,
    pub(super) mirrored: usize,
    pub(super) frozen: usize,
    /// Every reason that was ever counted stays, so that its metric can go back to zero.
    pub(super) unmet: BTreeMap<Reason, usize>,
    /// Services with something unmet.
    pub(super) unmet_services: usize,
    /// The first of them.
    pub(super) first: Vec<UnmetService>,
    /// Writes that are yet to be made.
    pub(super) pending: usize,
}

impl Counts {
    pub(super) fn of(model: &Model, remote: &RemoteName) -> Self {
        let mut counts = Self {
            nodes: model.planner.world().remotes.get(remote).map_or(0, |remote| remote.nodes.len()),
            usable_nodes: model.planner.usable_nodes(remote),
            candidates: model.planner.candidates(remote),
            ..Self::default()
        };
        for (name, decision) in &model.decisions {
            counts.add(model, remote, name, decision);
        }
        for (name, decision) in &model.clusterset.decisions {
            counts.add_unmet(remote, name, &decision.unmet);
        }
        counts
    }

    fn add(&mut self, model: &Model, remote: &RemoteName, name: &ServiceName, decision: &Decision) {
        self.add_unmet(remote, name, &decision.unmet);
        if decision.remote.as_ref() != Some(remote) {
            return;
        }
        match decision.row {
            Row::Follow => self.mirrored += 1,
            Row::Frozen => self.frozen += 1,
            Row::Add
            | Row::UsersService
            | Row::Orphan
            | Row::NotOurs
            | Row::Nothing
            | Row::OtherRemote
            | Row::Unknown => {}
        }
        self.pending += usize::from(!decision.is_settled() && model.may_delete(decision));
    }

    fn add_unmet(&mut self, remote: &RemoteName, name: &ServiceName, unmet: &[Unmet]) {
        let mut is_unmet = false;
        for unmet in unmet.iter().filter(|unmet| unmet.remote.as_ref() == Some(remote)) {
            *self.unmet.entry(unmet.reason).or_default() += 1;
            is_unmet = true;
            if self.first.len() < MOST_NAMED {
                self.first.push(UnmetService {
                    namespace: name.namespace.to_string(),
                    name: name.name.to_string(),
                    reason: unmet.reason.as_str().to_owned(),
                    message: unmet.message.clone(),
                });
            }
        }
        self.unmet_services += usize::from(is_unmet);
    }
}

/// Services that a status names at most.
const MOST_NAMED: usize = 32;
