//! What every write of ipam is prepared from.

use std::net::Ipv4Addr;

use portolan_core::ipam::{Claim, State};

use super::super::model::Model;
use super::super::observe::Cache;
use super::super::validate;
use super::due::Due;
use super::ledger::Ledger;
use crate::runtime::store::Key;
use crate::runtime::write::Writer;

/// What writes are prepared from, and sent with.
#[derive(Clone, Copy)]
pub(super) struct Acting<'a> {
    pub(super) writer: &'a Writer,
    pub(super) cache: &'a Cache,
    /// What the plan was made from. An object that differs from it by now waits for the next plan.
    pub(super) model: &'a Model,
    pub(super) ledger: &'a Ledger,
    pub(super) due: &'a Due,
}

impl Acting<'_> {
    /// A claim as the store shows it by now.
    pub(super) fn claim(&self, address: Ipv4Addr) -> Option<Claim> {
        validate::claim(&*self.cache.claims.get(&Key::of_cluster(&address.to_string()))?)
    }

    /// True if there are such claims, and all of them are in service and stay as they are.
    pub(super) fn is_settled(&self, concerns: impl Fn(&Claim) -> bool) -> bool {
        let mut claims = self.model.journal.claims.iter().filter(|(_, claim)| concerns(claim)).peekable();
        let stays = |address: &Ipv4Addr| !self.due.claims.contains_key(address);
        claims.peek().is_some()
            && claims.all(|(address, claim)| claim.status.state == State::Published && stays(address))
    }
}
