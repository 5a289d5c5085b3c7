//! Replays stories that the real kube-apiserver 1.36.4 answered (`recorded.json`): each step has the request, the
//! object before it and the answer. What admission, defaults and validation add is taken from the answer.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::apply::{self, FieldManager};
use super::{json as json_patch, merge, normalize_integers, strategic};
use crate::kinds::Kind;
use crate::schema::Schema;

#[test]
fn every_recorded_story_ends_as_on_the_real_server() {
    let stories: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    let mut steps = 0;
    for story in &stories {
        let kind = kind(story["kind"].as_str().unwrap());
        let mut before: Option<Value> = None;
        for (index, step) in story["steps"].as_array().unwrap().iter().enumerate() {
            let live = step.get("live").cloned().or(before);
            let title = format!("{} #{index}: {} {}", story["about"], step["verb"], step["body"]);
            replay(&kind, live.as_ref(), step, &title);
            before = if step["status"].as_u64().unwrap() < 400 { Some(step["answer"].clone()) } else { live };
            steps += 1;
        }
    }
    assert!(steps > 100, "{steps} steps");
}

fn replay(kind: &Kind, live: Option<&Value>, step: &Value, title: &str) {
    let status = step["status"].as_u64().unwrap();
    let answer = &step["answer"];
    let manager = step["manager"].as_str().unwrap();
    let subresource = step.get("sub").and_then(Value::as_str).unwrap_or_default();
    let operation = if step["verb"] == "apply" { "Apply" } else { "Update" };
    let write = FieldManager { kind, manager, subresource, now: time_of_step(live, answer, manager, operation) };
    let body = step["body"].as_str().map_or_else(|| step["body"].to_string(), str::to_owned);
    if step["verb"] == "apply" {
        let force = step.get("force") == Some(&json!(true));
        let result = apply::decode(body.as_bytes()).and_then(|config| apply::apply(&write, live, &config, force));
        match result {
            // the words are ours
            Err(failure) => assert_eq!(wordless(&failure.to_json()), wordless(answer), "{title}"),
            Ok(object) if status < 300 => {
                assert_eq!(books(&object), books(answer), "{title}");
                assert_same_content(kind, object, answer, title);
            }
            // name, namespace, uid, resource version and validation are for the caller to check
            Ok(_) => assert!([400, 409, 422].contains(&status), "{title}: {answer}"),
        }
        return;
    }
    if status >= 300 {
        return;
    }
    let patched = match (step["verb"].as_str().unwrap(), live) {
        ("merge", Some(live)) if subresource.is_empty() => merge::patch(live, body.as_bytes()),
        ("json", Some(live)) => json_patch::patch(live, body.as_bytes()),
        ("smp", Some(live)) => strategic::patch(&kind.schema, live, body.as_bytes()),
        _ => Ok(normalize_integers(serde_json::from_str(&body).unwrap())),
    };
    let patched = patched.unwrap();
    let mut object = answer.clone();
    object["metadata"].as_object_mut().unwrap().remove("managedFields");
    if let Some(given) = patched["metadata"].get("managedFields") {
        object["metadata"]["managedFields"] = given.clone();
    }
    if subresource == "scale" {
        apply::track_scale(&write, ".spec.replicas", live.unwrap(), &mut object);
    } else {
        apply::track_update(&write, live, &mut object);
    }
    assert_eq!(books(&object), books(answer), "{title}");
    if subresource.is_empty() {
        assert_same_content(kind, patched, answer, title);
    }
}

/// A refusal without its words: code, reason, and the fields and types of its causes in any order.
fn wordless(status: &Value) -> Value {
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    let causes: std::collections::BTreeSet<String> =
        causes.map(|cause| format!("{} {}", cause["reason"], cause["field"])).collect();
    json!([status["code"], status["reason"], causes])
}

/// The second at which the manager's entry was written; a far one if the answer shows that it was not.
fn time_of_step(live: Option<&Value>, answer: &Value, manager: &str, operation: &str) -> Timestamp {
    let time = |object: &Value, manager: &str, operation: &str| -> Option<String> {
        let entries = object["metadata"]["managedFields"].as_array()?.iter();
        let mut own = entries.filter(|entry| entry["manager"] == manager && entry["operation"] == operation);
        own.next()?["time"].as_str().map(str::to_owned)
    };
    let candidates = [(manager, operation), ("before-first-apply", "Update")];
    let written = candidates.iter().find_map(|(manager, operation)| {
        let before = live.and_then(|live| time(live, manager, operation));
        time(answer, manager, operation).filter(|after| Some(after) != before.as_ref())
    });
    // equal times are either those of one second, or of an entry that was left alone
    let kept = || live.and_then(|live| time(live, manager, operation));
    written.or_else(kept).and_then(|time| time.parse().ok()).unwrap_or(Timestamp::MAX)
}

fn books(object: &Value) -> Value {
    object["metadata"].get("managedFields").cloned().unwrap_or(Value::Null)
}

/// Compares what the kind has no defaults for.
fn assert_same_content(kind: &Kind, mut object: Value, answer: &Value, title: &str) {
    let ports = object.pointer_mut("/spec/ports").filter(|_| kind.kind == "Widget");
    for port in ports.and_then(Value::as_array_mut).into_iter().flatten() {
        port.as_object_mut().unwrap().entry("protocol").or_insert_with(|| "TCP".into());
    }
    let meta = |object: &Value| {
        let parts = ["labels", "annotations", "finalizers", "ownerReferences"];
        parts.map(|part| object["metadata"].get(part).filter(|value| **value != json!({})).cloned())
    };
    assert_eq!(meta(&object), meta(answer), "{title}");
    let parts: &[&str] = match kind.kind.as_str() {
        "ConfigMap" => &["data", "binaryData", "immutable"],
        "Widget" => &["spec", "status"],
        _ => &[],
    };
    for part in parts {
        let full = |object: &Value| object.get(part).filter(|value| **value != json!({}) && !value.is_null()).cloned();
        if write_has(part, &object, answer) {
            assert_eq!(full(&object), full(answer), "{title}: {part}");
        }
    }
    if kind.kind == "Deployment" && title.contains("smp") {
        let containers = |object: &Value| -> Vec<Value> {
            let list = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
            list.iter().map(|c| json!([c["name"], c["image"], c["env"], c["ports"], c["resources"]])).collect()
        };
        let names = |list: Vec<Value>| list.iter().map(|c| c[0].clone()).collect::<Vec<_>>();
        assert_eq!(names(containers(&object)), names(containers(answer)), "{title}");
    }
}

/// A write of the object leaves its status alone, which is for the caller to see to.
fn write_has(part: &str, object: &Value, answer: &Value) -> bool {
    part != "status" || object.get("status").is_some() == answer.get("status").is_some()
}

pub(super) fn kind(name: &str) -> Kind {
    let (group, schema) = match name {
        "Widget" => ("c.portolan.dev", widget()),
        "Deployment" => ("apps", deployment()),
        "Service" => ("", service()),
        _ => ("", config_map()),
    };
    Kind {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: name.to_owned(),
        list_kind: format!("{name}List"),
        plural: format!("{}s", name.to_lowercase()),
        singular: name.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        status: name != "ConfigMap",
        scale: None,
        schema: Arc::new(Schema::parse(&schema)),
        columns: Vec::new(),
        selectable_fields: Vec::new(),
        storage_version: "v1".to_owned(),
        warning: None,
        custom: name == "Widget",
        defined_at: 0,
    }
}

fn texts() -> Value {
    json!({ "type": "object", "additionalProperties": { "type": "string" } })
}

fn config_map() -> Value {
    json!({ "type": "object", "properties": {
        "data": texts(), "immutable": { "type": "boolean" },
        "binaryData": { "type": "object", "additionalProperties": { "type": "string", "format": "byte" } },
    } })
}

fn service() -> Value {
    let mut selector = texts();
    selector["x-kubernetes-map-type"] = json!("atomic");
    json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
        "selector": selector, "clusterIP": { "type": "string" }, "internalTrafficPolicy": { "type": "string" },
        "ipFamilyPolicy": { "type": "string" }, "sessionAffinity": { "type": "string" }, "type": { "type": "string" },
        "clusterIPs": { "type": "array", "x-kubernetes-list-type": "atomic", "items": { "type": "string" } },
        "ipFamilies": { "type": "array", "x-kubernetes-list-type": "atomic", "items": { "type": "string" } },
        "ports": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
            "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "port",
            "items": { "type": "object", "properties": {
                "name": { "type": "string" }, "port": { "type": "integer" }, "nodePort": { "type": "integer" },
                "protocol": { "type": "string", "default": "TCP" }, "targetPort": { "x-kubernetes-int-or-string": true },
            } },
        },
    } }, "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } })
}

pub(super) fn deployment() -> Value {
    let list = |key: &str, items: Value| {
        json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key],
            "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": key, "items": items,
        })
    };
    let open = || json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let text = || json!({ "type": "string" });
    let number = || json!({ "type": "integer" });
    let mut ports = list(
        "containerPort",
        json!({ "type": "object", "properties": {
        "containerPort": number(), "hostPort": number(), "name": text(), "hostIP": text(),
        "protocol": { "type": "string", "default": "TCP" },
    } }),
    );
    ports["x-kubernetes-list-map-keys"] = json!(["containerPort", "protocol"]);
    let env = list("name", json!({ "type": "object", "properties": { "name": text(), "value": text() } }));
    let quantities = json!({ "type": "object", "additionalProperties": { "x-kubernetes-int-or-string": true } });
    let container = json!({ "type": "object", "properties": {
        "name": text(), "image": text(), "imagePullPolicy": text(), "env": env, "ports": ports,
        "args": { "type": "array", "x-kubernetes-list-type": "atomic", "items": text() },
        "resources": { "type": "object", "properties": { "limits": quantities, "requests": quantities } },
        "terminationMessagePath": text(), "terminationMessagePolicy": text(),
    } });
    let mut volumes = list(
        "name",
        json!({ "type": "object", "properties": {
        "name": text(), "emptyDir": { "type": "object", "properties": { "medium": text() } },
        "hostPath": { "type": "object", "properties": { "path": text() } },
    } }),
    );
    volumes["x-kubernetes-patch-strategy"] = json!("merge,retainKeys");
    let condition = json!({ "type": "object", "properties": {
        "type": text(), "status": text(), "reason": text(), "message": text(), "lastTransitionTime": text(),
        "lastUpdateTime": text(),
    } });
    let metadata = json!({ "type": "object", "properties": {
        "labels": texts(), "annotations": texts(),
        "finalizers": {
            "type": "array", "x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge", "items": text(),
        },
    } });
    json!({ "type": "object", "properties": {
        "spec": { "type": "object", "properties": {
            "replicas": number(), "progressDeadlineSeconds": number(), "revisionHistoryLimit": number(),
            "selector": {
                "type": "object", "x-kubernetes-map-type": "atomic", "properties": { "matchLabels": texts() },
            },
            "strategy": {
                "type": "object", "x-kubernetes-patch-strategy": "retainKeys", "properties": {
                    "type": text(),
                    "rollingUpdate": { "type": "object", "properties": {
                        "maxSurge": { "x-kubernetes-int-or-string": true },
                        "maxUnavailable": { "x-kubernetes-int-or-string": true },
                    } },
                },
            },
            "template": { "type": "object", "properties": { "metadata": metadata, "spec": {
                "type": "object", "properties": {
                    "containers": list("name", container), "volumes": volumes, "dnsPolicy": text(),
                    "restartPolicy": text(), "schedulerName": text(), "securityContext": open(),
                    "terminationGracePeriodSeconds": number(),
                },
            } } },
        } },
        "status": { "type": "object", "properties": {
            "replicas": number(), "observedGeneration": number(), "terminatingReplicas": number(),
            "unavailableReplicas": number(), "updatedReplicas": number(), "conditions": list("type", condition),
        } },
    } })
}

fn widget() -> Value {
    let port = json!({ "type": "object", "properties": {
        "port": { "type": "integer" }, "protocol": { "type": "string", "default": "TCP" },
        "name": { "type": "string" }, "opts": texts(),
    } });
    let condition =
        json!({ "type": "object", "properties": { "type": { "type": "string" }, "status": { "type": "string" } } });
    let deep = json!({ "type": "object", "properties": {
        "a": { "type": "string" }, "b": { "type": "object", "properties": { "c": { "type": "integer" } } },
    } });
    json!({ "type": "object", "properties": {
        "spec": { "type": "object", "properties": {
            "replicas": { "type": "integer" }, "size": { "type": "string" }, "on": { "type": "boolean" },
            "ratio": { "type": "number" }, "any": { "x-kubernetes-int-or-string": true },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "tags": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
            "plain": { "type": "array", "items": { "type": "string" } },
            "ports": {
                "type": "array", "x-kubernetes-list-type": "map", "items": port,
                "x-kubernetes-list-map-keys": ["port", "protocol"],
            },
            "limits": texts(),
            "deep": { "type": "object", "additionalProperties": deep },
            "sel": {
                "type": "object", "x-kubernetes-map-type": "atomic",
                "properties": { "x": { "type": "string" }, "y": { "type": "string" } },
            },
        } },
        "status": { "type": "object", "properties": {
            "replicas": { "type": "integer" }, "phase": { "type": "string" },
            "conditions": {
                "type": "array", "x-kubernetes-list-type": "map", "items": condition,
                "x-kubernetes-list-map-keys": ["type"],
            },
        } },
    } })
}
