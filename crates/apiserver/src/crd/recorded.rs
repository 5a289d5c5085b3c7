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
        let mut causes: Vec<Value> =
            validate_definition(&crd, None).iter().map(crate::status::Cause::to_json).collect();
        let mut expected = case.get("causes").and_then(Value::as_array).cloned().unwrap_or_default();
        // properties are visited in random order there
        for list in [&mut causes, &mut expected] {
            list.sort_by_key(Value::to_string);
        }
        crd.as_object_mut().unwrap().remove("metadata");
        let stored = case.get("stored").is_none_or(|stored| *stored == crd);
        if causes != expected || !stored {
            let show = |list: &[Value]| {
                list.iter().map(Value::to_string).collect::<Vec<_>>().join(
                    "
    ",
                )
            };
            wrong.push(format!(
                "{}\n  got{} {crd}\n  want{} {}",
                case["name"],
                show(&causes),
                show(&expected),
                case["stored"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
