//! Objects that are not where their kind is used, and the NodeConfig: whether they are accepted.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portolan_api::gateway::{AccountStatus, EgwStatus, NodeConfigStatus, ServicePrefixStatus};
use portolan_core::gateway::{ConditionKind, Problem, Verdict, Verdicts};

use super::super::model::singleton;
use super::super::names::NODE_CONFIG;
use super::super::observe::Changes;
use super::super::{status, validate};
use super::acting::Acting;
use crate::runtime::due::Prepared;
use crate::runtime::store::Key;

/// An object by kind and key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Misplaced {
    kind: &'static str,
    key: Key,
}

/// Those of the changed objects.
pub(super) fn of(changes: &Changes) -> Vec<Misplaced> {
    let kinds = [
        ("EGW", &changes.egws),
        ("Account", &changes.accounts),
        ("NodeConfig", &changes.node_configs),
        ("ServicePrefix", &changes.prefixes),
    ];
    let all = kinds.into_iter().flat_map(|(kind, keys)| keys.iter().map(move |key| (kind, key)));
    let is_meant = |kind: &'static str, key: &Key| {
        validate::misplaced(kind, key).is_some() || (kind == "NodeConfig" && *key == singleton(NODE_CONFIG))
    };
    all.filter(|(kind, key)| is_meant(kind, key)).map(|(kind, key)| Misplaced { kind, key: Key::clone(key) }).collect()
}

pub(super) fn prepare(acting: Acting<'_>, object: &Misplaced) -> Prepared<()> {
    let Misplaced { kind, key } = object;
    let misplaced = validate::misplaced(kind, key);
    let own = || acting.model.world.node_config.as_ref().and_then(|config| config.problem.clone());
    let problem = misplaced.or_else(own);
    let (model, cache) = (acting.model, acting.cache);
    macro_rules! write {
        ($seen:expr, $store:expr, $status:ident) => {{
            let Some(seen) = $seen.get(key).cloned() else { return Prepared::Nothing };
            let conditions = accepted(problem, seen.metadata.generation);
            let before = seen.status.clone().unwrap_or_default();
            if status::says(&before.conditions, &conditions) {
                return Prepared::Nothing;
            }
            let (writer, store, wanted) = (acting.writer.clone(), $store.clone(), $status { conditions, ..before });
            Prepared::write(async move { writer.replace_status(&store, &*seen, &wanted).await.map(drop) })
        }};
    }
    match *kind {
        "EGW" => write!(model.egws, cache.egws, EgwStatus),
        "Account" => write!(model.accounts, cache.accounts, AccountStatus),
        "ServicePrefix" => write!(model.prefixes, cache.prefixes, ServicePrefixStatus),
        _ => {
            let Some(seen) = model.node_configs.get(key).cloned() else { return Prepared::Nothing };
            let conditions = accepted(problem, seen.metadata.generation);
            let before = seen.status.clone().unwrap_or_default();
            if status::says(&before.conditions, &conditions) {
                return Prepared::Nothing;
            }
            let (writer, store) = (acting.writer.clone(), cache.node_configs.clone());
            let wanted = NodeConfigStatus { conditions };
            Prepared::write(async move { writer.replace_status(&store, &*seen, &wanted).await.map(drop) })
        }
    }
}

fn accepted(problem: Option<Problem>, generation: Option<i64>) -> Vec<Condition> {
    status::conditions(&Verdicts(vec![Verdict { kind: ConditionKind::Accepted, problem }].into()), generation)
}
