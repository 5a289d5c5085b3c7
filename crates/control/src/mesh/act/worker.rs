//! One proxy: reads what it holds, tells it what it should hold, and watches that it stays so.
//!
//! What a proxy holds is read when it is met, after anything went wrong, and every few minutes; in between, what it was
//! told is what it holds, and a change is told by itself.
//!
//! Only proxies that answer take one of the places of those worked on at once, so that any number of others that do not
//! delay nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use portolan_core::mesh::control::types::{MeshKind, ObjectName};
use portolan_core::mesh::control::wire::ProxyConfig;
use portolan_core::mesh::control::{
    CallMethod, CallPlan, ConfigKeys, Diagnostic, ObservedConfig, Ownership, ProxyCall, ProxyImplementation, ProxyInfo,
    diff,
};
use portolan_drivers::l7mp::{self, CallError, ProxyClient};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::debug;

use super::super::metrics::Metrics;
use super::super::owner::Owner;
use super::fleet::{PendingConfig, ProxyChannel, Report, ReportQueue, owner};
use crate::runtime::backoff::Backoff;
use crate::runtime::lease::Term;

/// How often a proxy at rest is looked at.
const RECHECK: Duration = Duration::from_mins(5);
/// The same where it refused something: a port that was in use may be free.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// A proxy where nobody listens says so at once, and is asked at least this often: one that starts is soon found.
const KNOCK: Duration = Duration::from_millis(500);
/// What is at once.
const PROMPT: Duration = Duration::from_millis(100);
/// How long orders for what a proxy turns out to be are waited for before it is looked at again.
const SECOND_LOOK: Duration = Duration::from_secs(5);
/// A real l7mp has one thread for its API and its packets.
const L7MP_PAUSE: Duration = Duration::from_millis(10);
/// Objects that a proxy may refuse in one go before the rest is left for later.
const MOST_REFUSALS: usize = 64;

/// What a worker is made of.
pub(super) struct Setup {
    pub(super) proxy: ProxyClient,
    /// In whose name the proxy is programmed: no call is made outside it.
    pub(super) term: Term,
    pub(super) channel: Arc<ProxyChannel>,
    pub(super) pod: ObjectName,
    pub(super) reports: Arc<ReportQueue>,
    pub(super) slots: Arc<Semaphore>,
    pub(super) ownership: Ownership,
    pub(super) metrics: Metrics,
}

pub(super) struct Worker {
    setup: Setup,
    /// Everything it should hold.
    desired: Arc<ProxyConfig>,
    /// What that takes it for.
    taken_for: ProxyInfo,
    /// What it holds; none while that is not known.
    known: Option<Known>,
    report: Report,
    /// It is looked at again although nothing changed.
    looks_again: bool,
}

struct Known {
    flavour: l7mp::ProxyIdentity,
    holds: ObservedConfig,
    /// All of it is what it should be, but for what is ordered since.
    compared: bool,
    /// It was read just now. A real l7mp may have been started again since, and nobody was told.
    fresh: bool,
}

impl Known {
    fn kind(&self) -> ProxyImplementation {
        match self.flavour {
            l7mp::ProxyIdentity::Portolan { .. } => ProxyImplementation::Portolan,
            l7mp::ProxyIdentity::L7mp { .. } => ProxyImplementation::L7mp,
        }
    }
}

/// What became of bringing a proxy to what it should hold.
enum SyncOutcome {
    InForce,
    /// It is not what the orders take it for.
    Unlike,
}

/// Why a proxy is not where it should be.
enum SyncError {
    /// It did not answer, or not as it should: look again later.
    Away(CallError),
    /// It would not take something of this object.
    Refused(Owner, String),
    /// It would not take all of it at once, and does not say which part.
    RefusedSome(String),
    /// It does not hold what it was thought to.
    Otherwise,
}

impl From<CallError> for SyncError {
    fn from(failed: CallError) -> Self {
        Self::Away(failed)
    }
}

impl Worker {
    pub(super) fn new(setup: Setup) -> Self {
        let (desired, taken_for, report) = (Arc::default(), ProxyInfo::default(), Report::default());
        Self { setup, desired, taken_for, known: None, report, looks_again: false }
    }

    pub(super) fn term(&self) -> Term {
        self.setup.term.clone()
    }

    pub(super) async fn run(mut self) {
        let mut delays = Backoff::PROXIES.delays();
        let mut ordered = BTreeSet::new();
        // without orders it would hold too much of everything
        self.setup.channel.changed.notified().await;
        loop {
            let PendingConfig { names, config, revision, of } = self.setup.channel.pending.lock().take();
            self.taken_for = of;
            self.report
                .refused
                .retain(|owner, _| !names.iter().any(|(_, name)| is_of(&self.setup.ownership, name, owner)));
            // a rule that stands in somebody else's list is placed among all that do
            let mut inserts = !self.desired.insertions.is_empty();
            Arc::make_mut(&mut self.desired).replace(&names, &config);
            inserts |= !self.desired.insertions.is_empty();
            if let Some(known) = self.known.as_mut().filter(|_| inserts) {
                known.compared = false;
            }
            ordered.extend(names);
            let began = Instant::now();
            match self.bring(&ordered).await {
                Ok(SyncOutcome::InForce) => {
                    ordered = BTreeSet::new();
                    self.report.in_force = revision;
                    self.report.away = None;
                    self.tell();
                    delays.reset();
                    let pause = if self.report.refused.is_empty() { RECHECK } else { TRY_AGAIN };
                    self.rest(jittered(pause)).await;
                }
                Ok(SyncOutcome::Unlike) => {
                    self.tell();
                    self.rest(SECOND_LOOK).await;
                }
                Err(failed) => {
                    debug!(proxy = %self.setup.proxy.address(), %failed, "proxy is not where it should be");
                    self.known = None;
                    let is_prompt = matches!(failed, CallError::Unreachable(_)) && began.elapsed() < PROMPT;
                    self.report.away = Some(failed.to_string());
                    self.tell();
                    let pause = delays.pause();
                    // PendingConfig do not cut this short, or a proxy that fails would be hammered.
                    tokio::time::sleep(if is_prompt { pause.min(jittered(KNOCK)) } else { pause }).await;
                }
            }
        }
    }

    /// Waits for orders, for the proxy to go, or for this long; what it holds is then read again.
    async fn rest(&mut self, at_most: Duration) {
        let watched = matches!(&self.known, Some(known) if known.kind() == ProxyImplementation::Portolan);
        tokio::select! {
            () = self.setup.channel.changed.notified() => return,
            () = self.setup.proxy.closed(), if watched => {}
            () = tokio::time::sleep(at_most) => {}
        }
        self.known = None;
    }

    /// Brings the proxy to what it should hold: of the things named if the rest is known, else of all.
    async fn bring(&mut self, names: &ConfigKeys) -> Result<SyncOutcome, CallError> {
        let met = match &self.known {
            None => Some(self.in_term(self.setup.proxy.identify()).await?),
            Some(_) => None,
        };
        let slots = Arc::clone(&self.setup.slots);
        let _slot = slots.acquire().await.ok();
        if let Some(flavour) = met {
            self.look(flavour).await?;
            self.looks_again = names.is_empty() && self.report.in_force > 0 && self.report.refused.is_empty();
            // it may take it this time
            self.report.refused.clear();
        }
        if self.report.facts.as_ref() != Some(&self.taken_for) {
            return Ok(SyncOutcome::Unlike);
        }
        // whether a listener of a real l7mp must be started anew is seen only from everything on it
        let is_part =
            self.known.as_ref().is_some_and(|known| known.compared && known.kind() == ProxyImplementation::Portolan);
        self.tell_all(Some(names).filter(|_| is_part)).await?;
        if let Some(known) = &mut self.known {
            (known.compared, known.fresh) = (true, false);
        }
        Ok(SyncOutcome::InForce)
    }

    /// Tells the proxy what differs; what it refuses is left out, and the rest goes on. None stands for all names.
    async fn tell_all(&mut self, names: Option<&ConfigKeys>) -> Result<(), CallError> {
        for _ in 0..MOST_REFUSALS {
            match self.tell_proxy(names).await {
                Ok(()) => return Ok(()),
                Err(SyncError::Away(failed)) => return Err(failed),
                Err(SyncError::Refused(owner, text)) => {
                    self.report.refused.insert(owner, text);
                    self.look_after_calls().await?;
                }
                Err(SyncError::RefusedSome(_)) => break,
                Err(SyncError::Otherwise) => {}
            }
        }
        self.tell_one_by_one().await?;
        match self.tell_proxy(names).await {
            Err(SyncError::Away(failed)) => Err(failed),
            Ok(()) => Ok(()),
            Err(_) => Err(CallError::InvalidResponse("it refuses all together what it took one by one")),
        }
    }

    /// Whether what is known of a real l7mp may be of an earlier run.
    fn is_from_earlier(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.kind() == ProxyImplementation::L7mp && !known.fresh)
    }

    /// Of several calls to a real l7mp some may have been taken before one was refused.
    async fn look_after_calls(&mut self) -> Result<(), CallError> {
        match &self.known {
            Some(known) if known.kind() == ProxyImplementation::L7mp => self.look(known.flavour.clone()).await,
            _ => Ok(()),
        }
    }

    /// What the proxy holds.
    async fn look(&mut self, flavour: l7mp::ProxyIdentity) -> Result<(), CallError> {
        let config = match &flavour {
            l7mp::ProxyIdentity::Portolan { .. } => self.in_term(self.setup.proxy.get("/api/v2/config")).await?,
            l7mp::ProxyIdentity::L7mp { .. } => {
                // not /config: in strict mode it is refused as soon as one session has a middlepoint
                let mut config = json!({});
                for (key, query) in [
                    ("listeners", ""),
                    ("clusters", "?recursive=true"),
                    ("rulelists", ""),
                    ("rules", ""),
                    ("routes", ""),
                ] {
                    config[key] = self.in_term(self.setup.proxy.get(&format!("/api/v1/{key}{query}"))).await?;
                }
                config
            }
        };
        let known = Known { flavour, holds: ObservedConfig::of(&config), compared: false, fresh: true };
        self.report.facts = Some(ProxyInfo {
            implementation: known.kind(),
            foreign_ports: known.holds.foreign_ports(&self.setup.ownership),
        });
        self.known = Some(known);
        Ok(())
    }

    /// Makes the calls that are needed. None stands for all names.
    async fn tell_proxy(&mut self, names: Option<&ConfigKeys>) -> Result<(), SyncError> {
        let wanted = self.wanted();
        let Some(known) = &self.known else { return Ok(()) };
        let flavour = known.kind();
        let CallPlan { calls, diagnostics: notes } = match names {
            Some(names) => {
                let ours = wanted.only(names);
                diff(&ours, &known.holds.only(names, &ours, &self.setup.ownership), flavour, &self.setup.ownership)
            }
            None => diff(&wanted, &known.holds, flavour, &self.setup.ownership),
        };
        self.remark(names, notes);
        if std::mem::take(&mut self.looks_again) && !calls.is_empty() {
            self.setup.metrics.drifted();
        }
        for call in &calls {
            match self.make(call, flavour).await {
                Err(SyncError::Refused(..) | SyncError::Otherwise) if self.is_from_earlier() => {
                    self.look_after_calls().await?;
                    return Err(SyncError::Otherwise);
                }
                // what was to go is gone
                Ok(()) | Err(SyncError::Otherwise) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        if let Some(known) = &mut self.known {
            known.holds.learn(names, &wanted, &self.setup.ownership);
        }
        Ok(())
    }

    /// Keeps what was noted of others.
    fn remark(&mut self, names: Option<&ConfigKeys>, notes: Vec<(Arc<str>, Diagnostic)>) {
        let domain = &self.setup.ownership.domain;
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

    /// Tells the proxy object by object, to find out which it refuses: first those that others refer to.
    async fn tell_one_by_one(&mut self) -> Result<(), CallError> {
        let wanted = self.wanted();
        let mut owners: BTreeMap<(usize, Owner), ConfigKeys> = BTreeMap::new();
        for (part, name) in wanted.keys() {
            if let Some(owner) = owner(&self.setup.ownership.domain, &name) {
                let rank =
                    [MeshKind::Target, MeshKind::Route].iter().position(|kind| *kind == owner.0).unwrap_or(usize::MAX);
                owners.entry((rank, owner)).or_default().insert((part, name));
            }
        }
        for ((_, owner), names) in owners {
            let refusal = match self.tell_proxy(Some(&names)).await {
                Ok(()) => continue,
                Err(SyncError::Away(failed)) => return Err(failed),
                Err(SyncError::Refused(_, text) | SyncError::RefusedSome(text)) => text,
                Err(SyncError::Otherwise) => "what it needs is not on the proxy".to_owned(),
            };
            self.report.refused.insert(owner, refusal);
            self.look_after_calls().await?;
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
            owner(&self.setup.ownership.domain, name).is_none_or(|owner| !self.report.refused.contains_key(&owner))
        });
        Arc::new(wanted)
    }

    /// Makes a call only while this replica leads, and abandons it when it no longer does.
    async fn in_term<T>(&self, call: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        if !self.setup.term.held() {
            return Err(CallError::NotLeading);
        }
        tokio::select! {
            biased;
            () = self.setup.term.ended() => Err(CallError::NotLeading),
            answer = call => answer,
        }
    }

    async fn make(&self, call: &ProxyCall, flavour: ProxyImplementation) -> Result<(), SyncError> {
        let method = match call.method {
            CallMethod::Post => Method::POST,
            CallMethod::Delete => Method::DELETE,
        };
        if flavour == ProxyImplementation::L7mp {
            tokio::time::sleep(L7MP_PAUSE).await;
        }
        let began = Instant::now();
        let mut answer = self.in_term(self.setup.proxy.call(method.clone(), &call.path, call.body.as_ref())).await;
        if answer.as_ref().err().is_some_and(CallError::is_stale_session) {
            let path = call.path.trim_end_matches("?recursive=true");
            answer = self.in_term(self.setup.proxy.call(method, path, call.body.as_ref())).await;
        }
        if let Err(CallError::LaterTerm(term)) = answer {
            self.setup.term.outranked_by(term);
        }
        self.setup.metrics.called(flavour, call, &answer, began.elapsed());
        match answer {
            Ok(_) => Ok(()),
            Err(failed) if call.method == CallMethod::Delete && failed.is_not_found() => Err(SyncError::Otherwise),
            // something else has that name: look again
            Err(failed) if failed.is_already_defined() || failed.is_unauthorized() => Err(SyncError::Away(failed)),
            Err(CallError::Rejected { status, content }) if status.is_client_error() => {
                Err(self.refused(call, content))
            }
            // an answer of whoever stands before it, or of one that is broken
            Err(failed) => Err(SyncError::Away(failed)),
        }
    }

    /// Whose fault a refusal is.
    fn refused(&self, call: &ProxyCall, content: String) -> SyncError {
        let body = call.body.as_ref();
        if let Some(ops) = body.and_then(|body| body["ops"].as_array()) {
            let said: Value = serde_json::from_str(&content).unwrap_or_default();
            let index = said["index"].as_u64().and_then(|index| usize::try_from(index).ok());
            let bad = index.and_then(|index| ops.get(index)).and_then(|op| op["name"].as_str());
            let Some(owner) = bad.and_then(|name| owner(&self.setup.ownership.domain, name)) else {
                return SyncError::RefusedSome(content);
            };
            let text = said["content"].as_str().map_or_else(|| said["content"].to_string(), str::to_owned);
            return SyncError::Refused(owner, text);
        }
        let named = body.and_then(|body| body.as_object()?.values().next()?["name"].as_str());
        let name = named.unwrap_or_else(|| call.path.rsplit('/').next().unwrap_or_default());
        match owner(&self.setup.ownership.domain, name) {
            Some(owner) => SyncError::Refused(owner, content),
            None => SyncError::Away(CallError::InvalidResponse("it refuses what nobody asked for")),
        }
    }

    fn tell(&self) {
        let mut report = self.setup.channel.report.lock();
        if *report != self.report {
            report.clone_from(&self.report);
            drop(report);
            self.setup.reports.add(&self.setup.pod);
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
