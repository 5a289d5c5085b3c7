//! Says on every object what became of it, and why not. Nothing is written that stands there already.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::object::HasStatus;
use portolan_api::mesh::{MeshStatus, ProxyCounts};
use portolan_api::words::{conditions, reasons};
use portolan_core::mesh::control::types::{Kind, ObjectName};
use portolan_core::mesh::control::{Note, Reason, Resolver, Verdict};

use super::fleet::{Fares, Fleet, Owner};
use super::observe::{Cache, key};
use crate::runtime::Error;
use crate::runtime::conditions::condition;
use crate::runtime::store::Store;
use crate::runtime::watch;
use crate::runtime::write::{Writer, Wrote};

/// What a status is worked out from, and written with.
pub(super) struct Reporting<'a> {
    pub(super) writer: &'a Writer,
    pub(super) cache: &'a Cache,
    pub(super) resolver: &'a Resolver,
    pub(super) fleet: &'a Fleet,
}

/// What became of a write.
pub(super) struct Told {
    pub(super) wrote: Wrote,
    /// Every proxy that should hold it does.
    pub(super) in_force: bool,
}

impl Reporting<'_> {
    /// Writes the status of one object, if it is there and a user's.
    pub(super) async fn one(&self, owner: &Owner) -> Result<Option<Told>, Error> {
        let (kind, name) = owner;
        let Some(verdict) = self.resolver.verdict(*kind, name) else { return Ok(None) };
        let cache = self.cache;
        match kind {
            Kind::VirtualService => self.write(&cache.virtual_services, owner, &verdict).await,
            Kind::Route => self.write(&cache.routes, owner, &verdict).await,
            Kind::Target => self.write(&cache.targets, owner, &verdict).await,
            Kind::Rule => self.write(&cache.rules, owner, &verdict).await,
            Kind::Service => Ok(None),
        }
    }

    /// Whether some proxy that should hold an object has not said yet how it fares there.
    pub(super) fn is_pending(&self, owner: &Owner) -> bool {
        let (kind, name) = owner;
        self.resolver.holders(*kind, name).any(|pod| matches!(self.fleet.fares(pod, owner), Fares::Pending))
    }

    async fn write<K>(&self, store: &Store<K>, owner: &Owner, verdict: &Verdict) -> Result<Option<Told>, Error>
    where
        K: watch::Kind + HasStatus<Status = MeshStatus>,
    {
        let Some(seen) = store.get(&key(&owner.1)) else { return Ok(None) };
        if seen.meta().deletion_timestamp.is_some() {
            return Ok(None);
        }
        let generation = seen.meta().generation.unwrap_or_default();
        let counted = Counted::of(self.resolver, self.fleet, owner, verdict);
        let children = seen.status().and_then(|status| status.children.clone());
        let want = MeshStatus { children, ..counted.status(verdict, owner.0, generation) };
        let wrote = self.writer.status(store, &*seen, &want).await?;
        Ok(Some(Told { wrote, in_force: counted.is_in_force(verdict) }))
    }
}

/// How an object fares on its proxies.
#[derive(Debug, Default)]
struct Counted {
    matched: usize,
    in_force: usize,
    away: BTreeMap<ObjectName, String>,
    refused: BTreeMap<ObjectName, String>,
}

impl Counted {
    fn of(resolver: &Resolver, fleet: &Fleet, owner: &Owner, verdict: &Verdict) -> Self {
        let mut counted = Self { matched: verdict.proxies, ..Self::default() };
        for pod in resolver.holders(owner.0, &owner.1) {
            match fleet.fares(pod, owner) {
                Fares::InForce => counted.in_force += 1,
                Fares::Pending => {}
                Fares::Away(why) => drop(counted.away.insert(pod.clone(), why.to_owned())),
                Fares::Refused(why) => drop(counted.refused.insert(pod.clone(), why.to_owned())),
            }
        }
        counted
    }

    fn is_in_force(&self, verdict: &Verdict) -> bool {
        verdict.refused.is_none() && verdict.unmet.is_empty() && self.in_force == self.matched
    }

    fn status(&self, verdict: &Verdict, kind: Kind, generation: i64) -> MeshStatus {
        let owner_text = |(kind, name): &Owner| format!("{}/{}", kind.as_str(), name);
        let mut used_by: Vec<String> = verdict.used_by.iter().map(owner_text).collect();
        if verdict.users > used_by.len() {
            used_by.push(format!("and {} more", verdict.users - used_by.len()));
        }
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
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
            endpoints: (kind == Kind::Target).then(|| number(verdict.endpoints)),
            hops: None,
            used_by,
            children: None,
        }
    }

    fn conditions(&self, verdict: &Verdict, generation: i64) -> Vec<Condition> {
        let say =
            |kind, state, reason: &str, message: String| condition(kind, Some(state), reason, message, generation);
        let warnings = || {
            let notes = verdict.notes.iter().filter(|note| note.reason != Reason::NoPods);
            notes.map(|note| note.message.clone()).collect::<Vec<_>>().join("; ")
        };
        let accepted = match &verdict.refused {
            None => say(conditions::ACCEPTED, true, reasons::ACCEPTED, warnings()),
            Some(note) => say(conditions::ACCEPTED, false, note.reason.as_str(), note.message.clone()),
        };
        let resolved = match verdict.unmet.first() {
            None => say(conditions::RESOLVED_REFS, true, conditions::RESOLVED_REFS, String::new()),
            Some(note) => say(conditions::RESOLVED_REFS, false, note.reason.as_str(), joined(&verdict.unmet)),
        };
        let (state, reason, message) = self.programmed(verdict);
        vec![accepted, resolved, say(conditions::PROGRAMMED, state, reason, message)]
    }

    fn programmed(&self, verdict: &Verdict) -> (bool, &'static str, String) {
        let Self { matched, in_force, away, refused } = self;
        let share = format!("{in_force} of {matched} proxies hold it");
        if let Some(note) = verdict.refused.as_ref().or_else(|| verdict.unmet.first()) {
            return (false, note.reason.as_str(), "nothing is programmed before that is mended".to_owned());
        }
        if let Some((pod, why)) = refused.first_key_value() {
            return (false, Reason::Rejected.as_str(), format!("{share}; the proxy of pod {pod} says: {why}"));
        }
        if let Some((pod, why)) = away.first_key_value() {
            return (false, Reason::Unreachable.as_str(), format!("{share}; the proxy of pod {pod} {why}"));
        }
        if *in_force < *matched {
            return (false, Reason::Partial.as_str(), share);
        }
        if let Some(note) = verdict.notes.iter().find(|note| note.reason == Reason::NoPods) {
            return (false, Reason::NoPods.as_str(), note.message.clone());
        }
        (true, reasons::PROGRAMMED, share)
    }
}

fn joined(notes: &[Note]) -> String {
    notes.iter().map(|note| note.message.as_str()).collect::<Vec<_>>().join("; ")
}
