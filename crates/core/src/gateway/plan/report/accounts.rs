//! Accounts: their conditions, their namespaces, and how they go.

use std::sync::Arc;

use super::super::super::problem::Problem;
use super::super::super::reserve::Parent;
use super::super::super::types::{Account, PROVIDER_NAMESPACE, World, namespace_of};
use super::super::super::verdict::{ConditionKind, Verdict, Verdicts};
use super::super::accounts::Accounts;
use super::super::result::{AccountPlan, FinalizerChange, NamespaceChange, Plan};
use super::super::services::Services;

pub(in super::super) fn accounts(world: &World, accounts: &Accounts, services: &Services<'_>, plan: &mut Plan) {
    if !world.namespaces.contains_key(PROVIDER_NAMESPACE) {
        plan.namespaces.insert(PROVIDER_NAMESPACE.into(), NamespaceChange::Create);
    }
    for (name, account) in &world.accounts {
        let namespace: Arc<str> = namespace_of(name).into();
        let left = services.by_account.get(name).map_or(0, |services| services.count);
        let (parent, is_urgent) = parent(services, name, &account.services);
        let mut planned = AccountPlan { services: parent, is_urgent, ..AccountPlan::default() };
        let mut problem = accounts.problems.get(name).cloned();
        if account.identity.is_terminating() {
            let waits = left > 0 && !account.is_deleted_with_contents;
            let is_gone = go(world, &namespace, name, left, plan);
            if is_gone && account.identity.has_finalizer {
                planned.finalizer = FinalizerChange::Remove;
            }
            planned.verdicts = verdicts(account, problem.as_ref());
            let problem = waits.then(|| Problem::HasLoadBalancers { account: Arc::clone(name), count: left });
            let problem = problem.or_else(|| Some(Problem::AccountTerminating { account: Arc::clone(name) }));
            planned.verdicts.0.to_mut().push(Verdict { kind: ConditionKind::Ready, problem });
        } else {
            if account.problem.is_none() {
                match world.namespaces.get(&namespace) {
                    None => drop(plan.namespaces.insert(namespace, NamespaceChange::Create)),
                    Some(found) if found.is_terminating => {
                        problem = problem.or(Some(Problem::NamespaceTerminating { namespace }));
                    }
                    Some(_) => {}
                }
                planned.key = accounts.granted.get(name).copied();
                let carries = account.key.is_some() || planned.key.is_some();
                if carries && !account.identity.has_finalizer {
                    planned.finalizer = FinalizerChange::Add;
                }
            }
            planned.verdicts = verdicts(account, problem.as_ref()).summarised();
        }
        plan.accounts.insert(Arc::clone(name), planned);
    }
}

fn verdicts(account: &Account, problem: Option<&Problem>) -> Verdicts {
    let is_refused =
        account.problem.is_some() || problem.is_some_and(|problem| matches!(problem, Problem::DuplicateKey { .. }));
    let (refused, other) = if is_refused { (problem, None) } else { (None, problem) };
    Verdicts::of([(ConditionKind::Accepted, refused), (ConditionKind::Allocated, other)])
}

/// True if nothing is left of a terminating account but itself.
fn go(world: &World, namespace: &Arc<str>, name: &Arc<str>, load_balancers: usize, plan: &mut Plan) -> bool {
    if load_balancers > 0 {
        return false;
    }
    let groups = world.groups.keys().any(|group| group.namespace == *namespace);
    let Some(found) = world.namespaces.get(namespace) else { return true };
    if !found.is_ours || namespace_of(name) != **namespace {
        return !groups;
    }
    if !found.is_terminating && !groups {
        plan.namespaces.insert(Arc::clone(namespace), NamespaceChange::Delete);
    }
    // a namespace that is being deleted goes by itself
    found.is_terminating
}

/// The parent of service keys, and whether someone waits for it to be written.
fn parent(services: &Services<'_>, account: &Arc<str>, seen: &Parent) -> (Parent, bool) {
    match services.by_account.get(account).and_then(|services| services.reservations.as_ref()) {
        Some(reservations) => {
            let wanted = &reservations.parent;
            (wanted.clone(), reservations.is_urgent || wanted.counter != seen.counter)
        }
        None => (seen.clone(), false),
    }
}
