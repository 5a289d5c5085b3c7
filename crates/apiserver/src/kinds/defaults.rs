//! Defaults of built-in kinds. Those that are the same for every object of a type stand in `markers.txt`; here are
//! those that depend on other fields.

use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::Kind;
use super::autoscaler;
use super::canonical::canonical;
use crate::json::{fill, items, list, put, text};
use crate::schema;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Brings the object into canonical form and fills in defaults; for a custom kind nothing is done here.
pub fn default(kind: &Kind, new: &mut Value) {
    if kind.custom || !new.is_object() {
        return;
    }
    canonical(&kind.schema, new);
    match kind.kind.as_str() {
        "Pod" => {
            pod_spec(&mut new["spec"]);
            fill(&mut new["spec"], "enableServiceLinks", true);
        }
        "Service" => service(new),
        "Namespace" => namespace(new),
        "Secret" => secret(new),
        "Deployment" | "ReplicaSet" => template(new, "strategy"),
        "DaemonSet" => template(new, "updateStrategy"),
        "StatefulSet" => stateful_set(new),
        "PodTemplate" => new.pointer_mut("/template/spec").into_iter().for_each(pod_spec),
        "ReplicationController" => replication_controller(new),
        "Job" => job(new),
        "CronJob" => new.pointer_mut("/spec/jobTemplate").into_iter().for_each(|job| template(job, "")),
        "NetworkPolicy" => network_policy(new),
        "HorizontalPodAutoscaler" if autoscaler::is_view(kind) => autoscaler::default_view(new),
        "HorizontalPodAutoscaler" => autoscaling(new),
        "LimitRange" => items(&mut new["spec"], "limits").for_each(limits),
        "RoleBinding" | "ClusterRoleBinding" => binding(new),
        "CustomResourceDefinition" => definition(new),
        _ => {}
    }
    schema::default::default(&kind.schema, new);
    canonical(&kind.schema, new);
}

/// What pods and templates share.
fn pod_spec(spec: &mut Value) {
    for key in ["containers", "initContainers"] {
        for container in items(spec, key) {
            let policy = if is_latest(text(container, "/image")) { "Always" } else { "IfNotPresent" };
            fill(container, "imagePullPolicy", policy);
        }
    }
}

/// Whether an image has the tag `latest`, by name or because it names neither tag nor digest.
fn is_latest(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or(image);
    !last.is_empty() && !last.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn template(new: &mut Value, strategy: &str) {
    if let Some(spec) = new.pointer_mut("/spec/template/spec") {
        pod_spec(spec);
    }
    if let Some(strategy) = new.pointer_mut(&format!("/spec/{strategy}"))
        && matches!(text(strategy, "/type"), "" | "RollingUpdate")
    {
        fill(strategy, "rollingUpdate", json!({}));
    }
}

/// Without a selector it has the pods of its template, and without labels those of its pods.
fn replication_controller(new: &mut Value) {
    template(new, "");
    let Some(labels) = new.pointer("/spec/template/metadata/labels").cloned() else { return };
    fill(&mut new["spec"], "selector", labels.clone());
    fill(&mut new["metadata"], "labels", labels);
}

/// Its templates of claims say what they are.
fn stateful_set(new: &mut Value) {
    template(new, "updateStrategy");
    for claim in items(&mut new["spec"], "volumeClaimTemplates") {
        fill(claim, "apiVersion", "v1");
        fill(claim, "kind", "PersistentVolumeClaim");
    }
}

/// The template of a `CronJob` gets these defaults only in the Jobs that are made of it.
fn job(new: &mut Value) {
    template(new, "");
    if let Some(labels) = new.pointer("/spec/template/metadata/labels").cloned() {
        fill(&mut new["metadata"], "labels", labels);
    }
    let Some(spec) = new.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    let [per_index, on_failure] = ["backoffLimitPerIndex", "podFailurePolicy"].map(|field| spec.get(field).is_some());
    if spec.get("parallelism").is_none() {
        fill(spec, "completions", 1);
    }
    fill(spec, "parallelism", 1);
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    fill(spec, "manualSelector", false);
    fill(spec, "backoffLimit", if per_index { i32::MAX } else { 6 });
    fill(spec, "podReplacementPolicy", if on_failure { "Failed" } else { "TerminatingOrFailed" });
}

fn network_policy(new: &mut Value) {
    let spec = &mut new["spec"];
    let types = if list(spec, "/egress").is_empty() { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
    fill(spec, "policyTypes", types);
}

fn autoscaling(new: &mut Value) {
    autoscaler::default(&mut new["spec"]);
    let Some(behavior) = new.pointer_mut("/spec/behavior").filter(|behavior| behavior.is_object()) else { return };
    let policy = |type_: &str, value: i32| json!({ "type": type_, "value": value, "periodSeconds": 15 });
    for (direction, policies) in [
        ("scaleUp", json!([policy("Pods", 4), policy("Percent", 100)])),
        ("scaleDown", json!([policy("Percent", 100)])),
    ] {
        fill(behavior, direction, json!({}));
        let rules = &mut behavior[direction];
        fill(rules, "selectPolicy", "Max");
        fill(rules, "policies", policies);
        if direction == "scaleUp" {
            fill(rules, "stabilizationWindowSeconds", 0);
        }
    }
}

/// Limits of containers: a default that is not given is the maximum, and a request the default or the minimum.
fn limits(item: &mut Value) {
    if text(item, "/type") != "Container" {
        return;
    }
    for (field, sources) in [("default", &["max"][..]), ("defaultRequest", &["default", "min"])] {
        fill(item, field, json!({}));
        for source in sources {
            let given = item.get(source).and_then(Value::as_object).cloned().unwrap_or_default();
            for (resource, quantity) in given {
                fill(&mut item[field], &resource, quantity);
            }
        }
    }
}

fn service(new: &mut Value) {
    let spec = &mut new["spec"];
    for port in items(spec, "ports").filter(|port| port["targetPort"] == 0 || port["targetPort"] == "") {
        let number = port["port"].clone();
        put(port, "targetPort", number);
    }
    let type_ = text(spec, "/type").to_owned();
    if type_ != "ExternalName" {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if matches!(type_.as_str(), "LoadBalancer" | "NodePort") {
        fill(spec, "externalTrafficPolicy", "Cluster");
    }
    if type_ == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
    }
}

fn namespace(new: &mut Value) {
    let metadata = &mut new["metadata"];
    fill(metadata, "labels", json!({}));
    let name = metadata["name"].clone();
    if let Some(labels) = metadata.get_mut("labels") {
        put(labels, "kubernetes.io/metadata.name", name);
    }
}

fn secret(new: &mut Value) {
    let Some(map) = new.as_object_mut() else { return };
    let Some(Value::Object(plain)) = map.remove("stringData") else { return };
    let data = map.entry("data").or_insert_with(|| Value::Object(Map::new()));
    for (key, value) in plain {
        let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
        put(data, &key, encoded);
    }
}

fn binding(new: &mut Value) {
    if text(new, "/roleRef/apiGroup").is_empty() {
        put(&mut new["roleRef"], "apiGroup", RBAC);
    }
    for subject in items(new, "subjects") {
        if matches!(text(subject, "/kind"), "User" | "Group") {
            fill(subject, "apiGroup", RBAC);
        }
    }
}

fn definition(new: &mut Value) {
    let kind = text(new, "/spec/names/kind").to_owned();
    if let Some(names) = new.pointer_mut("/spec/names") {
        fill(names, "singular", kind.to_lowercase());
        if !kind.is_empty() {
            fill(names, "listKind", format!("{kind}List"));
        }
    }
    let stored = list(new, "/spec/versions").iter().find(|version| version["storage"] == true);
    let stored = stored.map(|version| text(version, "/name").to_owned());
    if let Some(stored) = stored.filter(|_| list(new, "/status/storedVersions").is_empty()) {
        put(&mut new["status"], "storedVersions", json!([stored]));
    }
}

#[cfg(test)]
mod tests {
    use super::super::builtin;
    use super::*;

    fn defaulted(kind: &str, mut object: Value) -> Value {
        let kind = builtin::all().into_iter().find(|each| each.kind == kind).unwrap();
        default(&kind, &mut object);
        let once = object.clone();
        default(&kind, &mut object);
        assert_eq!(object, once, "defaults of defaults");
        object
    }

    #[test]
    fn images_without_tag_or_digest_are_latest() {
        for (image, latest) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("host:5000/nginx", true),
            ("nginx:1.2", false),
            ("nginx@sha256:abc", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }

    #[test]
    fn a_service_says_by_its_type_where_traffic_goes() {
        let spec = |type_: &str| {
            let object = json!({ "metadata": {}, "spec": { "type": type_, "ports": [{ "port": 80 }] } });
            defaulted("Service", object)["spec"].clone()
        };
        let inside = spec("ClusterIP");
        assert_eq!(inside["ports"], json!([{ "port": 80, "protocol": "TCP", "targetPort": 80 }]));
        assert_eq!((&inside["internalTrafficPolicy"], inside.get("externalTrafficPolicy")), (&json!("Cluster"), None));
        assert_eq!(spec("LoadBalancer")["externalTrafficPolicy"], "Cluster");
        assert_eq!(spec("LoadBalancer")["allocateLoadBalancerNodePorts"], true);
        assert_eq!(spec("ExternalName").get("internalTrafficPolicy"), None);
    }

    #[test]
    fn a_template_gets_the_defaults_of_a_pod_and_a_rolling_update() {
        let template = json!({ "spec": { "containers": [{ "name": "c", "image": "i" }] } });
        let set = defaulted("DaemonSet", json!({ "spec": { "template": template } }));
        assert_eq!(set["spec"]["template"]["spec"]["restartPolicy"], "Always");
        assert_eq!(set["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"], "Always");
        let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } });
        assert_eq!(set["spec"]["updateStrategy"], rolling);
        let kept = json!({ "spec": { "strategy": { "type": "Recreate" } } });
        assert_eq!(defaulted("Deployment", kept)["spec"]["strategy"], json!({ "type": "Recreate" }));
    }

    #[test]
    fn plain_texts_of_a_secret_are_encoded_over_its_data() {
        let secret = defaulted("Secret", json!({ "data": { "a": "AA==", "b": "AA==" }, "stringData": { "a": "x" } }));
        assert_eq!(secret["data"], json!({ "a": "eA==", "b": "AA==" }));
        assert_eq!((&secret["type"], secret.get("stringData")), (&json!("Opaque"), None));
    }
}
