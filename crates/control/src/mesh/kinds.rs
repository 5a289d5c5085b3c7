//! The kinds of the mesh, and what the operator does with each.

use std::sync::Arc;

use kube::api::DynamicObject;
use portolan_core::mesh::control::{MeshObject, ObjectOrigin, origin};

use super::validate::labels;
use crate::runtime::capability::{Kind, Leftover};

const GROUP: &str = "l7mp.io";
const VERSION: &str = "v1";

pub(super) const KINDS: &[Kind] = &[
    Kind::namespaced(GROUP, VERSION, "VirtualService", "virtualservices")
        .planned()
        .verbs(&["list", "watch", "create", "update", "patch", "delete"])
        .status(&["patch"])
        .purpose("Mesh objects: writes generated VirtualServices and Targets, and reports on all")
        .leaves(Leftover::Objects(is_generated)),
    Kind::namespaced(GROUP, VERSION, "Target", "targets")
        .planned()
        .verbs(&["list", "watch", "create", "update", "patch", "delete"])
        .status(&["patch"])
        .leaves(Leftover::Objects(is_generated)),
    Kind::namespaced(GROUP, VERSION, "Route", "routes").planned().verbs(&["list", "watch", "patch"]).status(&["patch"]),
    Kind::namespaced(GROUP, VERSION, "Rule", "rules").planned().verbs(&["list", "watch", "patch"]).status(&["patch"]),
    Kind::namespaced("", "v1", "Service", "services").planned().purpose("What names refer to"),
    Kind::namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices").planned(),
    Kind::namespaced("", "v1", "Pod", "pods").planned(),
    Kind::cluster("", "v1", "Namespace", "namespaces").planned(),
    Kind::namespaced("", "v1", "Secret", "secrets")
        .named_by("mesh-proxy-token-secret")
        .purpose("Tokens of proxies, each in the namespace of its proxies, and no other Secret"),
];

/// Generated for a reference, and not changed by a user since.
fn is_generated(object: &DynamicObject) -> bool {
    let object = MeshObject {
        labels: labels(object.metadata.labels.as_ref()),
        annotations: labels(object.metadata.annotations.as_ref()),
        spec: Arc::new(object.data.get("spec").cloned().unwrap_or_default()),
        ..MeshObject::default()
    };
    origin(&object) == ObjectOrigin::Generated
}
