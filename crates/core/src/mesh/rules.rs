//! Finds the rule of a session in its rulelists.

use std::sync::Arc;

use serde_json::Value;

use super::index::Index;
use super::predicate::Predicate;
use super::rewrite::Rewrite;

/// How many times one rulelist may lead to the next.
const DEEPEST: usize = 16;

/// One decision, compiled.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The rule's name.
    pub name: Arc<str>,
    /// When it applies.
    pub predicate: Predicate,
    /// What it then does.
    pub action: Action,
}

/// What a rule does with a session that it matches.
#[derive(Debug, Clone)]
pub enum Action {
    /// Rewrites the metadata, in order, and takes the route of this name; without one there is no route.
    Route(Vec<Rewrite>, Option<Arc<str>>),
    /// Goes on in the rulelist of this name.
    Apply(Arc<str>),
}

/// Rules in the order in which they are tried, looked up once.
#[derive(Debug, Clone)]
pub struct RuleList {
    /// The rulelist's name.
    pub name: Arc<str>,
    entries: Vec<RuleListEntry>,
    index: Index,
}

/// An entry of a rulelist.
#[derive(Debug, Clone)]
pub enum RuleListEntry {
    /// A rule that exists.
    Rule(Arc<Rule>),
    /// The name of one that does not.
    Missing(Arc<str>),
}

/// The rule that a session got.
#[derive(Debug, Clone)]
pub struct RuleMatch<'a> {
    /// The rulelists on the way, first to last; the rule is of the last.
    pub rulelists: Vec<&'a RuleList>,
    /// The rule.
    pub rule: &'a Arc<Rule>,
}

/// Why a session has no route; each is `Not Found` with [`LookupError::content`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupError {
    /// No rule matches, or the one that does names no route.
    NoRoute,
    /// There is no rulelist of this name.
    RuleList(Arc<str>),
    /// A rulelist names a rule that does not exist.
    Rule {
        /// The rule's name.
        rule: Arc<str>,
        /// The rulelist's name.
        rulelist: Arc<str>,
    },
    /// There is no route of this name.
    Route(Arc<str>),
    /// There is no cluster of this name.
    Cluster(Arc<str>),
    /// Rulelists lead in a circle.
    Loop(Vec<Arc<str>>),
    /// Rulelists lead from one to the next more than 16 times.
    TooDeep(Vec<Arc<str>>),
}

impl Rule {
    /// Compiles a rule from its parts; with `apply` the rest of the action is not used.
    pub fn new(name: impl Into<Arc<str>>, matching: Option<&Value>, action: Action) -> Self {
        Self { name: name.into(), predicate: Predicate::new(matching), action }
    }

    /// Does the rule's rewrites, in order, and returns those that could not be written.
    pub fn rewrite<'a>(&'a self, metadata: &mut Value) -> Vec<&'a Rewrite> {
        let Action::Route(rewrites, _) = &self.action else { return Vec::new() };
        rewrites.iter().filter(|rewrite| !rewrite.apply(metadata)).collect()
    }

    /// The name of the route that the rule leads to.
    pub fn route(&self) -> Option<&Arc<str>> {
        if let Action::Route(_, route) = &self.action { route.as_ref() } else { None }
    }
}

impl RuleList {
    /// Looks up the rules of a rulelist.
    pub fn new(
        name: impl Into<Arc<str>>,
        rules: impl IntoIterator<Item = Arc<str>>,
        find: impl Fn(&str) -> Option<Arc<Rule>>,
    ) -> Self {
        let entry = |rule: Arc<str>| find(&rule).map_or(RuleListEntry::Missing(rule), RuleListEntry::Rule);
        let entries: Vec<RuleListEntry> = rules.into_iter().map(entry).collect();
        let index = Index::new(entries.iter().map(RuleListEntry::predicate));
        Self { name: name.into(), entries, index }
    }

    /// Its rules, in order.
    pub fn entries(&self) -> &[RuleListEntry] {
        &self.entries
    }

    /// The first rule that matches; an error if a rule before it does not exist.
    fn first_match(&self, metadata: &Value) -> Result<&Arc<Rule>, LookupError> {
        let is_hit = |place: usize| match &self.entries[place] {
            RuleListEntry::Rule(rule) => rule.predicate.matches(metadata),
            RuleListEntry::Missing(_) => true,
        };
        match self.index.first(metadata, is_hit).map(|place| &self.entries[place]) {
            Some(RuleListEntry::Rule(rule)) => Ok(rule),
            Some(RuleListEntry::Missing(rule)) => {
                Err(LookupError::Rule { rule: Arc::clone(rule), rulelist: Arc::clone(&self.name) })
            }
            None => Err(LookupError::NoRoute),
        }
    }
}

impl RuleListEntry {
    fn predicate(&self) -> Option<&Predicate> {
        if let Self::Rule(rule) = self { Some(&rule.predicate) } else { None }
    }
}

impl RuleMatch<'_> {
    /// The rulelist the rule was found in, with the rule, as the session's event tells it.
    pub fn message(&self) -> String {
        let rulelist = self.rulelists.last().map_or("", |list| &*list.name);
        format!("Successfull lookup on rulelist:{rulelist}/rule:{}", self.rule.name)
    }
}

impl LookupError {
    /// The event's message, and the reason phrase where there is one.
    pub const MESSAGE: &'static str = "Not Found";

    /// What was not found, told to the client of a session.
    pub fn content(&self, session: &str) -> String {
        match self {
            Self::NoRoute => format!("No route for session \"{session}\""),
            Self::RuleList(rulelist) => format!("Cannot find RuleList \"{rulelist}\""),
            Self::Rule { rule, rulelist } => format!("Cannot find named rule \"{rule}\" in RuleList \"{rulelist}\""),
            Self::Route(route) => format!("Cannot find Route \"{route}\" for session \"{session}\""),
            Self::Cluster(cluster) => format!("Cannot find cluster \"{cluster}\""),
            Self::Loop(way) => format!("Rulelists apply one another in a loop: {}", way.join(" -> ")),
            Self::TooDeep(way) => format!("Rulelists apply one another more than {DEEPEST} deep: {}", way.join(" -> ")),
        }
    }

    /// The error as one word, for labels and logs.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoRoute => "NoRoute",
            Self::RuleList(_) => "RuleListNotFound",
            Self::Rule { .. } => "RuleNotFound",
            Self::Route(_) => "RouteNotFound",
            Self::Cluster(_) => "ClusterNotFound",
            Self::Loop(_) => "ApplyLoop",
            Self::TooDeep(_) => "ApplyTooDeep",
        }
    }
}

/// Finds the rule for some metadata: the first that matches, in the rulelist it leads to if it has `apply`.
pub fn lookup<'a>(
    start: &str,
    find: impl Fn(&str) -> Option<&'a RuleList>,
    metadata: &Value,
) -> Result<RuleMatch<'a>, LookupError> {
    let mut way = Vec::new();
    let mut next = start;
    loop {
        let list = find(next).ok_or_else(|| LookupError::RuleList(next.into()))?;
        let is_loop = way.iter().any(|seen: &&RuleList| seen.name == list.name);
        way.push(list);
        if is_loop {
            return Err(LookupError::Loop(names(&way)));
        }
        if way.len() > DEEPEST + 1 {
            return Err(LookupError::TooDeep(names(&way)));
        }
        let rule = list.first_match(metadata)?;
        match &rule.action {
            Action::Apply(rulelist) => next = rulelist,
            Action::Route(_, Some(_)) => return Ok(RuleMatch { rulelists: way, rule }),
            Action::Route(_, None) => return Err(LookupError::NoRoute),
        }
    }
}

fn names(way: &[&RuleList]) -> Vec<Arc<str>> {
    way.iter().map(|list| Arc::clone(&list.name)).collect()
}
