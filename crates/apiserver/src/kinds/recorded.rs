//! Requests sent to the real server (kube-apiserver 1.36.4) and its answers, replayed through defaults, strategies and
//! validation. `recorded/cases.json` holds them: an object is created, then changed step by step.

use serde::Deserialize;
use serde_json::{Value, json};

use super::cluster_ip::{self, Range, Ranges, Used};
use super::strategy::{self, Part};
use super::{Kind, builtin, defaults, events, validate};
use crate::status::Cause;

#[derive(Deserialize)]
struct Case {
    about: String,
    kind: String,
    create: Value,
    answer: Value,
    then: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    sub: String,
    /// The object as it stood, when a controller had changed it since the step before.
    #[serde(default)]
    old: Option<Value>,
    change: Value,
    answer: Value,
}

/// An object, or the faults: reason, message and field of each, or only a message.
type Answer = Result<Value, Vec<(String, String, String)>>;

#[test]
fn objects_are_completed_and_refused_as_by_the_real_server() {
    let kinds = builtin::all();
    let cases: Vec<Case> = serde_json::from_str(include_str!("recorded/cases.json")).unwrap();
    let mut used = Used::default();
    let mut wrong = Vec::new();
    for case in &cases {
        let (group, name) = case.kind.split_once('/').unwrap_or(("", &case.kind));
        let kind = kinds.iter().find(|kind| kind.kind == name && (group.is_empty() || kind.group == group)).unwrap();
        let mut new = case.create.clone();
        new["apiVersion"] = kind.api_version().into();
        new["kind"] = kind.kind.as_str().into();
        if kind.namespaced {
            let namespace = case.answer.pointer("/metadata/namespace").cloned().unwrap_or("rec".into());
            new["metadata"]["namespace"] = namespace;
        } else {
            super::json::remove(&mut new["metadata"], "namespace");
        }
        let answer = write(kind, new, None, Part::Main, &used);
        check(&format!("{} {}", case.kind, case.about), &answer, &case.answer, &mut wrong);
        let mut old = case.answer.clone();
        for step in &case.then {
            let about = format!("{} {}: {} {}", case.kind, case.about, step.sub, step.change);
            if let Some(actual) = &step.old {
                old = actual.clone();
            }
            old["metadata"]["resourceVersion"] = "1".into();
            let mut new = old.clone();
            json_patch::merge(&mut new, &step.change);
            new["metadata"]["resourceVersion"] = "1".into();
            let part = if step.sub == "status" { Part::Status } else { Part::Main };
            let mut answer = write(kind, new, Some(&old), part, &used);
            if let Ok(object) = &mut answer {
                super::json::remove(&mut object["metadata"], "resourceVersion");
            }
            check(&about, &answer, &step.answer, &mut wrong);
            if step.answer.get("code").is_none() {
                old = step.answer.clone();
            }
        }
        if case.kind == "Service" && old.get("spec").is_some() {
            let (addresses, ports) = cluster_ip::held(&old);
            used.addresses.extend(addresses);
            used.node_ports.extend(ports);
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// What a write does, without the store.
fn write(kind: &Kind, mut new: Value, old: Option<&Value>, part: Part, used: &Used) -> Answer {
    let refused = |causes: &[Value]| {
        let each = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
        causes.iter().map(|cause| (each(cause, "reason"), each(cause, "message"), each(cause, "field"))).collect()
    };
    defaults::default(kind, &mut new);
    let failure = match kind.kind.as_str() {
        "Pod" if part == Part::Main => strategy::admit_pod(&mut new, old),
        "Service" if part == Part::Main => {
            let ranges = Ranges { v4: Range::parse("10.0.0.0/16").unwrap(), v6: None };
            cluster_ip::assign(&mut new, old, &ranges, used, 7)
        }
        _ => Ok(()),
    };
    if let Err(failure) = failure {
        let causes = failure.details.get("causes").and_then(Value::as_array).cloned();
        return Err(
            causes.map_or_else(|| vec![(String::new(), failure.message, String::new())], |causes| refused(&causes))
        );
    }
    match old {
        None => strategy::prepare_for_create(kind, &mut new),
        Some(old) => strategy::prepare_for_update(kind, &mut new, old, part),
    }
    let causes = validate::validate(kind, &new, old, part);
    if causes.is_empty() {
        return Ok(new);
    }
    Err(refused(&causes.iter().map(Cause::to_json).collect::<Vec<_>>()))
}

fn check(about: &str, answer: &Answer, recorded: &Value, wrong: &mut Vec<String>) {
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|each| each.as_str().unwrap_or_default().to_owned()).collect()
    };
    let expected: Answer = if recorded.get("code").is_some() {
        let causes = recorded["causes"].as_array().unwrap().iter().map(strings);
        let causes: Vec<_> = causes.map(|cause| (cause[0].clone(), first_line(&cause[1]), cause[2].clone())).collect();
        let message = recorded["message"].as_str().unwrap().to_owned();
        Err(if causes.is_empty() { vec![(String::new(), message, String::new())] } else { causes })
    } else {
        Ok(recorded.clone())
    };
    // The real server walks maps in any order.
    let sorted = |answer: &Answer| {
        answer.clone().map_err(|mut faults| {
            faults.sort();
            faults
        })
    };
    if sorted(answer) != sorted(&expected) {
        wrong.push(format!("== {about}\n   ours {}\n   real {}", shown(answer), shown(&expected)));
    }
}

/// The real server adds a diff in Go's words to some messages.
fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}

fn shown(answer: &Answer) -> String {
    match answer {
        Ok(object) => object.to_string(),
        Err(faults) => {
            let lines = faults.iter().map(|(reason, message, field)| format!("\n     {field} | {reason} | {message}"));
            lines.collect::<Vec<_>>().concat()
        }
    }
}

#[test]
fn the_two_event_kinds_share_one_storage() {
    let kinds = builtin::all();
    let views: Vec<&Kind> = kinds.iter().filter(|kind| events::is_view(kind)).collect();
    assert_eq!(views.len(), 1);
    assert_eq!(views[0].api_version(), "events.k8s.io/v1");
}

#[test]
fn no_input_makes_defaults_or_validation_panic() {
    let odd =
        [json!(null), json!([]), json!(1), json!("x"), json!({}), json!([{}, null, 1]), json!({ "x": { "y": [1] } })];
    for kind in builtin::all() {
        for name in kind.schema.properties.keys() {
            for value in &odd {
                let object = json!({ "metadata": { "name": "x", "namespace": "n" }, name.as_str(): value });
                let old = object.clone();
                drop(write(&kind, object.clone(), None, Part::Main, &Used::default()));
                drop(write(&kind, object.clone(), Some(&old), Part::Main, &Used::default()));
                drop(write(&kind, object, Some(&old), Part::Status, &Used::default()));
            }
        }
    }
}

#[test]
fn all_kinds_are_ready_in_a_moment() {
    let start = std::time::Instant::now();
    let kinds = builtin::all();
    // Unoptimised; a release build takes a tenth of it.
    assert!(start.elapsed().as_millis() < 2000, "{} kinds took {:?}", kinds.len(), start.elapsed());
}
