//! Which rule a session gets, over rulelists that lead to one another.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_core::mesh::{Action, LookupError, Rewrite, Rule, RuleList, lookup};
use serde::Deserialize;
use serde_json::Value;

use super::table;

#[derive(Deserialize)]
struct Group {
    about: String,
    rulelists: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    rules: BTreeMap<String, Source>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Source {
    #[serde(default)]
    r#match: Option<Value>,
    #[serde(default)]
    rewrite: Vec<Step>,
    #[serde(default)]
    apply: Option<String>,
    #[serde(default)]
    route: Option<String>,
}

#[derive(Deserialize)]
struct Step {
    path: String,
    value: Value,
}

/// A session called `s`, which starts in the rulelist `main`.
#[derive(Deserialize)]
struct Case {
    on: Value,
    #[serde(default)]
    route: Option<String>,
    /// The rulelists and the rule, as the event tells the last of them.
    #[serde(default)]
    by: Option<String>,
    /// The metadata afterwards, if it changes.
    #[serde(default)]
    gives: Option<Value>,
    #[serde(default)]
    error: Option<String>,
}

#[test]
fn the_table_of_rulelists_holds() {
    let groups: Vec<Group> = table::read(include_str!("cases/rulelists.yaml"));
    let (mut cases, mut complaints) = (0, Vec::new());
    for group in &groups {
        cases += group.cases.len();
        let lists = compile(group);
        complaints.extend(group.cases.iter().filter_map(|case| complaint(&group.about, &lists, case)));
    }
    table::judge(cases, 28, &complaints);
}

fn compile(group: &Group) -> BTreeMap<String, RuleList> {
    let rules: BTreeMap<&str, Arc<Rule>> =
        group.rules.iter().map(|(name, rule)| (&**name, rule.compile(name))).collect();
    let list = |(name, entries): (&String, &Vec<String>)| {
        let entries = entries.iter().map(|rule| Arc::from(&**rule));
        (name.clone(), RuleList::new(&**name, entries, |rule| rules.get(rule).cloned()))
    };
    group.rulelists.iter().map(list).collect()
}

impl Source {
    fn compile(&self, name: &str) -> Arc<Rule> {
        let rewrites = self.rewrite.iter().map(|step| Rewrite::new(&step.path, step.value.clone())).collect();
        let action = match &self.apply {
            Some(rulelist) => Action::Apply(Arc::from(&**rulelist)),
            None => Action::Route(rewrites, self.route.as_deref().map(Arc::from)),
        };
        Arc::new(Rule::new(name, self.r#match.as_ref(), action))
    }
}

fn complaint(about: &str, lists: &BTreeMap<String, RuleList>, case: &Case) -> Option<String> {
    let mut metadata = case.on.clone();
    let found = lookup("main", |name| lists.get(name), &metadata);
    let (route, by, error) = match &found {
        Ok(verdict) => {
            verdict.rule.rewrite(&mut metadata);
            (verdict.rule.route().map(ToString::to_string), Some(verdict.message()), None)
        }
        Err(error) => (None, None, Some(error.content("s"))),
    };
    let wanted_by = case.by.as_ref().map(|by| format!("Successfull lookup on {by}"));
    let fits = route == case.route
        && error == case.error
        && (wanted_by.is_none() || wanted_by == by)
        && metadata == *case.gives.as_ref().unwrap_or(&case.on);
    (!fits).then(|| format!("{about}, on {}: route {route:?}, {by:?}, error {error:?}, gives {metadata}", case.on))
}

#[test]
fn what_is_missing_behind_the_rule_is_told_as_l7mp_tells_it() {
    let content = |error: LookupError| error.content("UDP:10.0.0.1:1-0.0.0.0:2-0");
    assert_eq!(
        content(LookupError::Route("x".into())),
        r#"Cannot find Route "x" for session "UDP:10.0.0.1:1-0.0.0.0:2-0""#
    );
    assert_eq!(content(LookupError::Cluster("x".into())), r#"Cannot find cluster "x""#);
    assert_eq!(LookupError::MESSAGE, "Not Found");
}

#[test]
fn sixteen_applies_are_enough_and_seventeen_too_many() {
    let chain = |length: usize| -> BTreeMap<String, RuleList> {
        let rule = |step: usize| {
            let action = if step < length {
                Action::Apply(format!("l{}", step + 1).into())
            } else {
                Action::Route(Vec::new(), Some("end".into()))
            };
            Arc::new(Rule::new(format!("r{step}"), None, action))
        };
        let list = |step: usize| RuleList::new(format!("l{step}"), [Arc::from("r")], |_| Some(rule(step)));
        (0..=length).map(|step| (format!("l{step}"), list(step))).collect()
    };
    let (enough, too_many) = (chain(16), chain(17));
    let verdict = lookup("l0", |name| enough.get(name), &Value::Null).unwrap();
    assert_eq!(verdict.rulelists.len(), 17);
    assert_eq!(verdict.message(), "Successfull lookup on rulelist:l16/rule:r16");
    let error = lookup("l0", |name| too_many.get(name), &Value::Null).unwrap_err();
    assert_eq!(error.reason(), "ApplyTooDeep");
    assert!(error.content("s").starts_with("Rulelists apply one another more than 16 deep: l0 -> l1 -> "));
}
