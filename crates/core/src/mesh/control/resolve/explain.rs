//! Explains how each name in an object is resolved.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::compiled::ResolvedHop;
use super::dependencies::Callee;
use super::state::Resolver;
use crate::mesh::control::types::{Hop, MeshKind, ObjectName, Route, RouteRef, Rule, Rules};

/// A name in an object, and what it resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedReference {
    /// The path of the field, for example `rules[0].route.destination`.
    pub path: String,
    /// The name; none for inline objects.
    pub name: Option<String>,
    /// The resolution step: 1 a Target, 2 a VirtualService, 3 a Service, 4 not found; none for inline objects and Routes.
    pub step: Option<u8>,
    /// What it resolves to, or why it does not.
    pub meaning: String,
}

impl Resolver {
    /// Every name in a user's object with its resolution, in the order of the object.
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
                if let Some(Ok(one)) = self.objects.rules.get(name).map(|normal| &normal.outcome) {
                    self.explain_rule("rule", &one.rule, &name.namespace, &mut explained);
                }
            }
            MeshKind::Route => {
                if let Some(Ok(route)) = self.objects.routes.get(name).map(|normal| &normal.outcome) {
                    self.explain_route("", route, &name.namespace, &mut explained);
                }
            }
            MeshKind::Target => {
                let target = self.objects.targets.get(name).and_then(|normal| normal.outcome.as_ref().ok());
                if let Some(text) = target.and_then(|target| target.linked.as_ref()) {
                    let found = self.find_linked(text, &name.namespace, &mut BTreeSet::new());
                    let (step, meaning) = match found {
                        Ok(callee) => meaning(&callee),
                        Err(diagnostic) => (4, diagnostic.to_string()),
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
                    found.ok().and_then(|name| Some((name.clone(), &self.objects.routes.get(&name)?.outcome)))
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
                let meaning = "an inline Target".to_owned();
                explained.push(ResolvedReference { path: place, name: None, step: None, meaning });
                continue;
            };
            let (step, meaning) = match self.find_hop(text, namespace, &mut BTreeSet::new()) {
                Ok(ResolvedHop::Target(name)) => (1, format!("Target {name}")),
                Ok(ResolvedHop::Generated(generated)) => {
                    let (step, callee) = meaning(&generated.callee);
                    (step, format!("{callee}: Target {} is generated", generated.name))
                }
                Err(diagnostic) => (4, diagnostic.to_string()),
            };
            explained.push(ResolvedReference { path: place, name: Some(text.clone()), step: Some(step), meaning });
        }
    }
}

fn meaning(callee: &Callee) -> (u8, String) {
    match callee {
        Callee::VirtualService(name) => (2, format!("VirtualService {name}")),
        Callee::Service(name) => (3, format!("Service {name}, through a generated VirtualService")),
    }
}
