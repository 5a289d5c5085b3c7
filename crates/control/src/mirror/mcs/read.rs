//! Objects of the Multi-Cluster Services API -> checked types of the planner.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as WireCondition;
use kube::Resource;
use kube::api::ObjectMeta;
use portolan_api::mirror::{self as api, ServiceExport, ServiceImport};
use portolan_api::well_known::conditions::READY;
use portolan_api::well_known::mirror::{BARRELMAN, CREATED, EXPORTED_KEYS, REMOTE, REMOTE_UID};
use portolan_core::mirror::mcs::{
    Condition, DerivedSpec, Export, ExportStatus, ExportedService, ImportPort, ImportSpec, ImportType,
    InternalTrafficPolicy, RecordedDerived, RecordedImport, RecordedImportSlice,
};
use portolan_core::mirror::{Copied, RecordedSlice, ServiceName};
use portolan_core::net::Family;
use portolan_core::select::Labels;
use serde::{Deserialize, Serialize};

use crate::mirror::names::{DERIVED_SERVICE, IMPORT_NAME, LINKERD_MIRROR, SERVICE_NAME, SOURCE_CLUSTER};
use crate::mirror::slim::{Slice, protocol};
use crate::mirror::validate::{annotation, created, family, label, spec, uid};
use crate::runtime::conditions::find;

/// A ServiceExport.
pub(super) fn export(export: &ServiceExport) -> Export {
    let metadata = export.meta();
    Export {
        created: created(metadata),
        labels: exported(&export.spec.exported_labels, is_label_value),
        annotations: exported(&export.spec.exported_annotations, |_| true),
        deleting: metadata.deletion_timestamp.is_some(),
    }
}

/// What an import may get: nothing that has a meaning of its own there, and nothing that no object can have. Whoever
/// writes exports in a remote decides about these.
fn exported(given: &BTreeMap<String, String>, is_value: impl Fn(&str) -> bool) -> Labels {
    let is_reserved = |key: &str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        RESERVED
            .iter()
            .any(|taken| domain == *taken || domain.strip_suffix(taken).is_some_and(|sub| sub.ends_with('.')))
    };
    given.iter().filter(|(key, value)| is_qualified(key) && !is_reserved(key) && is_value(value)).collect_labels()
}

/// Domains of keys that controllers act on.
const RESERVED: &[&str] =
    &["portolan.dev", "tfw.io", "multicluster.kubernetes.io", "x-k8s.io", "kubectl.kubernetes.io"];

trait CollectLabels {
    fn collect_labels(self) -> Labels;
}

impl<'a, I: Iterator<Item = (&'a String, &'a String)>> CollectLabels for I {
    fn collect_labels(self) -> Labels {
        self.map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }
}

/// Whether the text is a key of labels and annotations.
fn is_qualified(text: &str) -> bool {
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    let is_domain = |domain: &str| {
        let is_part = |part: &str| {
            let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            is_bounded(part, 63) && part.bytes().all(inner) && !part.bytes().any(|byte| byte.is_ascii_uppercase())
        };
        domain.len() <= 253 && domain.split('.').all(is_part)
    };
    is_word(name) && domain.is_none_or(is_domain)
}

/// Whether the text is a value of a label.
fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_word(text)
}

fn is_word(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    is_bounded(text, 63) && text.bytes().all(inner)
}

/// Neither empty nor too long, and with a letter or digit at both ends.
fn is_bounded(text: &str, longest: usize) -> bool {
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= longest && ends.iter().all(|end| end.is_some_and(|end| end.is_ascii_alphanumeric()))
}

/// The conditions of a ServiceExport. None unless all three are there, and speak of the export as it is.
pub(super) fn export_status(export: &ServiceExport) -> Option<ExportStatus> {
    let conditions = &export.status.as_ref()?.conditions;
    let current = |kind: &str| condition(conditions, kind, export.meta());
    Some(ExportStatus { valid: current("Valid")?, ready: current(READY)?, conflict: current("Conflict")? })
}

fn condition(conditions: &[WireCondition], kind: &str, metadata: &ObjectMeta) -> Option<Condition> {
    let found = find(conditions, kind).filter(|found| found.observed_generation == metadata.generation)?;
    let (reason, message) = (found.reason.clone().into(), found.message.clone());
    Some(Condition { is_true: found.status == "True", reason, message })
}

/// A Service that an export may name.
pub(super) fn exported_service(service: &Service) -> ExportedService {
    let metadata = service.meta();
    let wire = service.spec.as_ref();
    let mut spec = spec(service);
    // No object here can have others.
    spec.ports.retain(|port| port.port != 0 && (port.name.is_empty() || is_port_name(&port.name)));
    for port in &mut spec.ports {
        port.app_protocol = port.app_protocol.take().filter(|protocol| is_qualified(protocol));
    }
    ExportedService {
        spec,
        internal_traffic_policy: policy(wire.and_then(|spec| spec.internal_traffic_policy.as_deref())),
        traffic_distribution: wire.and_then(|spec| spec.traffic_distribution.as_deref()).map(Arc::from),
        is_mirror: [BARRELMAN, REMOTE, LINKERD_MIRROR].iter().any(|key| label(metadata, key).is_some())
            || import_owner(metadata).is_some(),
        deleting: metadata.deletion_timestamp.is_some(),
    }
}

fn is_port_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    is_bounded(text, 63) && text.bytes().all(inner)
}

fn policy(name: Option<&str>) -> InternalTrafficPolicy {
    if name == Some("Local") { InternalTrafficPolicy::Local } else { InternalTrafficPolicy::Cluster }
}

/// UID of the ServiceImport that owns an object.
fn import_owner(metadata: &ObjectMeta) -> Option<Arc<str>> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == "ServiceImport").map(|owner| owner.uid.as_str().into())
}

/// Keys of labels and annotations that an import has from exports.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::mirror) struct ExportedKeys {
    pub(in crate::mirror) labels: BTreeSet<String>,
    pub(in crate::mirror) annotations: BTreeSet<String>,
}

impl ExportedKeys {
    /// Those of an import.
    pub(in crate::mirror) fn of(import: &ServiceImport) -> Self {
        annotation(import.meta(), EXPORTED_KEYS).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// A ServiceImport.
pub(in crate::mirror) fn import(import: &ServiceImport) -> RecordedImport {
    let metadata = import.meta();
    let keys = ExportedKeys::of(import);
    let kept = |keys: &BTreeSet<String>, pairs: &Option<BTreeMap<String, String>>| {
        pairs.iter().flatten().filter(|(key, _)| keys.contains(*key)).collect_labels()
    };
    let status = import.status.clone().unwrap_or_default();
    RecordedImport {
        uid: uid(metadata),
        managed: label(metadata, CREATED).is_some(),
        deleting: metadata.deletion_timestamp.is_some(),
        spec: import_spec(&import.spec),
        exported: Copied {
            labels: kept(&keys.labels, &metadata.labels),
            annotations: kept(&keys.annotations, &metadata.annotations),
        },
        derived: annotation(metadata, DERIVED_SERVICE).map(Arc::from),
        clusters: status.clusters.iter().map(|one| one.cluster.as_str().into()).collect(),
        ready: condition(&status.conditions, READY, metadata),
    }
}

fn import_spec(spec: &api::ServiceImportSpec) -> ImportSpec {
    let timeout = || {
        let config = spec.session_affinity_config.as_ref()?.client_ip.as_ref()?;
        u32::try_from(config.timeout_seconds?).ok()
    };
    ImportSpec {
        ports: spec.ports.iter().map(import_port).collect(),
        ips: spec.ips.iter().filter_map(|ip| ip.parse().ok()).collect(),
        import_type: match spec.import_type {
            api::ImportType::ClusterSetIP => ImportType::ClusterSetIp,
            api::ImportType::Headless => ImportType::Headless,
        },
        // Without a time it was not us, and is written anew.
        session_affinity: (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| timeout().unwrap_or_default()),
        families: spec.ip_families.iter().filter_map(|name| family(name)).collect(),
        internal_traffic_policy: policy(spec.internal_traffic_policy.as_deref()),
        traffic_distribution: spec.traffic_distribution.as_deref().map(Arc::from),
    }
}

fn import_port(port: &api::ImportPort) -> ImportPort {
    ImportPort {
        name: port.name.as_deref().unwrap_or_default().into(),
        protocol: protocol(port.protocol.as_deref()),
        app_protocol: port.app_protocol.as_deref().map(Arc::from),
        port: u16::try_from(port.port).unwrap_or_default(),
    }
}

/// The import that a derived Service of ours belongs to. None if it is not ours.
pub(super) fn derived_from(service: &Service) -> Option<ServiceName> {
    let metadata = service.meta();
    label(metadata, CREATED)?;
    Some(ServiceName::new(metadata.namespace.as_deref().unwrap_or_default(), label(metadata, IMPORT_NAME)?))
}

/// A Service of the name that an import derives.
pub(in crate::mirror) fn derived(service: &Service) -> RecordedDerived {
    let metadata = service.meta();
    let shared = spec(service);
    let wire = service.spec.as_ref();
    let ips = wire.and_then(|spec| spec.cluster_ips.as_ref()).into_iter().flatten();
    RecordedDerived {
        uid: uid(metadata),
        managed: derived_from(service).is_some(),
        import_uid: import_owner(metadata),
        deleting: metadata.deletion_timestamp.is_some(),
        cluster_ips: ips.filter_map(|ip| ip.parse().ok()).collect(),
        spec: DerivedSpec {
            ports: shared.ports.iter().map(ImportPort::from).collect(),
            families: shared.families,
            session_affinity: shared.session_affinity,
            internal_traffic_policy: policy(wire.and_then(|spec| spec.internal_traffic_policy.as_deref())),
            traffic_distribution: wire.and_then(|spec| spec.traffic_distribution.as_deref()).map(Arc::from),
        },
    }
}

/// An EndpointSlice of an import: the import, and what it is.
pub(super) fn import_slice(slice: &Slice) -> Option<(ServiceName, RecordedImportSlice)> {
    let metadata = slice.meta();
    let name = ServiceName::new(metadata.namespace.as_deref().unwrap_or_default(), label(metadata, IMPORT_NAME)?);
    let content = slice.content.clone()?;
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| ["Service", "ServiceImport"].contains(&owner.kind.as_str()));
    let text = |value: Option<&str>| -> Arc<str> { value.unwrap_or_default().into() };
    let nodes = content.endpoints.iter().zip(&slice.nodes);
    let nodes: BTreeMap<IpAddr, Arc<str>> =
        nodes.filter_map(|(endpoint, node)| Some((endpoint.address, node.clone()?))).collect();
    let slice = RecordedSlice {
        remote: text(label(metadata, REMOTE)),
        remote_uid: text(annotation(metadata, REMOTE_UID)),
        cluster_id: text(label(metadata, SOURCE_CLUSTER)),
        service_uid: text(owner.map(|owner| owner.uid.as_str())),
        content,
    };
    Some((name, RecordedImportSlice { slice, service_name: label(metadata, SERVICE_NAME).map(Arc::from), nodes }))
}

/// As Kubernetes writes a family.
pub(in crate::mirror) const fn family_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_import_gets_no_key_that_controllers_act_on_and_no_text_that_no_label_can_have() {
        let given = json!({
            "app": "web",
            "app.kubernetes.io/name": "web",
            "mirror.portolan.dev/created": "true",
            "tfw.io/barrelman": "managed-resource",
            "multicluster.kubernetes.io/derived-service": "x",
            "multicluster.x-k8s.io/managed": "x",
            "notportolan.dev/fine": "x",
            "no key": "x",
            "long": "x".repeat(64),
            "ends": "x-",
        });
        let given: BTreeMap<String, String> = serde_json::from_value(given).unwrap();
        let kept = exported(&given, is_label_value);
        let keys: Vec<&str> = kept.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["app", "app.kubernetes.io/name", "notportolan.dev/fine"]);
        let annotations = exported(&given, |_| true);
        assert!(annotations.get("long").is_some() && annotations.get("no key").is_none());
    }

    #[test]
    fn a_status_counts_only_if_it_speaks_of_the_export_as_it_is() {
        let condition = |kind: &str, generation: i64| {
            json!({ "type": kind, "status": "True", "reason": "Fine", "message": "", "observedGeneration": generation,
                    "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        let export = |generation: i64, kinds: &[&str]| -> ServiceExport {
            let conditions: Vec<_> = kinds.iter().map(|kind| condition(kind, 3)).collect();
            serde_json::from_value(json!({
                "apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceExport",
                "metadata": { "name": "web", "generation": generation }, "spec": {},
                "status": { "conditions": conditions },
            }))
            .unwrap()
        };
        let all = ["Valid", "Ready", "Conflict"];
        assert!(export_status(&export(3, &all)).is_some());
        assert!(export_status(&export(4, &all)).is_none());
        assert!(export_status(&export(3, &all[..2])).is_none());
    }
}
