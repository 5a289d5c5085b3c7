//! What kube-apiserver 1.36.4 answered to definitions, replayed.

use serde_json::Value;

use super::{defaulted, prepare, validate_definition};

#[test]
fn definitions_are_defaulted_and_judged_as_the_real_server_does() {
    let recorded: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    let mut wrong = Vec::new();
    for case in &recorded {
        let mut crd = case["crd"].clone();
        defaulted(&mut crd);
        prepare(&mut crd, None);
        let causes = types(validate_definition(&crd, None).iter().map(crate::status::Cause::to_json));
        let expected = types(case.get("causes").and_then(Value::as_array).into_iter().flatten().cloned());
        crd.as_object_mut().unwrap().remove("metadata");
        let stored = case.get("stored").is_none_or(|stored| *stored == crd);
        if causes != expected || !stored {
            wrong.push(format!("{}\n  got  {causes:?} {crd}\n  want {expected:?} {}", case["name"], case["stored"]));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// The types and fields of causes; their words are ours.
fn types(causes: impl Iterator<Item = Value>) -> Vec<String> {
    let mut types: Vec<String> = causes.map(|cause| format!("{} {}", cause["reason"], cause["field"])).collect();
    types.sort();
    types
}
