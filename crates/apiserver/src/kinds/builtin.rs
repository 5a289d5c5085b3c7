//! The table of built-in kinds: one row each, names and shape from k8s-openapi, the rest as the real server's
//! discovery says.

use std::sync::{Arc, LazyLock};

use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, autoscaling, batch::v1 as batch,
    certificates::v1 as certificates, coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery,
    events::v1 as events, flowcontrol::v1 as flowcontrol, networking::v1 as networking, node::v1 as node,
    policy::v1 as policy, rbac::v1 as rbac, scheduling::v1 as scheduling, storage::v1 as storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as extensions;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as registration;
use k8s_openapi::{ClusterResourceScope, ListableResource, NamespaceResourceScope};
use schemars::{JsonSchema, SchemaGenerator};

use super::{Kind, Scale, columns, openapi};

/// Adds a type to a generator and names its definition.
pub(super) type Refer = fn(&mut SchemaGenerator) -> String;

const POD_FIELDS: &str = "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork \
                          status.phase status.podIP status.podIPs status.nominatedNodeName";
const EVENT_FIELDS: &str = "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid \
                            involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason \
                            reportingComponent source type";
const EVENT_VIEW_FIELDS: &str = "regarding.kind regarding.namespace regarding.name regarding.uid regarding.apiVersion \
                                 regarding.resourceVersion regarding.fieldPath reason reportingController type";
const ENDPOINTS_WARNING: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

/// Every built-in kind, with its schema.
pub fn all() -> Vec<Kind> {
    static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
        let whole = |Row { kind, refer }| Kind { schema: Arc::new(openapi::schema_of(refer)), ..kind };
        rows().into_iter().map(whole).collect()
    });
    KINDS.clone()
}

/// The type behind a kind.
pub(super) fn refer(kind: &Kind) -> Option<Refer> {
    let named = |kind: &Kind| (kind.group.clone(), kind.version.clone(), kind.kind.clone());
    let row = rows().into_iter().find(|row| named(&row.kind) == named(kind));
    row.map(|row| row.refer)
}

fn rows() -> Vec<Row> {
    // The type, its short names, categories and subresources, and the fields that a selector may name.
    vec![
        of::<core::Namespace>("ns", "", "status", "status.phase"),
        of::<core::Node>("no", "", "status", "spec.unschedulable"),
        of::<core::Pod>("po", "all", "status", POD_FIELDS),
        of::<core::Service>("svc", "all", "status", "spec.clusterIP spec.type"),
        of::<core::Endpoints>("ep", "", "", ""),
        of::<core::ConfigMap>("cm", "", "", ""),
        of::<core::Secret>("", "", "", "type"),
        of::<core::ServiceAccount>("sa", "", "", ""),
        of::<core::PersistentVolume>("pv", "", "status", ""),
        of::<core::PersistentVolumeClaim>("pvc", "", "status", ""),
        of::<core::PodTemplate>("", "", "", ""),
        of::<core::ReplicationController>("rc", "all", "status scale", "status.replicas"),
        of::<core::ResourceQuota>("quota", "", "status", ""),
        of::<core::LimitRange>("limits", "", "", ""),
        of::<core::Event>("ev", "", "", EVENT_FIELDS),
        of::<events::Event>("ev", "", "", EVENT_VIEW_FIELDS),
        of::<coordination::Lease>("", "", "", ""),
        of::<discovery::EndpointSlice>("", "", "", ""),
        of::<apps::Deployment>("deploy", "all", "status scale", ""),
        of::<apps::ReplicaSet>("rs", "all", "status scale", "status.replicas"),
        of::<apps::DaemonSet>("ds", "all", "status", ""),
        of::<apps::StatefulSet>("sts", "all", "status scale", ""),
        of::<apps::ControllerRevision>("", "", "", ""),
        of::<batch::Job>("", "all", "status", "status.successful"),
        of::<batch::CronJob>("cj", "all", "status", ""),
        of::<autoscaling::v2::HorizontalPodAutoscaler>("hpa", "all", "status", ""),
        of::<autoscaling::v1::HorizontalPodAutoscaler>("hpa", "all", "status", ""),
        of::<policy::PodDisruptionBudget>("pdb", "", "status", ""),
        of::<networking::Ingress>("ing", "", "status", ""),
        of::<networking::IngressClass>("", "", "", ""),
        of::<networking::NetworkPolicy>("netpol", "", "", ""),
        of::<scheduling::PriorityClass>("pc", "", "", ""),
        of::<node::RuntimeClass>("", "", "", ""),
        of::<storage::StorageClass>("sc", "", "", ""),
        of::<storage::CSIDriver>("", "", "", ""),
        of::<storage::CSINode>("", "", "", ""),
        of::<certificates::CertificateSigningRequest>("csr", "", "status", "spec.signerName"),
        of::<flowcontrol::FlowSchema>("", "", "status", ""),
        of::<flowcontrol::PriorityLevelConfiguration>("", "", "status", ""),
        of::<rbac::Role>("", "", "", ""),
        of::<rbac::RoleBinding>("", "", "", ""),
        of::<rbac::ClusterRole>("", "", "", ""),
        of::<rbac::ClusterRoleBinding>("", "", "", ""),
        of::<admission::ValidatingWebhookConfiguration>("", "api-extensions", "", ""),
        of::<admission::MutatingWebhookConfiguration>("", "api-extensions", "", ""),
        of::<extensions::CustomResourceDefinition>("crd crds", "api-extensions", "status", ""),
        of::<registration::APIService>("", "api-extensions", "status", ""),
    ]
}

/// A kind without its schema, and where that comes from.
struct Row {
    kind: Kind,
    refer: Refer,
}

/// Whether objects of a kind live in namespaces, from the type of its scope.
trait Scoped {
    const NAMESPACED: bool;
}

impl Scoped for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl Scoped for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

fn of<T>(short_names: &str, categories: &str, subresources: &str, fields: &str) -> Row
where
    T: ListableResource + JsonSchema,
    T::Scope: Scoped,
{
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let scale = || Scale {
        spec_replicas: ".spec.replicas".to_owned(),
        status_replicas: ".status.replicas".to_owned(),
        label_selector: Some(".spec.selector".to_owned()),
    };
    let kind = Kind {
        group: T::GROUP.to_owned(),
        version: T::VERSION.to_owned(),
        kind: T::KIND.to_owned(),
        list_kind: T::LIST_KIND.to_owned(),
        plural: T::URL_PATH_SEGMENT.to_owned(),
        singular: T::KIND.to_lowercase(),
        short_names: words(short_names),
        categories: words(categories),
        namespaced: T::Scope::NAMESPACED,
        status: subresources.contains("status"),
        scale: subresources.contains("scale").then(scale),
        schema: Arc::default(),
        columns: columns::of(T::KIND),
        selectable_fields: words(fields),
        storage_version: T::VERSION.to_owned(),
        warning: (T::KIND == "Endpoints").then(|| ENDPOINTS_WARNING.to_owned()),
        custom: false,
        defined_at: 0,
    };
    let refer = |generator: &mut SchemaGenerator| {
        generator.subschema_for::<T>();
        T::schema_name().into_owned()
    };
    Row { kind, refer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_discovery() {
        let kinds = all();
        let endpoints = kinds.iter().find(|kind| kind.kind == "Endpoints").unwrap();
        assert_eq!((endpoints.plural.as_str(), endpoints.singular.as_str()), ("endpoints", "endpoints"));
        let crd = kinds.iter().find(|kind| kind.kind == "CustomResourceDefinition").unwrap();
        assert_eq!(crd.plural, "customresourcedefinitions");
        assert!(!crd.namespaced && crd.status);
        assert_eq!(crd.api_version(), "apiextensions.k8s.io/v1");
        assert_eq!(kinds.iter().filter(|kind| kind.kind == "Event").count(), 2);
    }

    #[test]
    fn every_kind_has_an_object_schema_and_columns() {
        for kind in all() {
            assert!(kind.schema.properties.contains_key("metadata"), "{} has no metadata", kind.kind);
            assert!(!kind.columns.is_empty(), "{} has no columns", kind.kind);
        }
    }
}
