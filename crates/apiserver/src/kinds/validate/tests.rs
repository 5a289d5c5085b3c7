use serde_json::json;

use super::super::{builtin, defaults, strategy};
use super::*;

fn kind(name: &str) -> Kind {
    builtin::all().into_iter().find(|kind| kind.kind == name).unwrap()
}

/// The fields of all errors of an object that was defaulted before, with the reasons in short.
fn errors(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<String> {
    let ready = |object: &Value| {
        let mut object = object.clone();
        defaults::default(kind, &mut object);
        object
    };
    let causes = validate(kind, &ready(new), old.map(ready).as_ref(), Strategy::Main);
    causes.iter().map(|cause| format!("{} {}", cause.reason.trim_start_matches("FieldValue"), cause.field)).collect()
}

fn with(name: &str, body: &Value) -> Value {
    let mut object = json!({ "metadata": { "name": name, "namespace": "n" } });
    object.as_object_mut().unwrap().extend(body.as_object().cloned().unwrap());
    object
}

#[test]
fn metadata_is_well_formed() {
    let custom = Kind { custom: true, ..kind("ConfigMap") };
    for (metadata, expected) in [
        (json!({ "name": "a.b", "labels": { "a.b/c": "d" }, "finalizers": ["plain"] }), vec![]),
        (json!({}), vec!["Required metadata.name"]),
        (json!({ "name": "n".repeat(253) }), vec![]),
        (json!({ "name": "n".repeat(254) }), vec!["Invalid metadata.name"]),
        (json!({ "name": "UPPER", "generateName": "gen-" }), vec!["Invalid metadata.name"]),
        (json!({ "name": "a", "labels": { "bad key": "" } }), vec!["Invalid metadata.labels"]),
        (json!({ "name": "a", "labels": { "k": "bad value!" } }), vec!["Invalid metadata.labels"]),
        (json!({ "name": "a", "annotations": { "a/b/c": "" } }), vec!["Invalid metadata.annotations"]),
        (json!({ "name": "a", "annotations": { "a": "x".repeat(262_143) } }), vec![]),
        (json!({ "name": "a", "annotations": { "a": "x".repeat(262_144) } }), vec!["TooLong metadata.annotations"]),
        (
            json!({ "name": "a", "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p" }] }),
            vec!["Invalid metadata.ownerReferences.uid"],
        ),
    ] {
        assert_eq!(errors(&custom, &json!({ "metadata": metadata }), None), expected, "{metadata}");
    }
    let plain = json!({ "metadata": { "name": "a", "finalizers": ["plain"] } });
    assert_eq!(errors(&kind("ConfigMap"), &plain, None), ["Invalid metadata.finalizers[0]"]);
    assert_eq!(errors(&kind("Namespace"), &json!({ "metadata": { "name": "a.b" } }), None), ["Invalid metadata.name"]);
    assert_eq!(errors(&kind("Role"), &json!({ "metadata": { "name": "A:b" } }), None), [""; 0]);
}

#[test]
fn an_update_keeps_the_identity_and_a_dying_object_takes_no_more_finalizers() {
    let custom = Kind { custom: true, ..kind("ConfigMap") };
    let old = json!({ "metadata": { "name": "x", "uid": "1", "deletionTimestamp": "t", "finalizers": ["a.b/c"] } });
    assert_eq!(errors(&custom, &old, Some(&old)), [""; 0]);
    let mut new = old.clone();
    new["metadata"]["uid"] = "2".into();
    new["metadata"]["finalizers"] = json!(["a.b/c", "a.b/d"]);
    assert_eq!(errors(&custom, &new, Some(&old)), ["Invalid metadata.uid", "Forbidden metadata.finalizers"]);
}

#[test]
fn values_of_built_in_kinds_follow_their_marks() {
    let container = |more: Value| {
        let mut container = json!({ "name": "c", "image": "i" });
        json_patch::merge(&mut container, &more);
        json!({ "spec": { "containers": [container] } })
    };
    for (name, body, expected) in [
        ("Pod", json!({ "spec": {} }), vec!["Required spec.containers"]),
        ("Pod", container(json!({})), vec![]),
        ("Pod", container(json!({ "name": "Bad_Name" })), vec!["Invalid spec.containers[0].name"]),
        ("Pod", container(json!({ "image": null })), vec!["Required spec.containers[0].image"]),
        (
            "Pod",
            container(json!({ "ports": [{ "containerPort": 70000 }] })),
            vec!["Invalid spec.containers[0].ports[0].containerPort"],
        ),
        ("Lease", json!({ "spec": { "leaseDurationSeconds": 0 } }), vec!["Invalid spec.leaseDurationSeconds"]),
        ("EndpointSlice", json!({ "addressType": "IPv5", "endpoints": [] }), vec!["NotSupported addressType"]),
        (
            "Endpoints",
            json!({ "subsets": [{ "addresses": [{ "ip": "nowhere" }] }] }),
            vec!["Invalid subsets[0].addresses[0].ip"],
        ),
        (
            "ReplicaSet",
            json!({ "spec": { "replicas": -1, "selector": {}, "template": container(json!({})) } }),
            vec!["Invalid spec.replicas"],
        ),
    ] {
        assert_eq!(errors(&kind(name), &with("x", &body), None), expected, "{name} {body}");
    }
}

#[test]
fn some_fields_never_change() {
    let template = |label: &str| json!({ "metadata": { "labels": { "a": label } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let set = |label: &str| {
        with("x", &json!({ "spec": { "selector": { "matchLabels": { "a": label } }, "template": template(label) } }))
    };
    for name in ["DaemonSet", "Deployment"] {
        assert_eq!(errors(&kind(name), &set("b"), Some(&set("b"))), [""; 0]);
        assert_eq!(errors(&kind(name), &set("c"), Some(&set("b"))), ["Invalid spec.selector"]);
    }
    let slice = |family: &str| with("x", &json!({ "addressType": family, "endpoints": [] }));
    assert_eq!(errors(&kind("EndpointSlice"), &slice("IPv6"), Some(&slice("IPv4"))), ["Invalid addressType"]);
    let map = |value: &str| with("x", &json!({ "immutable": true, "data": { "k": value } }));
    assert_eq!(errors(&kind("ConfigMap"), &map("2"), Some(&map("1"))), ["Forbidden data"]);
    let pod = |image: &str, node: &str| {
        with("x", &json!({ "spec": { "nodeName": node, "containers": [{ "name": "c", "image": image }] } }))
    };
    assert_eq!(errors(&kind("Pod"), &pod("i:2", "n"), Some(&pod("i:1", "n"))), [""; 0]);
    assert_eq!(errors(&kind("Pod"), &pod("i:1", "m"), Some(&pod("i:1", "n"))), ["Forbidden spec"]);
}

#[test]
fn fields_fit_one_another() {
    let service = |spec: Value| json!({ "spec": spec });
    let hook = json!({
        "name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": { "url": "https://h/" },
        "rules": [{ "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"] }],
    });
    let template =
        json!({ "metadata": { "labels": { "a": "c" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    for (name, body, expected) in [
        ("Service", service(json!({})), vec!["Required spec.ports"]),
        ("Service", service(json!({ "clusterIP": "None" })), vec![]),
        ("Service", service(json!({ "type": "ExternalName" })), vec!["Required spec.externalName"]),
        (
            "Service",
            service(json!({ "ports": [{ "port": 1 }, { "port": 2 }] })),
            vec!["Required spec.ports[0].name", "Required spec.ports[1].name"],
        ),
        (
            "Service",
            service(json!({ "ports": [{ "name": "a", "port": 1 }, { "name": "a", "port": 1 }] })),
            vec!["Duplicate spec.ports[1].name", "Duplicate spec.ports[1]"],
        ),
        (
            "Service",
            service(json!({ "ports": [{ "port": 0 }] })),
            vec!["Invalid spec.ports[0].port", "Invalid spec.ports[0].targetPort"],
        ),
        ("ConfigMap", json!({ "data": { "bad key": "" } }), vec!["Invalid data[bad key]"]),
        ("Secret", json!({ "type": "kubernetes.io/tls", "data": { "tls.crt": "" } }), vec!["Required data[tls.key]"]),
        (
            "Deployment",
            json!({ "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": template } }),
            vec!["Invalid spec.template.metadata.labels"],
        ),
        ("ValidatingWebhookConfiguration", json!({ "webhooks": [hook] }), vec![]),
        ("ValidatingWebhookConfiguration", json!({ "webhooks": [hook, hook] }), vec!["Duplicate webhooks[1].name"]),
    ] {
        let name = kind(name);
        assert_eq!(errors(&name, &with("x", &body), None), expected, "{} {body}", name.kind);
    }
}

#[test]
fn no_input_makes_defaults_or_validation_panic() {
    let odd =
        [json!(null), json!([]), json!(1), json!("x"), json!({}), json!([{}, null, 1]), json!({ "x": { "y": [1] } })];
    for kind in builtin::all() {
        for name in kind.schema.properties.keys() {
            for value in &odd {
                let mut object = json!({ "metadata": { "name": "x", "namespace": "n" }, name.as_str(): value });
                let old = object.clone();
                defaults::default(&kind, &mut object);
                strategy::prepare_for_create(&kind, &mut object);
                drop(validate(&kind, &object, None, Strategy::Main));
                for part in [Strategy::Main, Strategy::Status] {
                    strategy::prepare_for_update(&kind, &mut object, &old, part);
                    drop(validate(&kind, &object, Some(&old), part));
                }
            }
        }
    }
}
