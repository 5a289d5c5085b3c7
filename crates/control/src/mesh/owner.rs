//! Who owns something on a proxy: an object of the mesh, or a Service.

use k8s_openapi::api::core::v1::ObjectReference;
use portolan_core::mesh::control::types::{MeshKind, ObjectName};

pub(super) type Owner = (MeshKind, ObjectName);

/// An object as people name it.
pub(super) fn display((kind, name): &Owner) -> String {
    format!("{} {name}", kind.as_str())
}

/// An object of the mesh, or a Service, as events name it.
pub(super) fn reference((kind, name): &Owner, uid: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Some(if *kind == MeshKind::Service { "v1" } else { "l7mp.io/v1" }.to_owned()),
        kind: Some(kind.as_str().to_owned()),
        name: Some(name.name.to_string()),
        namespace: Some(name.namespace.to_string()),
        uid,
        ..ObjectReference::default()
    }
}
