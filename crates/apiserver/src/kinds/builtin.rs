//! The table of built-in kinds: one row each, names and shape from k8s-openapi, the rest as the real server's
//! discovery says.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1 as admission;
use k8s_openapi::api::{
    apps::v1 as apps, coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery,
};
use k8s_openapi::api::{events::v1 as events, policy::v1 as policy, rbac::v1 as rbac};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as extensions;
use k8s_openapi::{ClusterResourceScope, ListableResource, NamespaceResourceScope};
use schemars::{JsonSchema, SchemaGenerator};

use super::{Kind, Scale, columns, openapi};

/// What the table says of one kind.
pub(super) struct Row {
    group: &'static str,
    version: &'static str,
    pub(super) kind: &'static str,
    list_kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    status: bool,
    scale: bool,
    selectable_fields: &'static [&'static str],
    /// Adds the type to a generator and names its definition.
    pub(super) refer: fn(&mut SchemaGenerator) -> String,
}

const ENDPOINTS_WARNING: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

/// Every built-in kind, with its schema. Costs some milliseconds: compute it once.
pub fn all() -> Vec<Kind> {
    rows().iter().map(Row::to_kind).collect()
}

/// Whether there is such a built-in kind.
pub fn is_known(group: &str, version: &str, kind: &str) -> bool {
    row(group, kind).is_some_and(|row| row.version == version)
}

/// The row of a kind.
pub(super) fn row(group: &str, kind: &str) -> Option<Row> {
    rows().into_iter().find(|row| row.group == group && row.kind == kind)
}

fn rows() -> [Row; 26] {
    const ALL: &[&str] = &["all"];
    const API: &[&str] = &["api-extensions"];
    [
        of::<core::Namespace>().short(&["ns"]).status().fields(&["status.phase"]),
        of::<core::Node>().short(&["no"]).status().fields(&["spec.unschedulable"]),
        of::<core::Pod>().short(&["po"]).categories(ALL).status().fields(&[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ]),
        of::<core::Service>().short(&["svc"]).categories(ALL).status().fields(&["spec.clusterIP", "spec.type"]),
        of::<core::Endpoints>().short(&["ep"]),
        of::<core::ConfigMap>().short(&["cm"]),
        of::<core::Secret>().fields(&["type"]),
        of::<core::ServiceAccount>().short(&["sa"]),
        of::<core::Event>().short(&["ev"]).fields(&[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]),
        of::<events::Event>().short(&["ev"]).fields(&[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ]),
        of::<coordination::Lease>(),
        of::<discovery::EndpointSlice>(),
        of::<apps::Deployment>().short(&["deploy"]).categories(ALL).status().scale(),
        of::<apps::ReplicaSet>().short(&["rs"]).categories(ALL).status().scale(),
        of::<apps::DaemonSet>().short(&["ds"]).categories(ALL).status(),
        of::<apps::StatefulSet>().short(&["sts"]).categories(ALL).status().scale(),
        of::<rbac::Role>(),
        of::<rbac::RoleBinding>(),
        of::<rbac::ClusterRole>(),
        of::<rbac::ClusterRoleBinding>(),
        of::<admission::ValidatingWebhookConfiguration>().categories(API),
        of::<admission::MutatingWebhookConfiguration>().categories(API),
        of::<admission::ValidatingAdmissionPolicy>().categories(API).status(),
        of::<admission::ValidatingAdmissionPolicyBinding>().categories(API),
        of::<extensions::CustomResourceDefinition>().short(&["crd", "crds"]).categories(API).status(),
        of::<policy::PodDisruptionBudget>().short(&["pdb"]).status(),
    ]
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

fn of<T>() -> Row
where
    T: ListableResource + JsonSchema,
    T::Scope: Scoped,
{
    Row {
        group: T::GROUP,
        version: T::VERSION,
        kind: T::KIND,
        list_kind: T::LIST_KIND,
        plural: T::URL_PATH_SEGMENT,
        namespaced: T::Scope::NAMESPACED,
        short_names: &[],
        categories: &[],
        status: false,
        scale: false,
        selectable_fields: &[],
        refer: |generator| {
            generator.subschema_for::<T>();
            T::schema_name().into_owned()
        },
    }
}

impl Row {
    fn short(self, short_names: &'static [&'static str]) -> Self {
        Self { short_names, ..self }
    }

    fn categories(self, categories: &'static [&'static str]) -> Self {
        Self { categories, ..self }
    }

    fn status(self) -> Self {
        Self { status: true, ..self }
    }

    fn scale(self) -> Self {
        Self { scale: true, ..self }
    }

    fn fields(self, selectable_fields: &'static [&'static str]) -> Self {
        Self { selectable_fields, ..self }
    }

    fn to_kind(&self) -> Kind {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Kind {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            kind: self.kind.to_owned(),
            list_kind: self.list_kind.to_owned(),
            plural: self.plural.to_owned(),
            singular: self.kind.to_lowercase(),
            short_names: owned(self.short_names),
            categories: owned(self.categories),
            namespaced: self.namespaced,
            status: self.status,
            scale: self.scale.then(|| Scale {
                spec_replicas: ".spec.replicas".to_owned(),
                status_replicas: ".status.replicas".to_owned(),
                label_selector: Some(".spec.selector".to_owned()),
            }),
            schema: Arc::new(openapi::schema_of(self.refer)),
            columns: columns::of(self.kind),
            selectable_fields: owned(self.selectable_fields),
            storage_version: self.version.to_owned(),
            warning: (self.kind == "Endpoints").then(|| ENDPOINTS_WARNING.to_owned()),
            custom: false,
        }
    }
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
