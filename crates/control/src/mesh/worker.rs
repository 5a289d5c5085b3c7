//! One proxy: reads what it holds, tells it what it should hold, and watches that it stays so.
//!
//! What a proxy holds is read when it is met, after anything went wrong, and every few minutes; in between, what it was
//! told is what it holds, and a change is told by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use portolan_core::mesh::control::wire::ProxyConfig;
use portolan_core::mesh::control::{Call, Flavour, Names, Note, Observed, Ownership, ProxyFacts, Steps, Verb, diff};
use portolan_drivers::l7mp::{self, Failed, Proxy};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tracing::debug;

use super::fleet::{Desk, Orders, Owner, Report, owner};
use super::metrics::Metrics;
use crate::runtime::backoff::Backoff;

/// How often a proxy at rest is looked at.
const RECHECK: Duration = Duration::from_mins(5);
/// A real l7mp has one thread for its API and its packets.
const L7MP_PAUSE: Duration = Duration::from_millis(10);
/// Objects that a proxy may refuse in one go before the rest is left for later.
const MOST_REFUSALS: usize = 64;

pub(super) struct Worker {
    proxy: Proxy,
    desk: Arc<Desk>,
    wake: Arc<Notify>,
    slots: Arc<Semaphore>,
    ownership: Ownership,
    metrics: Metrics,
    /// Everything it should hold.
    desired: Arc<ProxyConfig>,
    /// What it holds; none while that is not known.
    known: Option<Known>,
    report: Report,
    /// It is looked at again although nothing was ordered.
    looks_again: bool,
}

struct Known {
    flavour: l7mp::Flavour,
    holds: Observed,
}

impl Known {
    fn kind(&self) -> Flavour {
        match self.flavour {
            l7mp::Flavour::Portolan { .. } => Flavour::Portolan,
            l7mp::Flavour::L7mp { .. } => Flavour::L7mp,
        }
    }
}

/// Why a proxy is not where it should be.
enum Trouble {
    /// It did not answer, or not as it should: look again later.
    Away(Failed),
    /// It would not take something of this object.
    Refused(Owner, String),
    /// It would not take all of it at once, and does not say which part.
    RefusedSome,
}

impl From<Failed> for Trouble {
    fn from(failed: Failed) -> Self {
        Self::Away(failed)
    }
}

impl Worker {
    pub(super) fn new(
        proxy: Proxy,
        desk: Arc<Desk>,
        wake: Arc<Notify>,
        slots: Arc<Semaphore>,
        ownership: Ownership,
        metrics: Metrics,
    ) -> Self {
        let (desired, report) = (Arc::default(), Report::default());
        Self { proxy, desk, wake, slots, ownership, metrics, desired, known: None, report, looks_again: false }
    }

    pub(super) async fn run(mut self) {
        let mut delays = Backoff::PROXIES.delays();
        let (mut ordered, mut whole) = (BTreeSet::new(), false);
        loop {
            let Orders { names, config, revision } = self.desk.orders.lock().take();
            // a rule that stands in somebody else's list is placed among all that do
            whole |= !self.desired.insertions.is_empty();
            Arc::make_mut(&mut self.desired).replace(&names, &config);
            whole |= !self.desired.insertions.is_empty();
            self.report.refused.retain(|owner, _| !names.iter().any(|(_, name)| is_of(&self.ownership, name, owner)));
            ordered.extend(names);
            let slots = Arc::clone(&self.slots);
            let Ok(slot) = slots.acquire().await else { return };
            let brought = self.bring(&ordered, whole).await;
            drop(slot);
            match brought {
                Ok(()) => {
                    (ordered, whole) = (BTreeSet::new(), false);
                    self.report.in_force = revision;
                    self.report.away = None;
                    self.tell();
                    delays.reset();
                    self.rest(jittered(RECHECK)).await;
                }
                Err(failed) => {
                    debug!(proxy = %self.proxy.address(), %failed, "proxy is not where it should be");
                    self.known = None;
                    self.report.away = Some(failed.to_string());
                    self.tell();
                    // Orders do not cut this short, or a proxy that fails would be hammered.
                    tokio::time::sleep(delays.pause()).await;
                }
            }
        }
    }

    /// Waits for orders, for the proxy to go, or for this long; what it holds is then read again.
    async fn rest(&mut self, at_most: Duration) {
        let watched = matches!(&self.known, Some(known) if known.kind() == Flavour::Portolan);
        tokio::select! {
            () = self.desk.ordered.notified() => return,
            () = self.proxy.closed(), if watched => {}
            () = tokio::time::sleep(at_most) => {}
        }
        self.known = None;
    }

    /// Brings the proxy to what it should hold: of the things named if the rest is known, else of all.
    async fn bring(&mut self, names: &Names, mut whole: bool) -> Result<(), Failed> {
        if self.known.is_none() {
            self.known = Some(self.look().await?);
            self.looks_again = names.is_empty() && self.report.in_force > 0;
            whole = true;
        }
        // whether a listener of a real l7mp must be started anew is seen only from everything on it
        whole |= self.known.as_ref().is_some_and(|known| known.kind() == Flavour::L7mp);
        for _ in 0..MOST_REFUSALS {
            match self.tell_proxy(if whole { None } else { Some(names) }).await {
                Ok(()) => return Ok(()),
                Err(Trouble::Away(failed)) => return Err(failed),
                Err(Trouble::Refused(owner, text)) => {
                    self.report.refused.insert(owner, text);
                }
                Err(Trouble::RefusedSome) => self.tell_one_by_one().await?,
            }
        }
        Ok(())
    }

    /// What the proxy is, and what it holds.
    async fn look(&mut self) -> Result<Known, Failed> {
        let flavour = self.proxy.flavour().await?;
        let config = match &flavour {
            l7mp::Flavour::Portolan { .. } => self.proxy.get("/api/v2/config").await?,
            l7mp::Flavour::L7mp { .. } => {
                // not /config: in strict mode it is refused as soon as one session has a middlepoint
                let mut config = json!({});
                for (key, query) in [
                    ("listeners", ""),
                    ("clusters", "?recursive=true"),
                    ("rulelists", ""),
                    ("rules", ""),
                    ("routes", ""),
                ] {
                    config[key] = self.proxy.get(&format!("/api/v1/{key}{query}")).await?;
                }
                config
            }
        };
        let known = Known { flavour, holds: Observed::of(&config) };
        self.report.facts =
            Some(ProxyFacts { flavour: known.kind(), taken: known.holds.foreign_ports(&self.ownership) });
        Ok(known)
    }

    /// Makes the calls that are needed. None stands for all names.
    async fn tell_proxy(&mut self, names: Option<&Names>) -> Result<(), Trouble> {
        let wanted = self.wanted();
        let Some(known) = &self.known else { return Ok(()) };
        let flavour = known.kind();
        let Steps { calls, notes } = match names {
            Some(names) => {
                diff(&wanted.only(names), &known.holds.only(names, &self.ownership), flavour, &self.ownership)
            }
            None => diff(&wanted, &known.holds, flavour, &self.ownership),
        };
        self.remark(names, notes);
        if std::mem::take(&mut self.looks_again) && !calls.is_empty() {
            self.metrics.drifted();
        }
        for call in &calls {
            self.make(call, flavour).await?;
        }
        if let Some(known) = &mut self.known {
            known.holds.learn(names, &wanted, &self.ownership);
        }
        Ok(())
    }

    /// Keeps what was noted of others.
    fn remark(&mut self, names: Option<&Names>, notes: Vec<(Arc<str>, Note)>) {
        let domain = &self.ownership.domain;
        match names {
            None => self.report.notes.clear(),
            Some(names) => {
                let told: BTreeSet<Owner> = names.iter().filter_map(|(_, name)| owner(domain, name)).collect();
                self.report.notes.retain(|owner, _| !told.contains(owner));
            }
        }
        let notes = notes.into_iter().filter_map(|(name, note)| Some((owner(domain, &name)?, note)));
        self.report.notes.extend(notes);
    }

    /// Tells our proxy object by object, to find out which it refuses.
    async fn tell_one_by_one(&mut self) -> Result<(), Failed> {
        let wanted = self.wanted();
        let mut owners: BTreeMap<Owner, Names> = BTreeMap::new();
        for (part, name) in wanted.names() {
            if let Some(owner) = owner(&self.ownership.domain, &name) {
                owners.entry(owner).or_default().insert((part, name));
            }
        }
        for (owner, names) in owners {
            match self.tell_proxy(Some(&names)).await {
                Ok(()) => {}
                Err(Trouble::Away(Failed::Refused { content, .. }) | Trouble::Refused(_, content)) => {
                    self.report.refused.insert(owner, content);
                }
                Err(Trouble::RefusedSome) => {
                    self.report.refused.insert(owner, "the proxy refuses it, and says no more".to_owned());
                }
                Err(Trouble::Away(failed)) => return Err(failed),
            }
        }
        Ok(())
    }

    /// What it should hold, less what it refused. Rarely anything is, so nothing is copied then.
    fn wanted(&self) -> Arc<ProxyConfig> {
        if self.report.refused.is_empty() {
            return Arc::clone(&self.desired);
        }
        let mut wanted = ProxyConfig::clone(&self.desired);
        wanted.retain(|name| {
            owner(&self.ownership.domain, name).is_none_or(|owner| !self.report.refused.contains_key(&owner))
        });
        Arc::new(wanted)
    }

    async fn make(&self, call: &Call, flavour: Flavour) -> Result<(), Trouble> {
        let method = match call.verb {
            Verb::Post => Method::POST,
            Verb::Delete => Method::DELETE,
        };
        if flavour == Flavour::L7mp {
            tokio::time::sleep(L7MP_PAUSE).await;
        }
        let began = Instant::now();
        let mut answer = self.proxy.call(method.clone(), &call.path, call.body.as_ref()).await;
        if answer.as_ref().err().is_some_and(Failed::is_stale_session) {
            let path = call.path.trim_end_matches("?recursive=true");
            answer = self.proxy.call(method, path, call.body.as_ref()).await;
        }
        self.metrics.called(flavour, call, &answer, began.elapsed());
        match answer {
            Ok(_) => Ok(()),
            Err(failed) if call.verb == Verb::Delete && failed.is_gone() => Ok(()),
            // something else has that name: look again
            Err(failed) if failed.is_already_defined() || failed.is_denied() => Err(Trouble::Away(failed)),
            Err(Failed::Refused { content, .. }) => Err(self.refused(call, content)),
            Err(failed) => Err(Trouble::Away(failed)),
        }
    }

    /// Whose fault a refusal is.
    fn refused(&self, call: &Call, content: String) -> Trouble {
        let body = call.body.as_ref();
        if let Some(ops) = body.and_then(|body| body["ops"].as_array()) {
            let said: Value = serde_json::from_str(&content).unwrap_or_default();
            let index = said["index"].as_u64().and_then(|index| usize::try_from(index).ok());
            let bad = index.and_then(|index| ops.get(index)).and_then(|op| op["name"].as_str());
            let Some(owner) = bad.and_then(|name| owner(&self.ownership.domain, name)) else {
                return Trouble::RefusedSome;
            };
            let text = said["content"].as_str().map_or_else(|| said["content"].to_string(), str::to_owned);
            return Trouble::Refused(owner, text);
        }
        let named = body.and_then(|body| body.as_object()?.values().next()?["name"].as_str());
        let name = named.unwrap_or_else(|| call.path.rsplit('/').next().unwrap_or_default());
        match owner(&self.ownership.domain, name) {
            Some(owner) => Trouble::Refused(owner, content),
            None => Trouble::Away(Failed::NotUnderstood("it refuses what nobody asked for")),
        }
    }

    fn tell(&self) {
        let mut report = self.desk.report.lock();
        if *report != self.report {
            report.clone_from(&self.report);
            drop(report);
            self.wake.notify_one();
        }
    }
}

fn is_of(ownership: &Ownership, name: &str, other: &Owner) -> bool {
    owner(&ownership.domain, name).as_ref() == Some(other)
}

/// Up to a tenth sooner, so that proxies met together are not looked at together for ever.
fn jittered(period: Duration) -> Duration {
    period.mul_f64(1.0 - fastrand::f64() / 10.0)
}
