//! What a predicate says to metadata, and what makes it say nothing.

use portolan_core::mesh::Predicate;
use serde::Deserialize;
use serde_json::{Value, json};

use super::table;

#[derive(Deserialize)]
struct Group {
    about: String,
    on: Value,
    /// Predicates that hold.
    #[serde(default)]
    yes: Vec<Value>,
    /// Predicates that do not hold.
    #[serde(default)]
    no: Vec<Value>,
    /// Predicates with a fault, by the word for it.
    #[serde(default)]
    never: Vec<Faulty>,
    /// How l7mp judges otherwise, and why ours does not.
    #[serde(default)]
    differs: Option<String>,
}

#[derive(Deserialize)]
struct Faulty {
    why: String,
    of: Value,
}

#[test]
fn the_table_of_rules_holds() {
    let groups: Vec<Group> = table::read(include_str!("cases/rules.yaml"));
    let (mut cases, mut complaints) = (0, Vec::new());
    for Group { about, on, yes, no, never, differs } in &groups {
        cases += yes.len() + no.len() + never.len();
        for (predicates, wanted) in [(yes, true), (no, false)] {
            let wrong = predicates.iter().filter(|predicate| !judges(predicate, on, wanted));
            complaints.extend(wrong.map(|predicate| format!("{about}: {predicate} should be {wanted}")));
        }
        let wrong = never.iter().filter(|faulty| !is_fault(faulty, on));
        complaints.extend(wrong.map(|faulty| format!("{about}: {} should never match: {}", faulty.of, faulty.why)));
        assert!(differs.as_ref().is_none_or(|reason| !reason.is_empty()), "{about}: a difference has its reason");
    }
    table::judge(cases, 237, &complaints);
}

/// Whether a predicate is without fault, says what is wanted, and the contrary inside `not`.
fn judges(predicate: &Value, on: &Value, wanted: bool) -> bool {
    let compiled = Predicate::new(Some(predicate));
    let nested = Predicate::new(Some(&json!({ "op": "not", "apply": [predicate] })));
    let contrary = !predicate.is_object() || predicate.get("op").is_none() || nested.matches(on) != wanted;
    compiled.error().is_none() && compiled.matches(on) == wanted && contrary
}

/// Whether a predicate has the fault and matches neither alone nor inside anything.
fn is_fault(faulty: &Faulty, on: &Value) -> bool {
    let always = json!({ "op": "and", "apply": [] });
    let alone = Predicate::new(Some(&faulty.of));
    let inside = ["and", "or", "not"].map(|op| json!({ "op": op, "apply": [always, faulty.of] }));
    let fault = |predicate: &Predicate| predicate.error().is_some_and(|fault| fault.kind.word() == faulty.why);
    fault(&alone)
        && !alone.matches(on)
        && inside.iter().map(|source| Predicate::new(Some(source))).all(|rule| fault(&rule) && !rule.matches(on))
}

#[test]
fn no_match_at_all_always_matches() {
    assert!(Predicate::new(None).matches(&json!({})));
    assert!(Predicate::new(None).matches(&Value::Null));
}

#[test]
fn a_fault_says_where_and_what() {
    let source = json!({ "op": "or", "apply": [
        { "op": "defined", "path": "/a" },
        { "op": "not", "apply": [{ "op": "tset", "path": "/a", "value": 1 }] },
    ] });
    let fault = Predicate::compile(Some(&source)).unwrap_err();
    assert_eq!(fault.to_string(), "match.apply[1].apply[0]: op `tset` is unknown; the rule never matches");
}

#[test]
fn predicates_end_at_1000_operations_and_32_levels() {
    let defined = json!({ "op": "defined", "path": "/a" });
    let wide = |parts: usize| json!({ "op": "or", "apply": vec![defined.clone(); parts] });
    let deep = |levels: usize| (0..levels).fold(defined.clone(), |inner, _| json!({ "op": "and", "apply": [inner] }));
    let word = |source: &Value| Predicate::new(Some(source)).error().map(|fault| fault.kind.word());
    assert_eq!(word(&wide(999)), None);
    assert_eq!(word(&wide(1000)), Some("TooMany"));
    assert_eq!(word(&deep(32)), None);
    assert_eq!(word(&deep(33)), Some("TooDeep"));
}

#[test]
fn a_regular_expression_that_backtracks_elsewhere_takes_no_time_here() {
    let rule = Predicate::new(Some(&json!({ "op": "matches", "path": "/a", "value": "^(a+)+$" })));
    let text = "a".repeat(50_000) + "!";
    assert!(!rule.matches(&json!({ "a": text })));
}
