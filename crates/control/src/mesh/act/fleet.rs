//! Every proxy has a task of its own: one that is slow or away delays no other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use portolan_core::mesh::control::types::ObjectName;
use portolan_core::mesh::control::wire::ProxyConfig;
use portolan_core::mesh::control::{
    ClusterDomain, ConfigKeys, Diagnostic, Ownership, ProxyInfo, ProxyRole, Reason, Resolver,
};
use portolan_drivers::l7mp::{Credentials, ProxyClient, TlsConnection};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::super::metrics::{Census, Metrics};
use super::super::observe::{Cache, key};
use super::super::owner::Owner;
use super::super::{Options, validate};
use super::worker::{Setup, Worker};
use crate::runtime::lease::Term;
use crate::runtime::tasks::Tasks;

/// What a proxy is to hold, as far as it was not told yet.
#[derive(Default)]
pub(in super::super) struct PendingConfig {
    /// ConfigKeys of what may differ.
    pub(in super::super) names: ConfigKeys,
    /// What it should hold, of the things named.
    pub(in super::super) config: ProxyConfig,
    pub(in super::super) revision: u64,
    /// What they take the proxy for.
    pub(in super::super) of: ProxyInfo,
}

impl PendingConfig {
    /// What was not told yet; it is by whoever takes it.
    pub(in super::super) fn take(&mut self) -> Self {
        let (revision, of) = (self.revision, self.of.clone());
        std::mem::replace(self, Self { revision, of, ..Self::default() })
    }
}

/// What is known of a proxy.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in super::super) struct Report {
    /// The orders up to here are in force, but for what was refused.
    pub(in super::super) in_force: u64,
    /// It does not answer, or not as it should.
    pub(in super::super) away: Option<String>,
    pub(in super::super) facts: Option<ProxyInfo>,
    /// What it would not take, in its own words.
    pub(in super::super) refused: BTreeMap<Owner, String>,
    /// What it lacks, or did at a price.
    pub(in super::super) notes: BTreeMap<Owner, Diagnostic>,
}

/// Where the loop and a proxy's task meet.
#[derive(Default)]
pub(in super::super) struct ProxyChannel {
    pub(in super::super) pending: Mutex<PendingConfig>,
    pub(in super::super) changed: Notify,
    pub(in super::super) report: Mutex<Report>,
}

/// Who has something to report.
pub(in super::super) struct ReportQueue {
    waiting: Mutex<BTreeSet<ObjectName>>,
    /// Wakes the loop.
    wake: Arc<Notify>,
}

impl ReportQueue {
    /// A proxy has something to report.
    pub(in super::super) fn add(&self, pod: &ObjectName) {
        self.waiting.lock().insert(pod.clone());
        self.wake.notify_one();
    }
}

/// What makes a proxy another one: where it is, and which run of its process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    address: SocketAddr,
    run: String,
    token: Option<Arc<str>>,
}

struct Member {
    identity: Identity,
    channel: Arc<ProxyChannel>,
    stop: CancellationToken,
    revision: u64,
    /// The revision in which something of an object changed last; gone once it is in force.
    moved: BTreeMap<Owner, u64>,
    seen: Report,
}

/// All proxies.
pub(in super::super) struct Fleet {
    members: BTreeMap<ObjectName, Member>,
    tasks: Tasks,
    reports: Arc<ReportQueue>,
    slots: Arc<Semaphore>,
    ownership: Ownership,
    /// Proxies are spoken to with TLS.
    tls: Option<Arc<ClientConfig>>,
    metrics: Metrics,
    /// None while this replica does not lead: then there are no members.
    term: Option<Term>,
}

impl Fleet {
    pub(in super::super) fn new(tasks: Tasks, wake: Arc<Notify>, options: &Options, metrics: Metrics) -> Self {
        let domain = options.settings.domain.clone();
        let ownership = Ownership { domain, adopt_legacy: options.adopt_legacy };
        let tls = options.proxy_tls.clone();
        let slots = Arc::new(Semaphore::new(options.at_once));
        let reports = Arc::new(ReportQueue { waiting: Mutex::default(), wake });
        Self { members: BTreeMap::new(), tasks, reports, slots, ownership, tls, metrics, term: None }
    }

    /// This replica leads: proxies are programmed in the name of this term.
    pub(in super::super) fn begin(&mut self, term: &Term) {
        self.term = Some(term.clone());
    }

    /// Ends every task: another leader decides from here on.
    pub(in super::super) fn end(&mut self) {
        self.term = None;
        for member in std::mem::take(&mut self.members).into_values() {
            member.stop.cancel();
        }
    }

    /// Meets a pod that came, changed or went.
    pub(in super::super) fn follow(&mut self, name: &ObjectName, cache: &Cache, resolver: &Resolver) -> MemberChange {
        let identity = identity(name, cache, resolver);
        if self.members.get(name).map(|member| &member.identity) == identity.as_ref() {
            return MemberChange::Known;
        }
        if let Some(member) = self.members.remove(name) {
            member.stop.cancel();
        }
        let (Some(identity), Some(term)) = (identity, &self.term) else { return MemberChange::Gone };
        let tls = match (&self.tls, server_name(name)) {
            (None, _) => None,
            (Some(config), Some(server_name)) => Some(TlsConnection { config: Arc::clone(config), server_name }),
            // better not at all than in the clear
            (Some(_), None) => return MemberChange::Gone,
        };
        let credentials = Credentials { token: identity.token.clone(), tls, term: term.number() };
        let channel = Arc::new(ProxyChannel::default());
        let stop = CancellationToken::new();
        let worker = Worker::new(Setup {
            proxy: ProxyClient::new(identity.address, credentials),
            term: term.clone(),
            channel: Arc::clone(&channel),
            pod: name.clone(),
            reports: Arc::clone(&self.reports),
            slots: Arc::clone(&self.slots),
            ownership: self.ownership.clone(),
            metrics: self.metrics.clone(),
        });
        let (own, all) = (stop.clone(), self.tasks.stop());
        self.tasks.spawn_finite("proxy", async move {
            let term = worker.term();
            tokio::select! {
                biased;
                () = own.cancelled() => {}
                () = all.cancelled() => {}
                () = term.ended() => {}
                () = worker.run() => {}
            }
        });
        let member = Member { identity, channel, stop, revision: 0, moved: BTreeMap::new(), seen: Report::default() };
        self.members.insert(name.clone(), member);
        MemberChange::New
    }

    /// Tells a proxy what it should hold, of the things named.
    pub(in super::super) fn configure(
        &mut self,
        name: &ObjectName,
        names: ConfigKeys,
        config: &ProxyConfig,
        of: ProxyInfo,
    ) {
        let domain = &self.ownership.domain;
        let Some(member) = self.members.get_mut(name) else { return };
        member.revision += 1;
        for owner in names.iter().filter_map(|(_, name)| owner(domain, name)) {
            member.moved.insert(owner, member.revision);
        }
        let mut pending = member.channel.pending.lock();
        pending.config.replace(&names, config);
        pending.names.extend(names);
        pending.revision = member.revision;
        pending.of = of;
        drop(pending);
        member.channel.changed.notify_one();
    }

    /// What proxies have reported since the last call.
    pub(in super::super) fn reports(&mut self) -> Vec<ReportDelta> {
        let mut news = Vec::new();
        for pod in std::mem::take(&mut *self.reports.waiting.lock()) {
            let Some(member) = self.members.get_mut(&pod) else { continue };
            let report = member.channel.report.lock().clone();
            let refused = report.refused.keys().chain(member.seen.refused.keys());
            let noted = report.notes.keys().chain(member.seen.notes.keys());
            let mut about: BTreeSet<Owner> = refused.chain(noted).cloned().collect();
            if report.away != member.seen.away {
                about.extend(member.moved.keys().cloned());
            }
            let facts = report.facts.clone().filter(|_| report.facts != member.seen.facts);
            let is_new = |(owner, text): &(&Owner, &String)| member.seen.refused.get(*owner) != Some(*text);
            let refused = report.refused.iter().filter(is_new);
            let refused = refused.map(|(owner, text)| (owner.clone(), text.clone())).collect();
            let is_cut = |(owner, note): &(&Owner, &Diagnostic)| {
                note.reason == Reason::SessionsCut && member.moved.contains_key(*owner)
            };
            let cut = report.notes.iter().filter(is_cut);
            let cut = cut.map(|(owner, note)| (owner.clone(), note.message.clone())).collect();
            let in_force = member.moved.extract_if(.., |_, at| *at <= report.in_force);
            about.extend(in_force.map(|(owner, _)| owner));
            member.seen = report;
            news.push(ReportDelta { pod, about, facts, refused, cut });
        }
        news
    }

    /// How an object fares on a proxy.
    pub(in super::super) fn program_state(&self, pod: &ObjectName, owner: &Owner) -> ProgramState<'_> {
        let Some(member) = self.members.get(pod) else { return ProgramState::Pending };
        if let Some(text) = member.seen.refused.get(owner) {
            return ProgramState::Refused(text);
        }
        if let Some(note) = member.seen.notes.get(owner).filter(|note| note.reason == Reason::RuleListMissing) {
            return ProgramState::Lacks(note);
        }
        // what was in force stays in force when its proxy is away
        let pending = member.moved.get(owner).is_some_and(|at| *at > member.seen.in_force) || member.seen.in_force == 0;
        match &member.seen.away {
            Some(why) if pending => ProgramState::Away(why),
            _ if pending => ProgramState::Pending,
            _ => ProgramState::InForce,
        }
    }

    /// Pods whose proxies do not answer, and why.
    pub(in super::super) fn away(&self) -> impl Iterator<Item = (&ObjectName, &str)> {
        self.members.iter().filter_map(|(pod, member)| Some((pod, member.seen.away.as_deref()?)))
    }

    /// Whether a pod has a proxy.
    pub(in super::super) fn has(&self, pod: &ObjectName) -> bool {
        self.members.contains_key(pod)
    }

    /// How many proxies there are, and how they are.
    pub(in super::super) fn count(&self) -> Census {
        let mut census = Census::default();
        for member in self.members.values() {
            let flavour = member.seen.facts.as_ref().map(|facts| facts.implementation);
            *census.proxies.entry((flavour, member.seen.away.is_some())).or_default() += 1;
            census.behind += usize::from(member.seen.in_force < member.revision);
        }
        census
    }
}

/// What became of a pod's proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum MemberChange {
    /// It is the one that was there.
    Known,
    /// It needs to be told everything.
    New,
    /// There is none.
    Gone,
}

/// What a proxy has reported.
pub(in super::super) struct ReportDelta {
    pub(in super::super) pod: ObjectName,
    /// Objects that may fare differently now.
    pub(in super::super) about: BTreeSet<Owner>,
    /// What is new of the proxy itself.
    pub(in super::super) facts: Option<ProxyInfo>,
    /// What it refuses from here on, in its own words.
    pub(in super::super) refused: Vec<(Owner, String)>,
    /// Whose sessions it ended.
    pub(in super::super) cut: Vec<(Owner, String)>,
}

/// How an object fares on a proxy.
pub(in super::super) enum ProgramState<'a> {
    InForce,
    Pending,
    Away(&'a str),
    Refused(&'a str),
    Lacks(&'a Diagnostic),
}

/// Whose a thing on a proxy is, by its name.
pub(in super::super) fn owner(domain: &ClusterDomain, name: &str) -> Option<Owner> {
    let name = name.split_once('@').map_or(name, |(cluster, _)| cluster);
    domain.parse(name.split_once('~').map_or(name, |(owner, _)| owner))
}

/// What the certificate of a pod's proxy must be for.
fn server_name(pod: &ObjectName) -> Option<ServerName<'static>> {
    ServerName::try_from(format!("{}.{}.pod", pod.name, pod.namespace)).ok()
}

/// None for a pod that runs no proxy, or none that can be reached.
fn identity(name: &ObjectName, cache: &Cache, resolver: &Resolver) -> Option<Identity> {
    let plain = resolver.world().pods.get(name).filter(|pod| !pod.ended)?;
    let ProxyRole::Proxy(port) = plain.proxy_role() else { return None };
    let address = SocketAddr::new(*plain.addresses.first()?, port);
    let mut token = None;
    cache.secrets.in_namespace(&name.namespace, |_, secret| token = validate::token(secret));
    let pod = cache.pods.get(&key(name))?;
    Some(Identity { address, run: pod.run(), token })
}
