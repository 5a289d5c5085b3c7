//! How often attempts to serve a namespace failed in a row: what `egress_handle_failure` shows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use portolan_core::ipam::{NamespaceName, OwnerKind, Plan, State};

use super::metrics::Metrics;
use super::model::Model;

/// Failures in a row, of namespaces that ask for addresses or still have some.
#[derive(Default)]
pub(super) struct Failures {
    counts: BTreeMap<NamespaceName, i64>,
    /// What claims recorded before this term is counted.
    rebuilt: bool,
}

/// What the claims of a namespace come to.
#[derive(Clone, Copy)]
struct Standing {
    published: bool,
    attempts: u32,
}

impl Failures {
    /// Counts the attempts that failed for these addresses, one for each namespace, and shows what changed.
    pub(super) fn follow(&mut self, metrics: &Metrics, model: &Model, plan: &Plan, failed: &BTreeSet<Ipv4Addr>) {
        let claims = &model.journal.claims;
        let mut standings: BTreeMap<&NamespaceName, Standing> = BTreeMap::new();
        for claim in
            claims.values().filter(|claim| claim.spec.owner.kind == OwnerKind::Namespace && !claim.is_cooling())
        {
            let standing = standings.entry(&claim.spec.owner.name).or_insert(Standing { published: true, attempts: 0 });
            standing.published &= claim.status.state == State::Published;
            standing.attempts = standing.attempts.max(claim.status.attempts);
        }
        let failed: BTreeSet<&NamespaceName> =
            failed.iter().filter_map(|address| Some(&claims.get(address)?.spec.owner.name)).collect();
        let unmet: BTreeSet<&NamespaceName> =
            plan.unmet.iter().filter(|unmet| !unmet.reason.is_notice()).map(|unmet| &unmet.namespace).collect();
        for (name, namespace) in &model.world.namespaces {
            let standing = standings.get(name).copied();
            let before = self.counts.get(name).copied();
            if !namespace.opted_in && standing.is_none() && before.is_none() {
                continue;
            }
            let mut count = before.unwrap_or_default();
            if !self.rebuilt {
                count = count.max(standing.map_or(0, |standing| i64::from(standing.attempts)));
            }
            if failed.contains(name) {
                count += 1;
            }
            let is_served = match standing {
                Some(standing) => standing.published,
                None => !namespace.opted_in,
            };
            if unmet.contains(name) {
                count = count.max(1);
            } else if is_served {
                count = 0;
            }
            if before != Some(count) {
                self.counts.insert(name.clone(), count);
                metrics.failures(name, Some(count));
            }
        }
        let gone = self.counts.extract_if(.., |name, _| !model.world.namespaces.contains_key(name));
        gone.for_each(|(name, _)| metrics.failures(&name, None));
        self.rebuilt = true;
    }
}
