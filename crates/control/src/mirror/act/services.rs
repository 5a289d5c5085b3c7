//! Mirrors: made, changed and deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::ObjectMeta;
use kube::{Api, Client};
use portolan_api::well_known::mirror::{BARRELMAN, CREATED, MANAGED, REMOTE, REMOTE_UID, SOURCE_UID};
use portolan_core::mirror::{
    Action, DesiredMirror, RemoteName, ServiceName, ServicePort, ServiceSpec, ServiceType, TargetPort,
};
use portolan_core::net::Family;
use portolan_core::select::Labels;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::acting::Acting;
use crate::mirror::observe::service_key;
use crate::mirror::validate::service;
use crate::runtime::Error;
use crate::runtime::due::Prepared;
use crate::runtime::store::{Key, Store};
use crate::runtime::write::Writer;

/// What was done about a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mirror) enum Written {
    Added,
    Updated,
    /// Deleted, because its remote lacks it, or its remote is gone.
    Deleted {
        /// The remote that it was made for.
        remote: RemoteName,
        was_known: bool,
    },
    /// Deleted, to be made again.
    Recreated,
    /// Not made: the API server refused its nodePorts.
    NodePortsRefused,
}

/// Time for a namespace to be made and seen.
const NAMESPACE_MADE: Duration = Duration::from_millis(20);

/// Writes what the decision about a name says. `making` are the namespaces that are made in this pass.
pub(super) fn prepare(
    acting: &Acting<'_>,
    name: &ServiceName,
    is_last_try: bool,
    making: &mut BTreeSet<Arc<str>>,
) -> Prepared<Written> {
    let Acting { writer, cache, model, rate, events, metrics, .. } = *acting;
    let Some(decision) = model.decisions.get(name) else { return Prepared::Nothing };
    let key = service_key(name);
    let seen = cache.services.get(&key);
    // It may have changed since the decision: then there will be another one.
    if seen.as_deref().map(service).as_ref() != model.planner.world().local.services.get(name) {
        return Prepared::Nothing;
    }
    let (writer, rate, store) = (writer.clone(), rate.clone(), cache.services.clone());
    let events = events.clone();
    match (&decision.action, seen) {
        (Action::None, _) => {
            metrics.service_unchanged();
            Prepared::Nothing
        }
        (Action::Update(_) | Action::Recreate | Action::Delete, None) => Prepared::Nothing,
        (Action::Add(want), _) => {
            let has_namespace = cache.namespaces.get(&Key::of_cluster(&name.namespace)).is_some();
            // One of those who need it makes it; the others follow when it is there.
            if !has_namespace && !making.insert(name.namespace.clone()) {
                return Prepared::At(Instant::now() + NAMESPACE_MADE);
            }
            let namespace =
                (!has_namespace).then(|| (cache.namespaces.clone(), namespace(&name.namespace, &want.remote)));
            let (want, key) = (want.clone(), key);
            Prepared::write(async move {
                if let Some((namespaces, namespace)) = namespace {
                    rate.take().await;
                    make_namespace(&writer, &namespaces, &namespace).await?;
                }
                rate.take().await;
                add(&writer, &store, &key, &want, is_last_try).await
            })
        }
        (Action::Update(want), Some(seen)) => {
            let change =
                json!({ "metadata": metadata(want, true), "spec": spec(&want.spec, want.copy.session_affinity) });
            let adopts = decision.remote.is_some()
                && seen.metadata.labels.as_ref().is_some_and(|labels| !labels.contains_key(REMOTE));
            let asks_for_ports = want.spec.service_type == ServiceType::NodePort;
            let remote = want.remote.clone();
            Prepared::write(async move {
                rate.take().await;
                match writer.merge(&store, seen.as_ref(), change).await {
                    Err(problem) if is_last_try && asks_for_ports && refuses_node_ports(&problem) => {
                        Ok(Written::NodePortsRefused)
                    }
                    written => {
                        written?;
                        if adopts {
                            events.adopted(&seen, &remote);
                        }
                        Ok(Written::Updated)
                    }
                }
            })
        }
        (Action::Recreate, Some(seen)) => Prepared::write(async move {
            rate.take().await;
            writer.delete_version(&store, seen.as_ref()).await?;
            Ok(Written::Recreated)
        }),
        (Action::Delete, Some(seen)) => {
            if !model.may_delete(decision) {
                return Prepared::Nothing;
            }
            let remote = decision.remote.clone();
            let owner = model.planner.world().local.services.get(name).and_then(|service| service.owner.clone());
            let was_made_for = remote.clone().or(owner).unwrap_or_default();
            let confirm = remote.as_ref().and_then(|remote| absent(acting, remote, name));
            Prepared::write(async move {
                if let Some((client, source)) = confirm {
                    confirm_absence(client, &source).await?;
                }
                rate.take().await;
                writer.delete_version(&store, seen.as_ref()).await?;
                events.unmirrored(&seen, remote.as_ref());
                Ok(Written::Deleted { remote: was_made_for, was_known: remote.is_some() })
            })
        }
    }
}

/// The source of a mirror, if all that is known of it is that no list had it.
fn absent(acting: &Acting<'_>, remote: &RemoteName, name: &ServiceName) -> Option<(Client, ServiceName)> {
    let known = acting.model.planner.world().remotes.get(remote)?;
    let source = known.rules.source_name(name)?;
    if known.services.contains_key(&source) {
        return None;
    }
    Some((acting.model.readings.get(remote)?.cache.client(), source))
}

/// Only the API server itself can say that there is no such Service: an answer of something between us does not count.
async fn confirm_absence(client: Client, source: &ServiceName) -> Result<(), Error> {
    let what = || format!("get Service {source} of the remote");
    match Api::<Service>::namespaced(client, &source.namespace).get(&source.name).await {
        Ok(_) => Err(Error::Conflict { what: what() }),
        Err(kube::Error::Api(status)) if status.is_not_found() && names(&status, source) => Ok(()),
        Err(cause) => Err(Error::from_request(what(), cause)),
    }
}

/// Whether an answer speaks of this very Service.
fn names(status: &kube::core::Status, source: &ServiceName) -> bool {
    status.details.as_ref().is_some_and(|details| details.kind == "services" && details.name == *source.name)
}

async fn make_namespace(writer: &Writer, store: &Store<Namespace>, want: &Namespace) -> Result<(), Error> {
    match writer.create(store, want).await {
        // Somebody was faster.
        Err(problem) if problem.is_already_exists() => Ok(()),
        made => made.map(drop),
    }
}

fn namespace(name: &str, remote: &RemoteName) -> Namespace {
    let labels = [(CREATED, "true".to_owned()), (REMOTE, remote.to_string())];
    Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.map(|(key, value)| (key.to_owned(), value)).into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    }
}

async fn add(
    writer: &Writer,
    store: &Store<Service>,
    key: &Key,
    want: &DesiredMirror,
    is_last_try: bool,
) -> Result<Written, Error> {
    let object = |families: bool| -> Result<Service, Error> {
        let mut spec = spec(&want.spec, want.copy.session_affinity);
        if want.spec.headless {
            spec["clusterIP"] = "None".into();
        }
        if !families && let Some(spec) = spec.as_object_mut() {
            spec.remove("ipFamilies");
            spec.remove("ipFamilyPolicy");
        }
        let mut metadata = metadata(want, false);
        metadata["name"] = key.name.as_str().into();
        metadata["namespace"] = key.namespace.as_str().into();
        let object = json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec });
        serde_json::from_value(object)
            .map_err(|problem| Error::Invalid { what: format!("create Service {key}"), problem: problem.to_string() })
    };
    match writer.create(store, &object(true)?).await {
        Err(problem)
            if is_last_try && want.spec.service_type == ServiceType::NodePort && refuses_node_ports(&problem) =>
        {
            Ok(Written::NodePortsRefused)
        }
        // This cluster lacks a family of the source: its endpoints say so.
        Err(problem) if refuses(&problem, "ipFamil") => {
            writer.create(store, &object(false)?).await?;
            Ok(Written::Added)
        }
        made => made.map(|_| Written::Added),
    }
}

/// Whether the API server refused an object because of its nodePorts. A port is free a moment after its Service is gone,
/// so a refusal is believed only when it lasts.
pub(super) fn refuses_node_ports(problem: &Error) -> bool {
    refuses(problem, "nodePort")
}

/// Whether the API server refused an object because of this field.
fn refuses(problem: &Error, field: &str) -> bool {
    let Error::Request { cause, .. } = problem else { return false };
    let kube::Error::Api(status) = cause.as_ref() else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 422 && causes.into_iter().any(|cause| cause.field.contains(field))
}

/// Labels, annotations and owner of a mirror. A patch also takes away what the source no longer has.
fn metadata(want: &DesiredMirror, is_patch: bool) -> Value {
    let copied = |keys: &BTreeSet<Arc<str>>, values: &Labels| -> Map<String, Value> {
        let pairs = keys.iter().map(|key| (key.to_string(), values.get(key).map_or(Value::Null, Value::from)));
        pairs.filter(|(_, value)| is_patch || !value.is_null()).collect()
    };
    let mut labels = copied(&want.copy.labels, &want.copied.labels);
    labels.insert(BARRELMAN.to_owned(), MANAGED.into());
    labels.insert(REMOTE.to_owned(), (*want.remote).into());
    let mut annotations = copied(&want.copy.annotations, &want.copied.annotations);
    annotations.insert(SOURCE_UID.to_owned(), (*want.source_uid).into());
    annotations.insert(REMOTE_UID.to_owned(), (*want.remote_uid).into());
    let mut metadata = json!({ "labels": labels, "annotations": annotations });
    let owner = json!([{
        "apiVersion": "portolan.dev/v1alpha1",
        "kind": "RemoteCluster",
        "name": *want.remote,
        "uid": *want.remote_uid,
    }]);
    if want.owned {
        metadata["ownerReferences"] = owner;
    } else if is_patch {
        metadata["ownerReferences"] = Value::Null;
    }
    metadata
}

fn spec(want: &ServiceSpec, with_affinity: bool) -> Value {
    let service_type = match want.service_type {
        ServiceType::NodePort => "NodePort",
        ServiceType::ClusterIp | ServiceType::LoadBalancer | ServiceType::ExternalName => "ClusterIP",
    };
    let mut spec = json!({
        "type": service_type,
        "ports": want.ports.iter().map(port).collect::<Vec<_>>(),
    });
    if !want.families.is_empty() {
        let name = |family: &Family| match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        spec["ipFamilies"] = want.families.iter().map(name).collect();
        spec["ipFamilyPolicy"] = if want.dual_stack { "PreferDualStack" } else { "SingleStack" }.into();
    }
    if with_affinity {
        spec["sessionAffinity"] = if want.session_affinity.is_some() { "ClientIP" } else { "None" }.into();
        spec["sessionAffinityConfig"] = match want.session_affinity {
            Some(seconds) => json!({ "clientIP": { "timeoutSeconds": seconds } }),
            None => Value::Null,
        };
    }
    spec
}

fn port(port: &ServicePort) -> Value {
    let target = match &port.target {
        TargetPort::Number(number) => Value::from(*number),
        TargetPort::Name(name) => Value::from(&**name),
    };
    let mut fields = BTreeMap::from([
        ("port", Value::from(port.port)),
        ("protocol", port.protocol.as_str().into()),
        ("targetPort", target),
    ]);
    if !port.name.is_empty() {
        fields.insert("name", (*port.name).into());
    }
    fields.extend(port.app_protocol.as_deref().map(|protocol| ("appProtocol", protocol.into())));
    fields.extend(port.node_port.map(|port| ("nodePort", port.into())));
    fields.into_iter().collect()
}
