//! Rule lookup: rulelists compiled on first use.

use super::session::Decision;
use crate::config::snapshot::Snapshot;
use crate::config::types::{Matching, Name, ObjectId, Route};
use crate::proto::session::Lookup;
use portolan_core::mesh::{self, LookupError, Rewrite};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Compiled rules, kept by id: a changed rule has another one.
#[derive(Default)]
pub(crate) struct Rules {
    lists: BTreeMap<Name, List>,
    compiled: BTreeMap<ObjectId, Arc<mesh::Rule>>,
    /// What each rule last decided.
    decisions: BTreeMap<ObjectId, Arc<Decision>>,
}

/// A compiled rulelist.
struct List {
    id: ObjectId,
    compiled: mesh::RuleList,
    /// Set if the first rule matches every session without a rewrite: then no metadata is needed.
    always: Option<Arc<Decision>>,
}

/// What a lookup decides on.
pub(crate) struct Found {
    pub rulelists: Vec<ObjectId>,
    pub rulelist: Name,
    pub rule: Arc<mesh::Rule>,
    pub rule_id: ObjectId,
}

impl Rules {
    /// Drops compiled rulelists after a change; compiled rules stay.
    pub(crate) fn forget(&mut self) {
        self.lists.clear();
        self.decisions.clear();
        if self.compiled.len() > 100_000 {
            self.compiled.clear();
        }
    }

    pub(crate) fn look_up(&mut self, start: &str, metadata: &Value, snapshot: &Snapshot) -> Result<Found, LookupError> {
        loop {
            match self.decide(start, metadata, snapshot) {
                Err(LookupError::RuleList(name)) if self.compile(&name, snapshot) => {}
                decided => return decided,
            }
        }
    }

    /// The decision of a rulelist that does not depend on metadata.
    pub(crate) fn always(&mut self, start: &Name, snapshot: &Snapshot) -> Option<Arc<Decision>> {
        if !self.lists.contains_key(start) {
            self.compile(start, snapshot);
        }
        self.lists.get(start)?.always.clone()
    }

    /// The decision of a lookup, shared by sessions with the same outcome.
    pub(crate) fn decision(&mut self, found: &Found, route: &Arc<Route>) -> Arc<Decision> {
        let known = self.decisions.get(&found.rule_id);
        let alike = |known: &&Arc<Decision>| known.rulelists == found.rulelists && Arc::ptr_eq(&known.route, route);
        if let Some(known) = known.filter(alike) {
            return Arc::clone(known);
        }
        let lookup = Lookup { rulelist: Arc::clone(&found.rulelist), rule: Arc::clone(&found.rule.name) };
        let (rulelists, route, lookup) = (found.rulelists.clone(), Arc::clone(route), Arc::new(lookup));
        let decision = Arc::new(Decision { rulelists, rule: found.rule_id, route, lookup });
        self.decisions.insert(found.rule_id, Arc::clone(&decision));
        decision
    }

    fn decide(&self, start: &str, metadata: &Value, snapshot: &Snapshot) -> Result<Found, LookupError> {
        let lists = &self.lists;
        let verdict = mesh::lookup(start, |name| lists.get(name).map(|list| &list.compiled), metadata)?;
        let ids = verdict.rulelists.iter().filter_map(|list| lists.get(&list.name)).map(|list| list.id);
        let rulelist = verdict.rulelists.last().map(|list| Arc::clone(&list.name)).unwrap_or_default();
        let rule_id = snapshot.rules.get(&verdict.rule.name).map(|rule| rule.id).unwrap_or_default();
        Ok(Found { rulelists: ids.collect(), rulelist, rule: Arc::clone(verdict.rule), rule_id })
    }

    /// Compiles a rulelist that was not needed before; false if there is none of this name.
    fn compile(&mut self, name: &Name, snapshot: &Snapshot) -> bool {
        let Some(list) = snapshot.rulelists.get(name).filter(|_| !self.lists.contains_key(name)) else { return false };
        for rule in list.rules.iter().filter_map(|rule| snapshot.rules.get(rule)) {
            self.compiled.entry(rule.id).or_insert_with(|| {
                let action = rule.action.apply.as_ref().map_or_else(
                    || {
                        let rewrites = rule.action.rewrite.iter();
                        let rewrites = rewrites.map(|step| Rewrite::new(&step.path, step.value.clone())).collect();
                        mesh::Action::Route(rewrites, rule.action.route.clone())
                    },
                    |list| mesh::Action::Apply(Arc::clone(list)),
                );
                let never = Value::Object(serde_json::Map::new());
                let matching = match &rule.matching {
                    Matching::Always => None,
                    Matching::Never => Some(&never),
                    Matching::When(predicate) => Some(predicate),
                };
                Arc::new(mesh::Rule::new(Arc::clone(&rule.name), matching, action))
            });
        }
        let rules = &self.compiled;
        let find = |rule: &str| snapshot.rules.get(rule).and_then(|rule| rules.get(&rule.id)).cloned();
        let compiled = mesh::RuleList::new(Arc::clone(name), list.rules.iter().cloned(), find);
        let first = list.rules.first().and_then(|rule| snapshot.rules.get(rule));
        let first = first.filter(|rule| {
            rule.matching == Matching::Always && rule.action.apply.is_none() && rule.action.rewrite.is_empty()
        });
        let always = first.and_then(|rule| {
            let route = Arc::clone(snapshot.routes.get(rule.action.route.as_ref()?)?);
            let lookup = Arc::new(Lookup { rulelist: Arc::clone(name), rule: Arc::clone(&rule.name) });
            Some(Arc::new(Decision { rulelists: vec![list.id], rule: rule.id, route, lookup }))
        });
        self.lists.insert(Arc::clone(name), List { id: list.id, compiled, always });
        true
    }
}
