//! Accounts: key and finalizer; and the keys of their load balancers, in their status.

use std::sync::Arc;

use kube::ResourceExt as _;
use portolan_api::gateway::{Account, AccountStatus, PendingService};
use portolan_api::well_known::gateway::ACCOUNT_FINALIZER;
use portolan_core::gateway::{AccountPlan, FinalizerChange};
use tokio::time::Instant;

use super::super::model::singleton;
use super::super::status;
use super::acting::{Acting, QUIET, after};
use crate::runtime::due::Prepared;
use crate::runtime::endpoint::Part;

fn seen<'a>(acting: Acting<'a>, name: &Arc<str>) -> Option<(&'a Arc<Account>, &'a AccountPlan)> {
    acting.model.accounts.get(&singleton(name)).zip(acting.plan.accounts.get(name))
}

/// What the object itself needs.
pub(super) fn object(acting: Acting<'_>, name: &Arc<str>) -> Prepared<()> {
    let Some((seen, planned)) = seen(acting, name) else { return Prepared::Nothing };
    let mut wanted = Account::clone(seen);
    match planned.finalizer {
        FinalizerChange::Keep => {}
        FinalizerChange::Add => wanted.finalizers_mut().push(ACCOUNT_FINALIZER.to_owned()),
        FinalizerChange::Remove => wanted.finalizers_mut().retain(|finalizer| finalizer != ACCOUNT_FINALIZER),
    }
    if let Some(key) = planned.key.filter(|_| wanted.spec.gue_key == 0) {
        wanted.spec.gue_key = key;
    }
    if wanted == **seen {
        return Prepared::Nothing;
    }
    let (writer, store) = (acting.writer.clone(), acting.cache.accounts.clone());
    Prepared::write(async move { writer.replace(&store, Part::Object, &wanted).await.map(drop) })
}

/// What its status needs.
pub(super) fn status(acting: Acting<'_>, name: &Arc<str>, since: Instant) -> Prepared<()> {
    let Some((seen, planned)) = seen(acting, name) else { return Prepared::Nothing };
    if planned.finalizer == FinalizerChange::Remove {
        return Prepared::Nothing;
    }
    let mut pending: Vec<PendingService> = planned
        .services
        .pending
        .iter()
        .map(|(holder, key)| PendingService {
            key: u16::try_from(*key).unwrap_or(u16::MAX),
            holder: holder.object.to_string(),
            uid: holder.uid.to_string(),
        })
        .collect();
    pending.sort_by_key(|entry| entry.key);
    let wanted = AccountStatus {
        current_service_gue_key: u16::try_from(planned.services.counter).unwrap_or(u16::MAX),
        pending,
        conditions: status::conditions(&planned.verdicts, seen.metadata.generation),
    };
    let before = seen.status.clone().unwrap_or_default();
    let same_numbers =
        before.current_service_gue_key == wanted.current_service_gue_key && before.pending == wanted.pending;
    let same_conditions = status::says(&before.conditions, &wanted.conditions);
    if seen.status.is_some() && same_numbers && same_conditions {
        return Prepared::Nothing;
    }
    let is_urgent = planned.is_urgent || !same_conditions;
    let (writer, store, seen) = (acting.writer.clone(), acting.cache.accounts.clone(), Arc::clone(seen));
    let write = Prepared::write(async move { writer.replace_status(&store, &*seen, &wanted).await.map(drop) });
    if is_urgent { write } else { after(since, QUIET, write) }
}
