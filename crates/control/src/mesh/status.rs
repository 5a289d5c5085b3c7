//! Says on every object what became of it, and why not. Nothing is written that stands there already.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ObjectMeta;
use kube::core::object::HasStatus;
use portolan_api::mesh::{Children, MeshStatus, ProxyCounts};
use portolan_api::well_known::{conditions, reasons};
use portolan_core::mesh::control::types::{MeshKind, ObjectName};
use portolan_core::mesh::control::{Diagnostic, ObjectStatus, Reason, Resolver};
use serde_json::json;
use tokio::time::Instant;

use super::act::fleet::{Fleet, ProgramState};
use super::events::MeshEvents;
use super::metrics::{Metrics, Stands};
use super::observe::{Cache, key};
use super::owner::Owner;
use super::validate::Written;
use crate::runtime::Error;
use crate::runtime::conditions::{condition, find};
use crate::runtime::due::Prepared;
use crate::runtime::events::EventType;
use crate::runtime::store::Store;
use crate::runtime::watch;
use crate::runtime::write::{Writer, Wrote};

/// What a status is worked out from, and written with.
pub(super) struct Reporting<'a> {
    pub(super) writer: &'a Writer,
    pub(super) events: &'a MeshEvents,
    pub(super) metrics: &'a Metrics,
    pub(super) cache: &'a Cache,
    pub(super) resolver: &'a Resolver,
    pub(super) fleet: &'a Fleet,
    pub(super) children: &'a BTreeMap<Owner, BTreeMap<String, i64>>,
    /// How long a status waits for proxies.
    pub(super) patience: Duration,
}

/// That an object is in force, for its owner to say.
pub(super) struct Owned {
    pub(super) owner: Owner,
    /// The object, as the shipped operator names it.
    pub(super) child: String,
    pub(super) generation: i64,
}

/// How long an object without a status waits for what it lacks.
const ARRIVAL: Duration = Duration::from_secs(1);

/// Says that an object is in force, to clients of the shipped operator: they wait for any annotation.
const APPLIED: &str = "operator.l7mp.io/applied";

impl Reporting<'_> {
    /// What the status of an object needs, if it is there and a user's. Gives what its owners are to say.
    pub(super) fn prepare(&self, owner: &Owner, since: Instant) -> Prepared<Vec<Owned>> {
        let (kind, name) = owner;
        let Some(verdict) = self.resolver.status(*kind, name) else {
            self.metrics.stands(owner, None);
            return Prepared::Nothing;
        };
        let due = since + self.patience;
        if self.is_pending(owner) && Instant::now() < due {
            return Prepared::At(due);
        }
        let cache = self.cache;
        match kind {
            MeshKind::VirtualService => self.write(&cache.virtual_services, owner, &verdict, since),
            MeshKind::Route => self.write(&cache.routes, owner, &verdict, since),
            MeshKind::Target => self.write(&cache.targets, owner, &verdict, since),
            MeshKind::Rule => self.write(&cache.rules, owner, &verdict, since),
            MeshKind::Service => Prepared::Nothing,
        }
    }

    /// Whether some proxy that should hold an object has not said yet whether it does. One call that fails says little:
    /// an operator that has just started would report objects lost that are in force.
    fn is_pending(&self, owner: &Owner) -> bool {
        let (kind, name) = owner;
        let state = |pod| self.fleet.program_state(pod, owner);
        let mut pods = self.resolver.proxy_pods(*kind, name);
        pods.any(|pod| matches!(state(pod), ProgramState::Pending | ProgramState::Away(_)))
    }

    fn write<K>(&self, store: &Store<K>, owner: &Owner, verdict: &ObjectStatus, since: Instant) -> Prepared<Vec<Owned>>
    where
        K: watch::Kind + Written + HasStatus<Status = MeshStatus>,
    {
        let seen = store.get(&key(&owner.1)).filter(|seen| seen.meta().deletion_timestamp.is_none());
        let Some(seen) = seen else { return Prepared::Nothing };
        let is_first = seen.status().is_none_or(|status| status.conditions.is_empty());
        let arrived = since + ARRIVAL.min(self.patience);
        if is_first && lacks_something(verdict) && Instant::now() < arrived {
            return Prepared::At(arrived);
        }
        let generation = seen.meta().generation.unwrap_or_default();
        let counted = Counted::of(self.resolver, self.fleet, owner, verdict);
        let in_force = counted.is_in_force(verdict);
        let children = self.children(owner, seen.status());
        let hops = (owner.0 == MeshKind::Route).then(|| number(self.resolver.explain(owner.0, &owner.1).len()));
        let want = MeshStatus { children, hops, ..counted.status(verdict, owner.0, generation) };
        let (writer, store, owner) = (self.writer.clone(), store.clone(), owner.clone());
        let (events, metrics) = (self.events.clone(), self.metrics.clone());
        Prepared::write(async move {
            let wrote = match writer.status(&store, seen.as_ref(), &want).await {
                Err(problem) if problem.is_gone() => return Ok(Vec::new()),
                wrote => wrote?,
            };
            if in_force && wrote == Wrote::Changed {
                metrics.lagged(since.elapsed());
            }
            metrics.stands(&owner, Some(stands(&want)));
            if !is_programmed(&want) {
                return Ok(Vec::new());
            }
            applied(&writer, &events, &store, &seen).await?;
            let asks = seen.written().get("updateOwners") == Some(&true.into());
            Ok(if asks { owners(seen.meta(), &owner, generation) } else { Vec::new() })
        })
    }

    /// What it says of those it owns, as far as they are there.
    fn children(&self, owner: &Owner, seen: Option<&MeshStatus>) -> Option<Children> {
        let world = self.resolver.world();
        let mut applied = seen.and_then(|status| status.children.clone()).unwrap_or_default().applied;
        applied.extend(self.children.get(owner).cloned().unwrap_or_default());
        let is_there = |child: &str| {
            let child = world.settings.domain.reference(child, &owner.1.namespace);
            child.kind.is_some_and(|kind| world.objects.contains_key(&(kind, child.name)))
        };
        applied.retain(|child, _| is_there(child));
        (!applied.is_empty()).then_some(Children { applied })
    }
}

/// Marks an object that is in force everywhere for the first time.
async fn applied<K>(writer: &Writer, events: &MeshEvents, store: &Store<K>, seen: &K) -> Result<(), Error>
where
    K: watch::Kind + HasStatus<Status = MeshStatus>,
{
    if seen.meta().annotations.as_ref().is_some_and(|all| all.contains_key(APPLIED)) {
        return Ok(());
    }
    // That a condition has become true is recorded with the status. Recorded before the annotation is written: if that
    // fails, the next attempt sees the condition and could not tell that nothing was recorded.
    let conditions = seen.status().map(|status| status.conditions.as_slice()).unwrap_or_default();
    if find(conditions, conditions::PROGRAMMED).is_none() {
        let note = "programmed on all matching proxies";
        events.record(seen.object_ref(&()), EventType::Normal, (reasons::PROGRAMMED, "Program"), note);
    }
    let generation = seen.meta().generation.unwrap_or_default();
    writer.annotate(store, seen, &json!({ APPLIED: generation.to_string() })).await.map(drop)
}

/// Owners of a kind of the mesh, with what they are to say.
fn owners(metadata: &ObjectMeta, (kind, name): &Owner, generation: i64) -> Vec<Owned> {
    let child = format!("/l7mp.io/v1/{}/{}/{}", kind.as_str(), name.namespace, name.name);
    let of_mesh = metadata.owner_references.iter().flatten().filter(|owner| owner.api_version == "l7mp.io/v1");
    let owned = of_mesh.filter_map(|owner| {
        let kind = [MeshKind::VirtualService, MeshKind::Route, MeshKind::Target, MeshKind::Rule];
        let kind = kind.into_iter().find(|kind| kind.as_str() == owner.kind)?;
        let owner = (kind, ObjectName::new(name.namespace.clone(), owner.name.as_str()));
        Some(Owned { owner, child: child.clone(), generation })
    });
    owned.collect()
}

fn is_programmed(status: &MeshStatus) -> bool {
    find(&status.conditions, conditions::PROGRAMMED).is_some_and(|condition| condition.status == "True")
}

/// Where an object stands: the first condition that is not met, or that all are.
fn stands(status: &MeshStatus) -> Stands {
    let word = |condition: &Condition| match condition.type_.as_str() {
        conditions::ACCEPTED => "Refused",
        conditions::RESOLVED_REFS => "Unresolved",
        _ => "Pending",
    };
    let unmet = status.conditions.iter().find(|condition| condition.status != "True");
    let condition = unmet.map_or(conditions::PROGRAMMED, word);
    Stands { condition, endpoints: status.endpoints.unwrap_or_default() }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// How an object fares on its proxies.
#[derive(Debug, Default)]
struct Counted {
    matched: usize,
    in_force: usize,
    away: BTreeMap<ObjectName, String>,
    refused: BTreeMap<ObjectName, String>,
    lacking: BTreeMap<ObjectName, Diagnostic>,
}

impl Counted {
    fn of(resolver: &Resolver, fleet: &Fleet, owner: &Owner, verdict: &ObjectStatus) -> Self {
        let mut counted = Self { matched: verdict.proxies, ..Self::default() };
        for pod in resolver.proxy_pods(owner.0, &owner.1) {
            match fleet.program_state(pod, owner) {
                ProgramState::InForce => counted.in_force += 1,
                ProgramState::Pending => {}
                ProgramState::Away(why) => drop(counted.away.insert(pod.clone(), why.to_owned())),
                ProgramState::Refused(why) => drop(counted.refused.insert(pod.clone(), why.to_owned())),
                ProgramState::Lacks(note) => drop(counted.lacking.insert(pod.clone(), note.clone())),
            }
        }
        counted
    }

    fn is_in_force(&self, verdict: &ObjectStatus) -> bool {
        verdict.refused.is_none() && verdict.unmet.is_empty() && self.in_force == self.matched
    }

    fn status(&self, verdict: &ObjectStatus, kind: MeshKind, generation: i64) -> MeshStatus {
        let owner_text = |(kind, name): &Owner| format!("{}/{}", kind.as_str(), name);
        let mut used_by: Vec<String> = verdict.used_by.iter().map(owner_text).collect();
        if verdict.users > used_by.len() {
            used_by.push(format!("and {} more", verdict.users - used_by.len()));
        }
        MeshStatus {
            observed_generation: Some(generation),
            conditions: self.conditions(verdict, generation),
            proxies: Some(ProxyCounts {
                summary: format!("{}/{}", self.in_force, self.matched),
                matched: number(self.matched),
                programmed: number(self.in_force),
                unreachable: number(self.away.len()),
                naked: number(verdict.naked),
            }),
            generated: verdict.generated.iter().map(owner_text).collect(),
            endpoints: (kind == MeshKind::Target).then(|| number(verdict.endpoints)),
            hops: None,
            used_by,
            children: None,
        }
    }

    fn conditions(&self, verdict: &ObjectStatus, generation: i64) -> Vec<Condition> {
        let say =
            |kind, state, reason: &str, message: String| condition(kind, Some(state), reason, message, generation);
        let warnings = || {
            let notes = verdict.diagnostics.iter().filter(|note| note.reason != Reason::NoPods);
            notes.map(|note| note.message.clone()).collect::<Vec<_>>().join("; ")
        };
        let accepted = match verdict.first_invalid() {
            None => say(conditions::ACCEPTED, true, reasons::ACCEPTED, warnings()),
            Some(note) => say(conditions::ACCEPTED, false, note.reason.as_str(), note.message.clone()),
        };
        let resolved = match verdict.unresolved().next() {
            None => {
                let message = "all references resolved".to_owned();
                say(conditions::RESOLVED_REFS, true, conditions::RESOLVED_REFS, message)
            }
            Some(note) => say(conditions::RESOLVED_REFS, false, note.reason.as_str(), joined(verdict.unresolved())),
        };
        let (state, reason, message) = self.programmed(verdict);
        vec![accepted, resolved, say(conditions::PROGRAMMED, state, reason, message)]
    }

    fn programmed(&self, verdict: &ObjectStatus) -> (bool, &'static str, String) {
        let Self { matched, in_force, away, refused, lacking } = self;
        let share = format!("{in_force} of {matched} proxies hold it");
        if let Some(note) = verdict.first_invalid().or_else(|| verdict.unresolved().next()) {
            return (false, note.reason.as_str(), "not programmed until the error above is fixed".to_owned());
        }
        if let Some((pod, why)) = refused.first_key_value() {
            return (false, Reason::Rejected.as_str(), format!("{share}; the proxy of pod {pod} says: {why}"));
        }
        if let Some((pod, note)) = lacking.first_key_value() {
            return (false, note.reason.as_str(), format!("{share}; pod {pod}: {}", note.message));
        }
        if let Some((pod, why)) = away.first_key_value() {
            return (false, Reason::Unreachable.as_str(), format!("{share}; the proxy of pod {pod} {why}"));
        }
        if *in_force < *matched {
            return (false, Reason::Partial.as_str(), share);
        }
        if let Some(note) = verdict.diagnostics.iter().find(|note| note.reason == Reason::NoPods) {
            return (false, Reason::NoPods.as_str(), note.message.clone());
        }
        (true, reasons::PROGRAMMED, share)
    }
}

/// Whether what is missing may be created by the same `kubectl apply` a moment later.
fn lacks_something(verdict: &ObjectStatus) -> bool {
    !verdict.unmet.is_empty() || verdict.diagnostics.iter().any(|note| note.reason == Reason::NoPods)
}

fn joined<'a>(notes: impl Iterator<Item = &'a Diagnostic>) -> String {
    notes.map(|note| note.message.as_str()).collect::<Vec<_>>().join("; ")
}
