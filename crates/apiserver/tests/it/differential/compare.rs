//! Compares two answers, and knows which differences are allowed.

use std::fs;

use serde::Deserialize;
use serde_json::Value;

use super::story::{Step, Story, folder};

/// The differences between two servers, and the list of those that are allowed.
pub(crate) struct Differences {
    allowed: Vec<Allowed>,
    /// The steps with differences that are not listed: the request, and where the responses differ.
    found: Vec<(String, Vec<Difference>)>,
}

/// One entry of `differences.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    /// `file: story: step`, with `*` for anything; a lone `*` means every refusal, and no other answer.
    #[serde(rename = "where")]
    place: String,
    /// Where in the answer, with `*` for anything.
    path: String,
    /// Why this may differ.
    reason: String,
    #[serde(skip)]
    used: bool,
}

/// One path at which two responses differ.
#[derive(Debug, PartialEq)]
pub(crate) struct Difference {
    path: String,
    left: Option<Value>,
    right: Option<Value>,
}

impl Differences {
    pub(crate) fn load() -> Self {
        let text = fs::read_to_string(folder().join("differences.yaml")).unwrap();
        let allowed: Vec<Allowed> = serde_saphyr::from_str(&text).unwrap();
        assert!(allowed.iter().all(|entry| !entry.reason.is_empty()), "each difference has a reason");
        Self { allowed, found: Vec::new() }
    }

    /// Takes in the answers of both servers to one step.
    pub(crate) fn see(&mut self, story: &Story, step: &Step, left: &Value, right: &Value) {
        let place = format!("{}: {}: {}", story.file, story.sentence, step.shown());
        let is_refusal = [left, right].iter().all(|answer| answer["code"].as_u64().is_some_and(|code| code >= 400));
        let mut differences = Vec::new();
        diff(String::new(), Some(left), Some(right), &mut differences);
        differences.retain(|difference| !self.is_allowed(&place, is_refusal, &difference.path));
        if !differences.is_empty() {
            self.found.push((place, differences));
        }
    }

    /// How many differences have no reason, and the first of them in words.
    pub(crate) fn unexplained(&self, at_most: usize) -> (usize, Vec<String>) {
        let count = self.found.iter().map(|(_, differences)| differences.len()).sum();
        let mut lines = Vec::new();
        for (place, differences) in &self.found {
            lines.push(format!("\n{place}"));
            lines.extend(differences.iter().map(|Difference { path, left, right }| {
                format!("  {path}\n    A: {}\n    B: {}", shown(left.as_ref()), shown(right.as_ref()))
            }));
        }
        lines.truncate(at_most);
        (count, lines)
    }

    /// The entries that no difference needed: a list of differences that is not true does not help.
    pub(crate) fn unused(&self) -> impl Iterator<Item = String> {
        let unused = self.allowed.iter().filter(|entry| !entry.used);
        unused.map(|entry| format!("differences.yaml: nothing needs `{}`, `{}`: remove it", entry.place, entry.path))
    }

    fn is_allowed(&mut self, place: &str, is_refusal: bool, path: &str) -> bool {
        let mut is_allowed = false;
        for entry in &mut self.allowed {
            let is_here = if entry.place == "*" { is_refusal } else { matches(&entry.place, place) };
            if is_here && matches(&entry.path, path) {
                entry.used = true;
                is_allowed = true;
            }
        }
        is_allowed
    }
}

/// Compares two values recursively.
fn diff(path: String, left: Option<&Value>, right: Option<&Value>, found: &mut Vec<Difference>) {
    match (left, right) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                diff(below(&path, key), a.get(key), b.get(key), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for index in 0..a.len().max(b.len()) {
                diff(format!("{path}[{index}]"), a.get(index), b.get(index), found);
            }
        }
        (left, right) if left == right => {}
        (left, right) => found.push(Difference { path, left: left.cloned(), right: right.cloned() }),
    }
}

fn below(path: &str, key: &str) -> String {
    let is_plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    match (path, is_plain) {
        ("", true) => key.to_owned(),
        (path, true) => format!("{path}.{key}"),
        (path, false) => format!("{path}[{key:?}]"),
    }
}

fn shown(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "(nothing)".to_owned(), Value::to_string);
    if text.chars().count() <= 600 { text } else { text.chars().take(600).chain("...".chars()).collect() }
}

/// Whether a text fits a pattern in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => text.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len()).filter(|from| rest.is_char_boundary(*from)).any(|from| matches(tail, &rest[from..]))
        }),
    }
}

#[test]
fn differences_name_the_path_and_both_sides() {
    let (a, b) = (serde_json::json!({ "x": { "y.z": [1, 2] } }), serde_json::json!({ "x": { "y.z": [1] } }));
    let mut found = Vec::new();
    diff(String::new(), Some(&a), Some(&b), &mut found);
    assert_eq!(found, [Difference { path: "x[\"y.z\"][1]".into(), left: Some(2.into()), right: None }]);
}

#[test]
fn the_words_of_a_refusal_may_differ_and_those_of_an_object_may_not() {
    let step: Step = serde_saphyr::from_str("do: GET /x").unwrap();
    let story = Story { file: "f".into(), sentence: "s".into(), steps: Vec::new() };
    let answers = |code: u16, reason: &str| {
        ["a", "b"].map(|word| serde_json::json!({ "code": code, "body": { "message": word, "reason": reason } }))
    };
    for (code, differ) in [(404, 0), (200, 1)] {
        let mut differences = Differences::load();
        let [a, b] = answers(code, "NotFound");
        differences.see(&story, &step, &a, &b);
        assert_eq!(differences.unexplained(9).0, differ, "{code}");
    }
    let mut differences = Differences::load();
    differences.see(&story, &step, &answers(404, "NotFound")[0], &answers(404, "Gone")[0]);
    assert_eq!(differences.unexplained(9).0, 1);
}

#[test]
fn a_pattern_fits_with_stars_and_without() {
    assert!(matches("crd*: step *", "crd: a story: step 1"));
    assert!(matches("body.metadata.*", "body.metadata.uid"));
    assert!(!matches("body", "body.metadata"));
}
