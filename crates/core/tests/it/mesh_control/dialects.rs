//! Every way to write an object that the specification lists, and what is said to those who write it otherwise.

use portolan_core::mesh::control::types::{Route, RuleObject, Target, VirtualService};
use portolan_core::mesh::control::{Diagnostic, normalize};
use serde::Deserialize;
use serde_json::Value;

use crate::mesh::table::{judge, read};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    about: String,
    kind: String,
    spec: Value,
    /// The normal form.
    #[serde(default)]
    normal: Option<Value>,
    /// Reason and message of the refusal.
    #[serde(default)]
    refused: Option<String>,
    /// Reason and message of each remark.
    #[serde(default)]
    notes: Vec<String>,
}

#[test]
fn every_dialect_has_one_normal_form_and_every_mistake_its_advice() {
    let cases: Vec<Case> = read(include_str!("cases/dialects.yaml"));
    let mut complaints = Vec::new();
    for case in &cases {
        let (outcome, notes) = normalise(&case.kind, &case.spec);
        let notes: Vec<String> = notes.iter().map(Diagnostic::to_string).collect();
        if notes != case.notes {
            complaints.push(format!("{}: notes {notes:#?}", case.about));
        }
        match (outcome, &case.normal, &case.refused) {
            (Ok(found), Some(normal), None) if found == *normal => {}
            (Err(note), None, Some(refused)) if note.to_string() == *refused => {}
            (Ok(found), ..) => complaints.push(format!("{}: {found}", case.about)),
            (Err(note), ..) => complaints.push(format!("{}: {note}", case.about)),
        }
    }
    judge(cases.len(), 75, &complaints);
}

#[test]
fn the_normal_form_is_its_own_normal_form() {
    let cases: Vec<Case> = read(include_str!("cases/dialects.yaml"));
    let plain = |case: &&Case| case.normal.as_ref().is_some_and(|normal| !normal.to_string().contains("proxyOptions"));
    for case in cases.iter().filter(plain) {
        let normal = case.normal.as_ref().unwrap();
        let (again, _) = normalise(&case.kind, normal);
        assert_eq!(again.as_ref(), Ok(normal), "{}", case.about);
    }
}

#[test]
fn an_oversize_spec_is_refused_before_it_is_read() {
    let rule = serde_json::json!({"action": {"route": "r"}});
    let listener = serde_json::json!({"protocol": "UDP", "port": 1});
    let of = |rules: Value| serde_json::json!({"selector": {}, "listener": listener, "rules": rules});
    let refusal = |spec: &Value| normalize::virtual_service(spec).outcome.unwrap_err().to_string();
    assert_eq!(
        refusal(&of(Value::Array(vec![rule.clone(); 10_001]))),
        "SpecTooLarge: spec.rules has 10001 rules, 10000 are allowed: use several VirtualServices"
    );
    let long = serde_json::json!({"action": {"route": "r", "rewrite": [{"path": "/a", "value": "x".repeat(1 << 20)}]}});
    assert_eq!(refusal(&of(long)), "SpecTooLarge: spec: more than 1 MiB: split it into several objects");
    let mut deep = Value::Null;
    for _ in 0..40 {
        deep = serde_json::json!({"op": "not", "apply": [deep]});
    }
    let deep = serde_json::json!({"match": deep, "action": {"route": "r"}});
    let said = "SpecTooLarge: spec: more than 32 values inside one another: split it into several objects";
    assert_eq!(refusal(&of(deep)), said);
}

fn normalise(kind: &str, spec: &Value) -> (Result<Value, Diagnostic>, Vec<Diagnostic>) {
    fn shown<T>(read: normalize::Normalized<T>, show: fn(&T) -> Value) -> (Result<Value, Diagnostic>, Vec<Diagnostic>) {
        (read.outcome.as_ref().map(show).map_err(Diagnostic::clone), read.warnings)
    }
    match kind {
        "VirtualService" => shown(normalize::virtual_service(spec), VirtualService::to_value),
        "Route" => shown(normalize::route(spec), Route::to_value),
        "Target" => shown(normalize::target(spec), Target::to_value),
        "Rule" => shown(normalize::rule(spec), RuleObject::to_value),
        other => unreachable!("no kind {other}"),
    }
}
