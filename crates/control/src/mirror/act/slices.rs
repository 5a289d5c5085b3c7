//! EndpointSlices: made, replaced and deleted, those of one Service in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use portolan_api::well_known::mirror::{MANAGED_BY as MIRROR, REMOTE, REMOTE_UID};
use portolan_core::mirror::{DesiredSlice, LocalService, ServiceName, SliceAction};

use super::acting::Acting;
use crate::mirror::names::{MANAGED_BY, SERVICE_NAME, SOURCE_CLUSTER};
use crate::mirror::slim::Slice;
use crate::runtime::due::Prepared;
use crate::runtime::endpoint::Part;
use crate::runtime::store::Key;

/// Writes the slices of a Service that differ.
pub(super) fn prepare(acting: &Acting<'_>, name: &ServiceName) -> Prepared<()> {
    let Acting { writer, cache, model, rate, .. } = acting;
    let Some(decision) = model.decisions.get(name) else { return Prepared::Nothing };
    let service = model.planner.world().local.services.get(name);
    let mut steps = Vec::new();
    for (slice_name, action) in &decision.slices {
        let key = Key { namespace: name.namespace.to_string(), name: slice_name.to_string() };
        let seen = cache.slices.get(&key);
        match (action, service) {
            (SliceAction::Write(want), Some(service)) => {
                steps.push(Step { write: Some(wanted(name, service, &key, want, seen.as_deref())), seen });
            }
            (SliceAction::Write(_), None) => {}
            (SliceAction::Delete, _) => steps.push(Step { write: None, seen }),
        }
    }
    if steps.is_empty() {
        acting.metrics.endpoints(true);
        return Prepared::Nothing;
    }
    let (writer, rate, store) = ((*writer).clone(), (*rate).clone(), cache.slices.clone());
    Prepared::write(async move {
        for Step { write, seen } in steps {
            rate.take().await;
            match (write, seen) {
                (Some(want), Some(_)) => writer.replace(&store, Part::Object, &want).await?,
                (Some(want), None) => writer.create(&store, &want).await?,
                (None, Some(seen)) => writer.delete(&store, seen.as_ref()).await?,
                (None, None) => continue,
            };
        }
        Ok(())
    })
}

struct Step {
    /// None: it is deleted.
    write: Option<Slice>,
    seen: Option<Arc<Slice>>,
}

fn wanted(name: &ServiceName, service: &LocalService, key: &Key, want: &DesiredSlice, seen: Option<&Slice>) -> Slice {
    let labels = [
        (SERVICE_NAME, name.name.to_string()),
        (MANAGED_BY, MIRROR.to_owned()),
        (SOURCE_CLUSTER, want.cluster_id.to_string()),
        (REMOTE, want.remote.to_string()),
    ];
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Service".to_owned(),
        name: name.name.to_string(),
        uid: service.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let metadata = ObjectMeta {
        name: Some(key.name.clone()),
        namespace: Some(key.namespace.clone()),
        labels: Some(labels.map(|(key, value)| (key.to_owned(), value)).into()),
        annotations: Some(BTreeMap::from([(REMOTE_UID.to_owned(), want.remote_uid.to_string())])),
        owner_references: Some(vec![owner]),
        resource_version: seen.and_then(|seen| seen.metadata.resource_version.clone()),
        uid: seen.and_then(|seen| seen.metadata.uid.clone()),
        ..ObjectMeta::default()
    };
    Slice { metadata, content: Some(want.content.clone()), nodes: Vec::new() }
}
