//! What a client has, wants and is owed of one kind of resource.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::envoy::proto::discovery::{DeltaDiscoveryRequest, Status};
use crate::envoy::resources::Resources;

/// The name that stands for all resources.
const WILDCARD: &str = "*";
/// More names than this are not kept for a client: a unit has fewer ports.
const MAX_NAMES: usize = 10_000;
const MAX_NAME_BYTES: usize = 1_024;
/// What is kept of the words of a rejection, in characters.
const MAX_REASON: usize = 512;

/// A client asked for more than is kept for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {MAX_NAMES} names, or one of more than {MAX_NAME_BYTES} bytes")]
pub(super) struct TooManyNames;

/// One kind of resource on one stream.
#[derive(Debug, Default)]
pub(super) struct Subscription {
    /// The client has asked for this kind.
    pub(super) is_open: bool,
    is_wildcard: bool,
    names: BTreeSet<Arc<str>>,
    /// Versions that the client has.
    held: BTreeMap<Arc<str>, Arc<str>>,
    /// Names to answer for, although the client has them or they do not exist.
    owed: BTreeSet<Arc<str>>,
    /// A response is due even if it is empty: Envoy waits for it to initialise.
    owes_response: bool,
    /// Names that were in a rejected response with others: sent one by one, to find which is bad.
    suspects: BTreeSet<Arc<str>>,
    rejected: BTreeMap<Arc<str>, Rejection>,
    in_flight: Option<InFlight>,
}

/// A version that the client does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) version: Arc<str>,
    pub(super) reason: Arc<str>,
}

#[derive(Debug)]
struct InFlight {
    nonce: String,
    sent: Vec<(Arc<str>, Arc<str>)>,
    removed: Vec<Arc<str>>,
}

/// Names whose resources are to be sent, and names to remove.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) changed: Vec<Arc<str>>,
    pub(super) removed: Vec<Arc<str>>,
}

impl Subscription {
    /// Takes in a request. `wanted` is what exists; `has_wildcard` whether a first request without names means all.
    pub(super) fn handle(
        &mut self,
        request: &DeltaDiscoveryRequest,
        wanted: &Resources,
        has_wildcard: bool,
    ) -> Result<(), TooManyNames> {
        self.answer(&request.response_nonce, request.error_detail.as_ref());
        let is_first = !self.is_open;
        if is_first {
            self.is_open = true;
            let versions = request.initial_resource_versions.iter();
            self.held = versions.map(|(name, version)| (name.as_str().into(), version.as_str().into())).collect();
            self.is_wildcard = has_wildcard && request.resource_names_subscribe.is_empty();
            self.owes_response = self.is_wildcard;
        }
        for name in &request.resource_names_subscribe {
            self.subscribe(name, wanted, is_first);
        }
        for name in &request.resource_names_unsubscribe {
            self.unsubscribe(name);
        }
        let is_long = |name: &Arc<str>| name.len() > MAX_NAME_BYTES;
        let has_many = self.names.len() > MAX_NAMES || self.held.len() > MAX_NAMES;
        let has_long = self.names.iter().chain(self.held.keys()).any(is_long);
        if has_many || has_long { Err(TooManyNames) } else { Ok(()) }
    }

    fn subscribe(&mut self, name: &str, wanted: &Resources, is_first: bool) {
        if name == WILDCARD {
            self.is_wildcard = true;
            self.owes_response = true;
            return;
        }
        let name: Arc<str> = name.into();
        // what a client brings along from another stream is compared; what it asks for again, it has lost
        if !(is_first && self.held.contains_key(&name) && wanted.contains_key(&name)) {
            self.owed.insert(Arc::clone(&name));
            self.rejected.remove(&name);
        }
        self.names.insert(name);
    }

    fn unsubscribe(&mut self, name: &str) {
        if name == WILDCARD {
            self.is_wildcard = false;
            return;
        }
        self.names.remove(name);
        self.owed.remove(name);
        if !self.is_wildcard {
            self.held.remove(name);
            self.suspects.remove(name);
            self.rejected.remove(name);
        }
    }

    /// Takes in an answer to the response in flight; one to an older response says nothing.
    fn answer(&mut self, nonce: &str, error: Option<&Status>) {
        let Some(in_flight) = self.in_flight.take_if(|in_flight| in_flight.nonce == nonce) else { return };
        match error {
            None => self.accept(in_flight),
            Some(error) => self.reject(in_flight, &error.message),
        }
    }

    fn accept(&mut self, InFlight { sent, removed, .. }: InFlight) {
        for (name, version) in sent {
            self.suspects.remove(&name);
            self.rejected.remove(&name);
            if self.is_subscribed(&name) {
                self.held.insert(name, version);
            }
        }
        self.forget(&removed);
    }

    fn reject(&mut self, InFlight { mut sent, removed, .. }: InFlight, reason: &str) {
        if sent.len() > 1 || (!sent.is_empty() && !removed.is_empty()) {
            self.suspects.extend(sent.into_iter().map(|(name, _)| name));
            return;
        }
        // a client that does not accept to lose something is not asked for ever
        self.forget(&removed);
        if let Some((name, version)) = sent.pop() {
            self.suspects.remove(&name);
            let reason = reason.chars().take(MAX_REASON).collect::<String>().into();
            self.rejected.insert(name, Rejection { version, reason });
        }
    }

    fn forget(&mut self, removed: &[Arc<str>]) {
        for name in removed {
            self.held.remove(name);
        }
    }

    /// Forgets rejections of what is no longer wanted.
    pub(super) fn want(&mut self, wanted: &Resources) {
        self.suspects.retain(|name| wanted.contains_key(name));
        self.rejected
            .retain(|name, rejection| wanted.get(name).is_some_and(|found| found.version == rejection.version));
    }

    /// Owes the client a resource that it may have.
    pub(super) fn owe(&mut self, name: &Arc<str>) {
        if self.is_subscribed(name) {
            self.owed.insert(Arc::clone(name));
        }
    }

    /// All that is to be sent some time.
    pub(super) fn changes(&self, wanted: &Resources, removes_unasked: bool) -> Changes {
        let is_due = |name: &Arc<str>, version: &Arc<str>| {
            self.is_subscribed(name)
                && self.rejected.get(name).is_none_or(|rejection| rejection.version != *version)
                && (self.owed.contains(name) || self.held.get(name) != Some(version))
        };
        let changed = wanted.iter().filter(|(name, found)| is_due(name, &found.version));
        let gone = self.held.keys().filter(|name| removes_unasked && !wanted.contains_key(*name));
        let unknown = self.owed.iter().filter(|name| !wanted.contains_key(*name));
        let removed: BTreeSet<_> = gone.chain(unknown).cloned().collect();
        Changes { changed: changed.map(|(name, _)| Arc::clone(name)).collect(), removed: removed.into_iter().collect() }
    }

    /// What of these changes goes into the next response. None if it is too early for one, or nothing is due.
    pub(super) fn next_response(&self, changes: Changes, is_more_to_come: bool) -> Option<Changes> {
        let Changes { changed, removed } = changes;
        if !self.is_open || self.in_flight.is_some() {
            return None;
        }
        let (mut alone, together): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|name| self.suspects.contains(name));
        let owes_empty = self.owes_response && alone.is_empty() && !is_more_to_come;
        if !together.is_empty() || !removed.is_empty() || owes_empty {
            return Some(Changes { changed: together, removed });
        }
        alone.truncate(1);
        (!alone.is_empty()).then_some(Changes { changed: alone, removed })
    }

    /// Notes what was sent.
    pub(super) fn sent(&mut self, nonce: String, sent: Vec<(Arc<str>, Arc<str>)>, removed: Vec<Arc<str>>) {
        for name in sent.iter().map(|(name, _)| name).chain(&removed) {
            self.owed.remove(name);
        }
        self.owes_response = false;
        self.in_flight = Some(InFlight { nonce, sent, removed });
    }

    fn is_subscribed(&self, name: &str) -> bool {
        self.is_wildcard || self.names.contains(name)
    }

    /// The client has some version, or has rejected the wanted one.
    pub(super) fn is_answered(&self, name: &str) -> bool {
        self.held.contains_key(name) || self.rejected.contains_key(name)
    }

    /// The client has this version, or has rejected it.
    pub(super) fn is_current(&self, name: &str, version: &Arc<str>) -> bool {
        self.held.get(name) == Some(version) || self.rejected.contains_key(name)
    }

    /// No response is in flight or owed.
    pub(super) const fn is_quiet(&self) -> bool {
        self.in_flight.is_none() && !self.owes_response
    }

    pub(super) const fn rejected(&self) -> &BTreeMap<Arc<str>, Rejection> {
        &self.rejected
    }
}
