//! The table of built-in kinds: one row each, names and shape from k8s-openapi, the rest as the real server's
//! discovery says.

use std::sync::{Arc, LazyLock};

use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, coordination::v1 as coordination, core::v1 as core,
    discovery::v1 as discovery, events::v1 as events, rbac::v1 as rbac,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as extensions;
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
pub(super) fn refer(group: &str, kind: &str) -> Option<Refer> {
    let row = rows().into_iter().find(|row| row.kind.group == group && row.kind.kind == kind);
    row.map(|row| row.refer)
}

fn rows() -> [Row; 22] {
    // The type, its short names, categories and subresources, and the fields that a selector may name.
    [
        of::<core::Namespace>("ns", "", "status", "status.phase"),
        of::<core::Node>("no", "", "status", "spec.unschedulable"),
        of::<core::Pod>("po", "all", "status", POD_FIELDS),
        of::<core::Service>("svc", "all", "status", "spec.clusterIP spec.type"),
        of::<core::Endpoints>("ep", "", "", ""),
        of::<core::ConfigMap>("cm", "", "", ""),
        of::<core::Secret>("", "", "", "type"),
        of::<core::ServiceAccount>("sa", "", "", ""),
        of::<core::Event>("ev", "", "", EVENT_FIELDS),
        of::<events::Event>("ev", "", "", EVENT_VIEW_FIELDS),
        of::<coordination::Lease>("", "", "", ""),
        of::<discovery::EndpointSlice>("", "", "", ""),
        of::<apps::Deployment>("deploy", "all", "status scale", ""),
        of::<apps::ReplicaSet>("rs", "all", "status scale", ""),
        of::<apps::DaemonSet>("ds", "all", "status", ""),
        of::<rbac::Role>("", "", "", ""),
        of::<rbac::RoleBinding>("", "", "", ""),
        of::<rbac::ClusterRole>("", "", "", ""),
        of::<rbac::ClusterRoleBinding>("", "", "", ""),
        of::<admission::ValidatingWebhookConfiguration>("", "api-extensions", "", ""),
        of::<admission::MutatingWebhookConfiguration>("", "api-extensions", "", ""),
        of::<extensions::CustomResourceDefinition>("crd crds", "api-extensions", "status", ""),
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
