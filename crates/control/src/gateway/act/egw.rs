//! The EGW: created when it is missing, then the numbers in its status.

use kube::api::ObjectMeta;
use portolan_api::gateway::{Egw, EgwSpec};
use portolan_core::gateway::{ConditionKind, PROVIDER_NAMESPACE, Verdict, Verdicts};
use tokio::time::Instant;

use super::super::model::singleton;
use super::super::names::EGW;
use super::super::{status, validate};
use super::acting::{Acting, QUIET, after};
use crate::runtime::due::Prepared;

pub(super) fn prepare(acting: Acting<'_>, since: Instant) -> Prepared<()> {
    let (writer, store) = (acting.writer.clone(), acting.cache.egws.clone());
    let Some(seen) = acting.model.egws.get(&singleton(EGW)).cloned() else {
        let namespace = acting.model.world.namespaces.get(PROVIDER_NAMESPACE);
        if namespace.is_none_or(|namespace| namespace.is_terminating) {
            return Prepared::Nothing;
        }
        let wanted = Egw {
            metadata: ObjectMeta {
                name: Some(EGW.to_owned()),
                namespace: Some(PROVIDER_NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            spec: EgwSpec::default(),
            status: None,
        };
        return Prepared::write(async move { writer.create(&store, &wanted).await.map(drop) });
    };
    let planned = &acting.plan.egw;
    let before = seen.status.clone().unwrap_or_default();
    let mut wanted = validate::parents(&planned.accounts, &planned.tunnels, &before);
    let verdicts = Verdicts(vec![Verdict { kind: ConditionKind::Accepted, problem: None }].into());
    let conditions = status::conditions(&verdicts, seen.metadata.generation);
    let is_urgent = planned.is_urgent || !status::says(&before.conditions, &conditions);
    wanted.conditions = conditions;
    let same_numbers = before.current_account_gue_key == wanted.current_account_gue_key
        && before.current_tunnel_id == wanted.current_tunnel_id
        && before.pending == wanted.pending;
    if seen.status.is_some() && same_numbers && status::says(&before.conditions, &wanted.conditions) {
        return Prepared::Nothing;
    }
    let write = Prepared::write(async move { writer.replace_status(&store, &*seen, &wanted).await.map(drop) });
    if is_urgent { write } else { after(since, QUIET, write) }
}
