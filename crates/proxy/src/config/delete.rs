//! Deletes an object after checks, together with its inline objects that nothing else uses.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::engine::{Ending, SessionFilter};
use super::kind::Kind;
use super::refusal::Refusal;
use super::state::State;
use super::types::{ClusterSpec, ListenerSpec, Name, ObjectId};

/// Sessions to end once a change is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The index of the operation.
    pub operation: usize,
    pub filter: SessionFilter,
    pub how: Ending,
}

/// What to delete and how.
#[derive(Debug, Clone, Copy)]
pub struct Delete<'a> {
    pub kind: Kind,
    pub name: &'a str,
    pub recursive: bool,
    /// Also deletes the listener that serves the API.
    pub force: bool,
}

/// Deletes an object. Returns which sessions end.
pub fn delete(state: &mut State, what: Delete<'_>) -> Result<Vec<(SessionFilter, Ending)>, Refusal> {
    let Delete { kind, name, recursive, force } = what;
    let Some(id) = state.meta(kind, name).map(|meta| meta.id) else { return Err(unknown(kind, name)) };
    let mut cuts = Vec::new();
    match kind {
        Kind::Listener => {
            if !force && carries_api(state, name) {
                return Err(Refusal::conflict(format!("Cannot delete listener: \"{name}\" serves this API")));
            }
            let orphans = state.snapshot.listeners.get(name).is_some_and(|it| it.options.remove_orphan_sessions);
            if recursive || orphans {
                cuts.push((through(kind, id), Ending::End("Listener deleted from API")));
            }
        }
        Kind::Cluster if recursive => cuts.push(traversed(id)),
        Kind::Endpoint => {
            if recursive {
                cuts.push((through(kind, id), Ending::Disconnect));
            }
            touch_cluster_of(state, name);
        }
        Kind::Cluster | Kind::RuleList | Kind::Rule | Kind::Route => {}
    }
    let earlier = std::mem::take(&mut state.orphans);
    state.take(kind, name);
    if recursive {
        sweep_all(state, &mut cuts);
    }
    state.orphans.extend(earlier);
    Ok(cuts)
}

/// Removes orphans. Those still used by a session, as `busy` reports, are removed later.
pub fn sweep(state: &mut State, busy: impl Fn(&SessionFilter) -> bool) {
    while let Some((kind, name)) = state.orphans.pop_first() {
        if !state.is_orphan(kind, &name) {
            continue;
        }
        let id = state.meta(kind, &name).map(|meta| meta.id).unwrap_or_default();
        if busy(&through(kind, id)) {
            state.pending_removal.insert((kind, name));
        } else {
            state.take(kind, &name);
        }
    }
}

/// Whether sessions of the listener can reach the API.
pub fn carries_api(state: &State, listener: &str) -> bool {
    let Some(listener) = state.snapshot.listeners.get(listener) else { return false };
    matches!(listener.spec, ListenerSpec::Http(_)) && leads_to_api(state, &listener.rules, &mut BTreeSet::new())
}

/// The filter for sessions that use an object.
pub fn through(kind: Kind, id: ObjectId) -> SessionFilter {
    let id = Some(id);
    match kind {
        Kind::Listener => SessionFilter { listener: id, ..SessionFilter::default() },
        Kind::Cluster => SessionFilter { cluster: id, ..SessionFilter::default() },
        Kind::RuleList => SessionFilter { rulelist: id, ..SessionFilter::default() },
        Kind::Rule => SessionFilter { rule: id, ..SessionFilter::default() },
        Kind::Route => SessionFilter { route: id, ..SessionFilter::default() },
        Kind::Endpoint => SessionFilter { endpoint: id, ..SessionFilter::default() },
    }
}

fn leads_to_api(state: &State, list: &Name, seen: &mut BTreeSet<Name>) -> bool {
    if !seen.insert(Arc::clone(list)) {
        return false;
    }
    let Some(list) = state.snapshot.rulelists.get(list) else { return false };
    list.rules.iter().filter_map(|rule| state.snapshot.rules.get(rule)).any(|rule| {
        let action = &rule.action;
        if let Some(next) = &action.apply {
            return leads_to_api(state, next, seen);
        }
        let route = action.route.as_ref().and_then(|route| state.snapshot.routes.get(route));
        let cluster = route.and_then(|route| state.snapshot.clusters.get(&route.destination));
        cluster.is_some_and(|cluster| cluster.spec == ClusterSpec::Controller)
    })
}

/// Removes all orphans at once and ends sessions through their clusters.
pub(super) fn sweep_all(state: &mut State, cuts: &mut Vec<(SessionFilter, Ending)>) {
    while let Some((kind, name)) = state.orphans.pop_first() {
        if !state.is_orphan(kind, &name) {
            continue;
        }
        if let Some(meta) = state.take(kind, &name).filter(|_| kind == Kind::Cluster) {
            cuts.push(traversed(meta.id));
        }
    }
}

fn traversed(id: ObjectId) -> (SessionFilter, Ending) {
    (through(Kind::Cluster, id), Ending::End("Traversed Cluster deleted from API"))
}

fn touch_cluster_of(state: &mut State, endpoint: &str) {
    let generation = state.snapshot.generation + 1;
    let Some(cluster) = state.meta(Kind::Endpoint, endpoint).and_then(|meta| meta.cluster.clone()) else { return };
    state.edit_meta(Kind::Cluster, &cluster, |meta| {
        meta.written = None;
        meta.generation = generation;
    });
}

fn unknown(kind: Kind, name: &str) -> Refusal {
    if kind == Kind::Endpoint {
        return Refusal::not_found();
    }
    Refusal::missing(format!("Cannot delete {0}: Unknown {0} \"{name}\"", kind.deleted()))
}
