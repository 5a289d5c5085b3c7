//! Predicates, the rulelists made of them, and paths.
//!
//! An input is JSON: `{"rules": [predicate], "metadata": any, "path": text, "value": any}`.

use std::sync::Arc;

use portolan_core::mesh::{Action, Path, Predicate, Rule, RuleList, key_text, lookup};
use serde_json::{Value, json};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(input) = serde_json::from_slice::<Value>(bytes) else { return };
    let metadata = &input["metadata"];
    let sources = input["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    for source in sources {
        predicate(source, metadata);
    }
    rulelist(sources, metadata);
    if let Some(path) = input["path"].as_str() {
        write(path, metadata, &input["value"]);
    }
}

fn predicate(source: &Value, metadata: &Value) {
    let plain = Predicate::new(Some(source));
    let held = plain.matches(metadata);
    assert!(!held || plain.error().is_none(), "a faulty predicate never matches");
    if source.get("op").is_none() {
        return;
    }
    let around = |op: &str| Predicate::new(Some(&json!({ "op": op, "apply": [source] })));
    let fits = |op: &str, expected: bool| {
        let outer = around(op);
        assert!(outer.error().is_some() || outer.matches(metadata) == expected, "{op} of {source} on {metadata}");
    };
    fits("and", held);
    fits("or", held);
    if plain.error().is_none() {
        fits("not", !held);
    } else {
        assert!(around("not").error().is_some(), "not of a fault lets nobody in");
    }
}

/// The first rule that matches is found, as if each were tried in turn.
fn rulelist(sources: &[Value], metadata: &Value) {
    let names: Vec<Arc<str>> = (0..sources.len()).map(|at| at.to_string().into()).collect();
    let rule = |name: &str| {
        let source = &sources[name.parse::<usize>().ok()?];
        Some(Arc::new(Rule::new(name, Some(source), Action::Route(Vec::new(), Some("r".into())))))
    };
    let list = RuleList::new("list", names, rule);
    let found = lookup("list", |_| Some(&list), metadata).ok().map(|verdict| verdict.rule.name.to_string());
    let tried = sources.iter().position(|source| Predicate::new(Some(source)).matches(metadata));
    assert_eq!(found, tried.map(|at| at.to_string()));
}

fn write(text: &str, metadata: &Value, value: &Value) {
    Path::predicate(text).read(metadata);
    let path = Path::new(text);
    path.read(metadata).and_then(key_text);
    let mut after = metadata.clone();
    if path.write(&mut after, value.clone()) {
        let found = if text.is_empty() { Some(&after) } else { path.read(&after) };
        assert_eq!(found, Some(value), "what is written at {text} is read there");
    } else {
        assert_eq!(&after, metadata, "a write that is refused changes nothing");
    }
}
