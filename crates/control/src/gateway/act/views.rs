//! ServicePrefixes and ServiceGroups: status that shows many other objects.

use std::sync::Arc;

use portolan_api::gateway::{AddressCounts, ServiceGroupStatus, ServicePrefixStatus};
use portolan_core::gateway::ObjectName;

use super::super::model::singleton;
use super::super::{status, validate};
use super::acting::Acting;
use crate::runtime::due::Prepared;

pub(super) fn prefix(acting: Acting<'_>, name: &Arc<str>) -> Prepared<()> {
    let seen = acting.model.prefixes.get(&singleton(name)).cloned();
    let (Some(seen), Some(planned)) = (seen, acting.plan.prefixes.get(name)) else { return Prepared::Nothing };
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let wanted = ServicePrefixStatus {
        addresses: Some(AddressCounts {
            capacity: i64::try_from(planned.capacity).unwrap_or(i64::MAX),
            in_use: count(planned.in_use),
            quarantined: count(planned.quarantined),
        }),
        conditions: status::conditions(&planned.verdicts, seen.metadata.generation),
    };
    let before = seen.status.clone().unwrap_or_default();
    if before.addresses == wanted.addresses && status::says(&before.conditions, &wanted.conditions) {
        return Prepared::Nothing;
    }
    let (writer, store) = (acting.writer.clone(), acting.cache.prefixes.clone());
    Prepared::write(async move { writer.replace_status(&store, &*seen, &wanted).await.map(drop) })
}

pub(super) fn group(acting: Acting<'_>, name: &ObjectName) -> Prepared<()> {
    let seen = acting.model.groups.get(&validate::key_of(name)).cloned();
    let (Some(seen), Some(planned)) = (seen, acting.plan.groups.get(name)) else { return Prepared::Nothing };
    let (writer, store) = (acting.writer.clone(), acting.cache.groups.clone());
    if planned.is_deleted {
        return Prepared::write(async move { writer.delete(&store, &*seen).await.map(drop) });
    }
    let wanted = ServiceGroupStatus {
        proxy_snapshot_versions: acting.versions.of(acting.model, name),
        conditions: status::conditions(&planned.verdicts, seen.metadata.generation),
    };
    let before = seen.status.clone().unwrap_or_default();
    let same_versions = before.proxy_snapshot_versions == wanted.proxy_snapshot_versions;
    if same_versions && status::says(&before.conditions, &wanted.conditions) {
        return Prepared::Nothing;
    }
    Prepared::write(async move { writer.replace_status(&store, &*seen, &wanted).await.map(drop) })
}
