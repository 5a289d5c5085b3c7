//! Prefixes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::super::prefix::Prefix;
use super::super::super::problem::Problem;
use super::super::super::types::World;
use super::super::super::verdict::{ConditionKind, Verdicts};
use super::super::result::{Plan, PrefixPlan};
use super::super::services::Services;

pub(in super::super) fn prefixes(
    world: &World,
    overlaps: &BTreeMap<Arc<str>, Arc<str>>,
    services: &Services<'_>,
    plan: &mut Plan,
) {
    for (name, prefix) in &world.prefixes {
        let invalid = prefix.prefix.as_ref().err().map(|error| Problem::Invalid(error.to_string().into()));
        let overlap = overlaps.get(name).map(|other| Problem::PoolOverlap { other: Arc::clone(other) });
        let problem = invalid.or(overlap).or_else(|| prefix.problem.clone());
        let verdicts = Verdicts::of([(ConditionKind::Accepted, problem.as_ref())]).summarised();
        let capacity = prefix.prefix.as_ref().map_or(0, Prefix::capacity);
        plan.prefixes.insert(Arc::clone(name), PrefixPlan { verdicts, capacity, ..PrefixPlan::default() });
    }
    for claim in services.addresses.claims.values() {
        let Some(prefix) = plan.prefixes.get_mut(&claim.pool) else { continue };
        if claim.holders.is_empty() {
            prefix.quarantined += 1;
        } else {
            prefix.in_use += 1;
        }
    }
}
