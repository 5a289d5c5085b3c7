//! Groups, and what goes with an account.

use std::collections::BTreeMap;

use super::super::super::problem::Problem;
use super::super::super::types::{World, namespace_of};
use super::super::super::verdict::{ConditionKind, Verdicts};
use super::super::result::{GroupPlan, Plan};

/// Groups, and what goes with an account.
pub(in super::super) fn groups(world: &World, plan: &mut Plan) {
    let mut going = BTreeMap::new();
    for (name, account) in &world.accounts {
        if account.identity.is_terminating() {
            let left = plan.load_balancers.keys().filter(|object| *object.namespace == namespace_of(name)).count();
            if account.is_deleted_with_contents || left == 0 {
                going.insert(namespace_of(name), left);
            }
        }
    }
    for (name, planned) in &mut plan.load_balancers {
        let is_live = world.load_balancers.get(name).is_some_and(|object| !object.identity.is_terminating());
        planned.is_deleted = is_live && going.contains_key(&*name.namespace);
    }
    for (name, group) in &world.groups {
        let missing = !world.prefixes.contains_key(&group.prefix);
        let unresolved = missing.then(|| Problem::PrefixMissing { prefix: group.prefix.clone() });
        let verdicts = Verdicts::of([
            (ConditionKind::Accepted, group.problem.as_ref()),
            (ConditionKind::ResolvedRefs, unresolved.as_ref()),
        ]);
        let is_deleted = !group.identity.is_terminating() && going.get(&*name.namespace) == Some(&0);
        plan.groups.insert(name.clone(), GroupPlan { verdicts: verdicts.summarised(), is_deleted });
    }
}
