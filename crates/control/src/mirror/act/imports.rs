//! ServiceImports, the Services derived from them, and their EndpointSlices: made, changed and deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use portolan_api::mirror::{ClusterStatus, ServiceExportStatus, ServiceImport, ServiceImportStatus};
use portolan_api::well_known::conditions::READY;
use portolan_api::well_known::mirror::{CREATED, EXPORTED_KEYS, MANAGED_BY as MIRROR, REMOTE, REMOTE_UID};
use portolan_core::mirror::ServiceName;
use portolan_core::mirror::mcs::{
    Action, Condition, DerivedSpec, DesiredDerived, DesiredImport, DesiredImportSlice, ExportStatus, ImportPort,
    ImportSliceAction, ImportSpec, ImportStatus,
};
use portolan_core::select::Labels;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::acting::Acting;
use crate::mirror::mcs::{ExportedKeys, LocalStores, derived, derived_key, family_name, import};
use crate::mirror::names::{DERIVED_SERVICE, IMPORT_NAME, MANAGED_BY, SERVICE_NAME, SOURCE_CLUSTER};
use crate::mirror::observe::service_key;
use crate::mirror::slim::Slice;
use crate::runtime::Error;
use crate::runtime::conditions::condition;
use crate::runtime::due::Prepared;
use crate::runtime::endpoint::Part;
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::Kind;
use crate::runtime::write::Writer;

/// One write.
enum Write<K> {
    Create(Box<K>),
    Change(Arc<K>, Value),
    Replace(Box<K>),
    Delete(Arc<K>),
}

impl<K: Kind + serde::Serialize> Write<K> {
    async fn send(self, writer: &Writer, store: &Store<K>) -> Result<(), Error> {
        match self {
            Self::Create(want) => writer.create(store, want.as_ref()).await,
            Self::Change(seen, change) => writer.merge(store, seen.as_ref(), change).await,
            Self::Replace(want) => writer.replace(store, Part::Object, want.as_ref()).await,
            Self::Delete(seen) => writer.delete_version(store, seen.as_ref()).await,
        }
        .map(drop)
    }
}

/// Writes what differs about an import. It owns the Service derived from it, and that the slices: each is made once its
/// owner is there.
pub(super) fn prepare(acting: &Acting<'_>, stores: &LocalStores, name: &ServiceName) -> Prepared<()> {
    let Acting { writer, cache, model, rate, .. } = *acting;
    let local = &model.clusterset.set.local;
    let Some(decision) = model.clusterset.decisions.get(name) else { return Prepared::Nothing };
    let (seen_import, seen_derived) =
        (cache.imports.get(&service_key(name)), stores.own.services.get(&derived_key(name)));
    // They may have changed since the decision: then there will be another one.
    if seen_import.as_deref().map(import).as_ref() != local.imports.get(name)
        || seen_derived.as_deref().map(derived).as_ref() != local.derived.get(name)
    {
        return Prepared::Nothing;
    }
    let import = import_write(name, &decision.import, seen_import);
    let derived = derived_write(name, &decision.derived, seen_derived);
    let (import, derived) = match (import, derived) {
        (Ok(import), Ok(derived)) => (import, derived),
        (Err(problem), _) | (_, Err(problem)) => return Prepared::write(async move { Err(problem) }),
    };
    let slices = slice_writes(stores, name, &decision.slices);
    if import.is_none() && derived.is_none() && slices.is_empty() {
        return Prepared::Nothing;
    }
    let (writer, rate, imports) = (writer.clone(), rate.clone(), cache.imports.clone());
    let (services, slice_store) = (stores.own.services.clone(), stores.slices.clone());
    Prepared::write(async move {
        if let Some(write) = import {
            rate.take().await;
            write.send(&writer, &imports).await?;
        }
        if let Some(write) = derived {
            rate.take().await;
            write.send(&writer, &services).await?;
        }
        for write in slices {
            rate.take().await;
            write.send(&writer, &slice_store).await?;
        }
        Ok(())
    })
}

fn import_write(
    name: &ServiceName,
    action: &Action<DesiredImport>,
    seen: Option<Arc<ServiceImport>>,
) -> Result<Option<Write<ServiceImport>>, Error> {
    Ok(match (action, seen) {
        (Action::Create(want), None) => {
            let mut metadata = import_metadata(want, &ExportedKeys::default());
            metadata["namespace"] = (*name.namespace).into();
            metadata["name"] = (*name.name).into();
            let object = json!({
                "apiVersion": "multicluster.x-k8s.io/v1beta1",
                "kind": "ServiceImport",
                "metadata": metadata,
                "spec": import_spec(&want.spec),
            });
            Some(Write::Create(Box::new(decoded(name, object)?)))
        }
        (Action::Update(want), Some(seen)) => {
            let change = json!({
                "metadata": import_metadata(want, &ExportedKeys::of(&seen)),
                "spec": import_spec(&want.spec),
            });
            Some(Write::Change(seen, change))
        }
        (Action::Recreate | Action::Delete, Some(seen)) => Some(Write::Delete(seen)),
        (Action::None, _) | (Action::Create(_), Some(_)) | (_, None) => None,
    })
}

fn decoded<K: DeserializeOwned>(name: &ServiceName, mut object: Value) -> Result<K, Error> {
    drop_nulls(&mut object);
    serde_json::from_value(object)
        .map_err(|problem| Error::Invalid { what: format!("import {name}"), problem: problem.to_string() })
}

/// In a patch, null takes a field away; a new object just lacks it.
fn drop_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, field| !field.is_null());
        fields.values_mut().for_each(drop_nulls);
    }
}

/// Labels and annotations of an import. Those that exports no longer have are taken away; those of others stay.
fn import_metadata(want: &DesiredImport, before: &ExportedKeys) -> Value {
    let pairs = |before: &BTreeSet<String>, now: &Labels| -> Map<String, Value> {
        let gone = before.iter().map(|key| (key.clone(), Value::Null));
        gone.chain(now.iter().map(|(key, value)| (key.to_owned(), value.into()))).collect()
    };
    let keys = |labels: &Labels| labels.iter().map(|(key, _)| key.to_owned()).collect::<BTreeSet<String>>();
    let exported = &want.exported;
    let kept = ExportedKeys { labels: keys(&exported.labels), annotations: keys(&exported.annotations) };
    let mut labels = pairs(&before.labels, &exported.labels);
    labels.insert(CREATED.to_owned(), "true".into());
    let mut annotations = pairs(&before.annotations, &exported.annotations);
    let kept = if kept == ExportedKeys::default() {
        Value::Null
    } else {
        json!({ "labels": kept.labels, "annotations": kept.annotations }).to_string().into()
    };
    annotations.insert(EXPORTED_KEYS.to_owned(), kept);
    annotations.insert(DERIVED_SERVICE.to_owned(), want.derived.as_deref().into());
    json!({ "labels": labels, "annotations": annotations })
}

fn import_spec(spec: &ImportSpec) -> Value {
    let mut fields = shared_fields(&spec.ports, spec.session_affinity);
    fields["type"] = spec.import_type.as_str().into();
    fields["ips"] = spec.ips.iter().map(ToString::to_string).collect();
    fields["ipFamilies"] = spec.families.iter().map(|family| family_name(*family)).collect();
    fields["internalTrafficPolicy"] = spec.internal_traffic_policy.as_str().into();
    fields["trafficDistribution"] = spec.traffic_distribution.as_deref().into();
    fields
}

/// What imports and Services write alike.
fn shared_fields(ports: &[ImportPort], affinity: Option<u32>) -> Value {
    let port = |port: &ImportPort| {
        let name = Some(&*port.name).filter(|name| !name.is_empty());
        let mut fields = json!({
            "name": name,
            "protocol": port.protocol.as_str(),
            "appProtocol": port.app_protocol.as_deref(),
            "port": port.port,
        });
        drop_nulls(&mut fields);
        fields
    };
    json!({
        "ports": ports.iter().map(port).collect::<Vec<_>>(),
        "sessionAffinity": if affinity.is_some() { "ClientIP" } else { "None" },
        "sessionAffinityConfig": affinity.map(|seconds| json!({ "clientIP": { "timeoutSeconds": seconds } })),
    })
}

fn derived_write(
    name: &ServiceName,
    action: &Action<DesiredDerived>,
    seen: Option<Arc<Service>>,
) -> Result<Option<Write<Service>>, Error> {
    Ok(match (action, seen) {
        (Action::Create(want), None) => {
            let mut metadata = derived_metadata(name, want);
            metadata["namespace"] = (*name.namespace).into();
            metadata["name"] = (*want.name).into();
            let object = json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata,
                "spec": derived_spec(&want.spec),
            });
            Some(Write::Create(Box::new(decoded(name, object)?)))
        }
        (Action::Update(want), Some(seen)) => {
            let change = json!({ "metadata": derived_metadata(name, want), "spec": derived_spec(&want.spec) });
            Some(Write::Change(seen, change))
        }
        (Action::Recreate | Action::Delete, Some(seen)) => Some(Write::Delete(seen)),
        (Action::None, _) | (Action::Create(_), Some(_)) | (_, None) => None,
    })
}

fn derived_metadata(name: &ServiceName, want: &DesiredDerived) -> Value {
    json!({
        "labels": { CREATED: "true", IMPORT_NAME: *name.name },
        "ownerReferences": [owner("multicluster.x-k8s.io/v1beta1", "ServiceImport", &name.name, &want.import_uid)],
    })
}

/// The owner is not held up by what it owns: that would need further permissions.
fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

fn derived_spec(spec: &DerivedSpec) -> Value {
    let mut fields = shared_fields(&spec.ports, spec.session_affinity);
    for port in fields["ports"].as_array_mut().into_iter().flatten() {
        port["targetPort"] = port["port"].clone();
    }
    fields["type"] = "ClusterIP".into();
    fields["ipFamilies"] = spec.families.iter().map(|family| family_name(*family)).collect();
    let is_dual = spec.families.len() > 1;
    fields["ipFamilyPolicy"] = if is_dual { "RequireDualStack" } else { "SingleStack" }.into();
    fields["internalTrafficPolicy"] = spec.internal_traffic_policy.as_str().into();
    fields["trafficDistribution"] = spec.traffic_distribution.as_deref().into();
    fields
}

fn slice_writes(
    stores: &LocalStores,
    name: &ServiceName,
    actions: &BTreeMap<Arc<str>, ImportSliceAction>,
) -> Vec<Write<Slice>> {
    let writes = actions.iter().filter_map(|(slice_name, action)| {
        let key = Key { namespace: name.namespace.to_string(), name: slice_name.to_string() };
        let seen = stores.slices.get(&key);
        match (action, seen) {
            (ImportSliceAction::Write(want), None) => Some(Write::Create(Box::new(slice(name, &key, want, None)))),
            (ImportSliceAction::Write(want), Some(seen)) => {
                Some(Write::Replace(Box::new(slice(name, &key, want, Some(&seen)))))
            }
            (ImportSliceAction::Delete, seen) => seen.map(Write::Delete),
        }
    });
    writes.collect()
}

fn slice(name: &ServiceName, key: &Key, want: &DesiredImportSlice, seen: Option<&Slice>) -> Slice {
    let DesiredImportSlice { slice: want, owner: of, nodes } = want;
    let mut labels = BTreeMap::from([
        (MANAGED_BY.to_owned(), MIRROR.to_owned()),
        (IMPORT_NAME.to_owned(), name.name.to_string()),
        (SOURCE_CLUSTER.to_owned(), want.cluster_id.to_string()),
    ]);
    if !want.remote.is_empty() {
        labels.insert(REMOTE.to_owned(), want.remote.to_string());
    }
    let owner = match &of.service_name {
        Some(service) => {
            labels.insert(SERVICE_NAME.to_owned(), service.to_string());
            owner("v1", "Service", service, &of.uid)
        }
        None => owner("multicluster.x-k8s.io/v1beta1", "ServiceImport", &name.name, &of.uid),
    };
    let metadata = ObjectMeta {
        name: Some(key.name.clone()),
        namespace: Some(key.namespace.clone()),
        labels: Some(labels),
        annotations: Some(BTreeMap::from([(REMOTE_UID.to_owned(), want.remote_uid.to_string())])),
        owner_references: Some(vec![owner]),
        resource_version: seen.and_then(|seen| seen.metadata.resource_version.clone()),
        uid: seen.and_then(|seen| seen.metadata.uid.clone()),
        ..ObjectMeta::default()
    };
    let nodes = want.content.endpoints.iter().map(|endpoint| nodes.get(&endpoint.address).cloned()).collect();
    Slice { metadata, content: Some(want.content.clone()), nodes }
}

/// What the statuses of an import and of its export need.
pub(super) fn prepare_status(acting: &Acting<'_>, stores: &LocalStores, name: &ServiceName) -> Prepared<()> {
    let Acting { writer, cache, model, .. } = *acting;
    let Some(decision) = model.clusterset.decisions.get(name) else { return Prepared::Nothing };
    let key = service_key(name);
    let import = decision.import_status.as_ref().and_then(|status| {
        let seen = cache.imports.get(&key)?;
        let want = import_status(status, seen.metadata.generation.unwrap_or_default());
        Some((seen, want))
    });
    let export = decision.export_status.as_ref().and_then(|status| {
        let seen = stores.own.exports.get(&key)?;
        let want = export_status(status, seen.metadata.generation.unwrap_or_default());
        Some((seen, want))
    });
    if import.is_none() && export.is_none() {
        return Prepared::Nothing;
    }
    let (writer, imports, exports) = (writer.clone(), cache.imports.clone(), stores.own.exports.clone());
    Prepared::write(async move {
        if let Some((seen, want)) = import {
            writer.status(&imports, seen.as_ref(), &want).await?;
        }
        if let Some((seen, want)) = export {
            writer.status(&exports, seen.as_ref(), &want).await?;
        }
        Ok(())
    })
}

fn import_status(status: &ImportStatus, generation: i64) -> ServiceImportStatus {
    ServiceImportStatus {
        clusters: status.clusters.iter().map(|id| ClusterStatus { cluster: id.to_string() }).collect(),
        conditions: vec![wire(READY, &status.ready, generation)],
    }
}

fn export_status(status: &ExportStatus, generation: i64) -> ServiceExportStatus {
    let ExportStatus { valid, ready, conflict } = status;
    let conditions = [("Valid", valid), (READY, ready), ("Conflict", conflict)];
    ServiceExportStatus { conditions: conditions.map(|(kind, one)| wire(kind, one, generation)).into() }
}

fn wire(
    kind: &'static str,
    from: &Condition,
    generation: i64,
) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition {
    condition(kind, Some(from.is_true), &from.reason, from.message.clone(), generation)
}
