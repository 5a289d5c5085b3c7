//! Why things are as they are: which of the four steps decided over each name.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Resolver;
use super::keys::Callee;
use super::refs::Found;
use crate::mesh::control::types::{Hop, MeshKind, ObjectName, Route, RouteRef, Rule, Rules};

/// A name in an object, and what it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedReference {
    /// Where it stands, for example `rules[0].route.destination`.
    pub path: String,
    /// The name; inline things have none.
    pub name: Option<String>,
    /// Which step decided: 1 a Target, 2 a VirtualService, 3 a Service, 4 nothing; none for inline things and Routes.
    pub step: Option<u8>,
    /// What it stands for, or why it stands for nothing.
    pub meaning: String,
}

impl Resolver {
    /// Every name in a user's object, with the step that decided over it, in the order of the object.
    pub fn explain(&self, kind: MeshKind, name: &ObjectName) -> Vec<ResolvedReference> {
        let mut explained = Vec::new();
        match kind {
            MeshKind::VirtualService => {
                let found = self.virtual_service(name);
                let Some(Rules::List(rules)) = found.map(|one| &one.rules) else { return explained };
                for (place, rule) in rules.iter().enumerate() {
                    self.explain_rule(&format!("rules[{place}]"), rule, &name.namespace, &mut explained);
                }
            }
            MeshKind::Rule => {
                if let Some(Ok(one)) = self.normals.rules.get(name).map(|normal| &normal.outcome) {
                    self.explain_rule("rule", &one.rule, &name.namespace, &mut explained);
                }
            }
            MeshKind::Route => {
                if let Some(Ok(route)) = self.normals.routes.get(name).map(|normal| &normal.outcome) {
                    self.explain_route("", route, &name.namespace, &mut explained);
                }
            }
            MeshKind::Target => {
                let target = self.normals.targets.get(name).and_then(|normal| normal.outcome.as_ref().ok());
                if let Some(text) = target.and_then(|target| target.linked.as_ref()) {
                    let found = self.find_linked(text, &name.namespace, &mut BTreeSet::new());
                    let (step, meaning) = match found {
                        Ok(callee) => meaning(&callee),
                        Err(note) => (4, note.to_string()),
                    };
                    let place = "linkedVirtualService".to_owned();
                    explained.push(ResolvedReference {
                        path: place,
                        name: Some(text.clone()),
                        step: Some(step),
                        meaning,
                    });
                }
            }
            MeshKind::Service => {}
        }
        explained
    }

    fn explain_rule(&self, place: &str, rule: &Rule, namespace: &Arc<str>, explained: &mut Vec<ResolvedReference>) {
        match &rule.route {
            Some(RouteRef::Inline(route)) => {
                self.explain_route(&format!("{place}.route."), route, namespace, explained);
            }
            Some(RouteRef::Name(text)) => {
                let found = self.find_route(text, namespace, &mut BTreeSet::new());
                let meaning = found.as_ref().map_or_else(ToString::to_string, |name| format!("Route {name}"));
                explained.push(ResolvedReference {
                    path: format!("{place}.route"),
                    name: Some(text.clone()),
                    step: None,
                    meaning,
                });
                if let Some((name, Ok(route))) =
                    found.ok().and_then(|name| Some((name.clone(), &self.normals.routes.get(&name)?.outcome)))
                {
                    self.explain_route(&format!("{place}.route."), route, &name.namespace, explained);
                }
            }
            None => {}
        }
    }

    fn explain_route(&self, at: &str, route: &Route, namespace: &Arc<str>, explained: &mut Vec<ResolvedReference>) {
        for (place, hop) in route.hops() {
            let place = format!("{at}{place}");
            let Hop::Name(text) = hop else {
                let meaning = "a Target of its own, in place".to_owned();
                explained.push(ResolvedReference { path: place, name: None, step: None, meaning });
                continue;
            };
            let (step, meaning) = match self.find_hop(text, namespace, &mut BTreeSet::new()) {
                Ok(Found::Target(name)) => (1, format!("Target {name}")),
                Ok(Found::Generated(generated)) => {
                    let (step, callee) = meaning(&generated.callee);
                    (step, format!("{callee}: Target {} is generated", generated.name))
                }
                Err(note) => (4, note.to_string()),
            };
            explained.push(ResolvedReference { path: place, name: Some(text.clone()), step: Some(step), meaning });
        }
    }
}

fn meaning(callee: &Callee) -> (u8, String) {
    match callee {
        Callee::VirtualService(name) => (2, format!("VirtualService {name}")),
        Callee::Service(name) => (3, format!("Service {name}, wrapped in a generated VirtualService")),
    }
}
