//! What the bookkeeping has to know of kinds: fields that a request cannot set, and what an empty object is.

use serde_json::{Value, json};

use super::fields::Set;
use crate::kinds::Kind;

/// Fields that a write to the (sub)resource resets anyway, so nobody comes to own them by it.
pub(super) fn reset_fields(kind: &Kind, subresource: &str) -> Set {
    if subresource == "status" {
        if kind.custom {
            return Set::of_fields(&[&["metadata"], &["spec"]]);
        }
        return match kind.kind.as_str() {
            "Deployment" => Set::of_fields(&[&["spec"], &["metadata", "labels"]]),
            "Pod" => Set::of_fields(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]),
            "ValidatingAdmissionPolicy" => Set::of_fields(&[&["spec"], &["metadata"]]),
            _ => Set::of_fields(&[&["spec"]]),
        };
    }
    if kind.status { Set::of_fields(&[&["status"]]) } else { Set::default() }
}

/// Fields of every object that are nobody's.
pub(super) fn unowned() -> Set {
    Set::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
}

/// An object of the kind with nothing set. Built-in kinds have parts that are always there, though empty; nobody owns
/// those for making the object.
pub(super) fn empty_object(kind: &Kind) -> Value {
    let mut object = if kind.custom { json!({}) } else { built_in(&kind.group, &kind.kind) };
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.as_str().into();
    object
}

fn built_in(group: &str, kind: &str) -> Value {
    let template = || json!({ "metadata": {}, "spec": { "containers": null } });
    match (group, kind) {
        ("", "Namespace") | ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            json!({ "metadata": {}, "spec": {}, "status": {} })
        }
        ("", "Node") => json!({ "metadata": {}, "spec": {}, "status": {
            "daemonEndpoints": { "kubeletEndpoint": { "Port": 0 } },
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
                "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
                "operatingSystem": "", "architecture": "",
            },
        } }),
        ("", "Pod") => json!({ "metadata": {}, "spec": { "containers": null }, "status": {} }),
        ("", "Service") => json!({ "metadata": {}, "spec": {}, "status": { "loadBalancer": {} } }),
        ("", "Event") => json!({
            "metadata": {}, "involvedObject": {}, "source": {}, "firstTimestamp": null, "lastTimestamp": null,
            "eventTime": null, "reportingComponent": "", "reportingInstance": "",
        }),
        ("events.k8s.io", "Event") => json!({
            "metadata": {}, "eventTime": null, "regarding": {}, "deprecatedSource": {},
            "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
        }),
        ("apps", "Deployment") => json!({
            "metadata": {}, "spec": { "selector": null, "template": template(), "strategy": {} }, "status": {},
        }),
        ("apps", "DaemonSet") => json!({
            "metadata": {}, "spec": { "selector": null, "template": template(), "updateStrategy": {} },
            "status": {
                "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
            },
        }),
        ("apps", "ReplicaSet") => json!({
            "metadata": {}, "spec": { "selector": null, "template": template() }, "status": { "replicas": 0 },
        }),
        ("apps", "StatefulSet") => json!({
            "metadata": {},
            "spec": { "selector": null, "template": template(), "serviceName": "", "updateStrategy": {} },
            "status": { "replicas": 0, "availableReplicas": 0 },
        }),
        ("coordination.k8s.io", "Lease") => json!({ "metadata": {}, "spec": {} }),
        ("discovery.k8s.io", "EndpointSlice") => {
            json!({ "metadata": {}, "addressType": "", "endpoints": null, "ports": null })
        }
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => json!({ "metadata": {}, "rules": null }),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            json!({ "metadata": {}, "roleRef": { "apiGroup": "", "kind": "", "name": "" } })
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => json!({
            "metadata": {},
            "spec": { "group": "", "names": { "plural": "", "kind": "" }, "scope": "", "versions": null },
            "status": { "conditions": null, "acceptedNames": { "plural": "", "kind": "" }, "storedVersions": null },
        }),
        _ => json!({ "metadata": {} }),
    }
}
