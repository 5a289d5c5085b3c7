//! Every proxy has a task of its own: one that is slow or away delays no other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use portolan_core::mesh::control::types::{MeshKind, ObjectName};
use portolan_core::mesh::control::wire::ProxyConfig;
use portolan_core::mesh::control::{
    ClusterDomain, ConfigKeys, Diagnostic, Ownership, ProxyInfo, ProxyRole, Reason, Resolver,
};
use portolan_drivers::l7mp::{Credentials, ProxyClient, TlsConnection};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::metrics::{Census, Metrics};
use super::observe::{Cache, key};
use super::validate;
use super::worker::Worker;
use crate::runtime::tasks::Tasks;

/// Proxies that are worked on at once.
const AT_ONCE: usize = 64;

/// Who holds something on a proxy: an object of the mesh.
pub(super) type Owner = (MeshKind, ObjectName);

/// What a proxy is to hold, as far as it was not told yet.
#[derive(Default)]
pub(super) struct Orders {
    /// Names of what may differ.
    pub(super) names: ConfigKeys,
    /// What it should hold, of the things named.
    pub(super) config: ProxyConfig,
    pub(super) revision: u64,
    /// What they take the proxy for.
    pub(super) of: ProxyInfo,
}

impl Orders {
    /// What was not told yet; it is by whoever takes it.
    pub(super) fn take(&mut self) -> Self {
        let (revision, of) = (self.revision, self.of.clone());
        std::mem::replace(self, Self { revision, of, ..Self::default() })
    }
}

/// What is known of a proxy.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Report {
    /// The orders up to here are in force, but for what was refused.
    pub(super) in_force: u64,
    /// It does not answer, or not as it should.
    pub(super) away: Option<String>,
    pub(super) facts: Option<ProxyInfo>,
    /// What it would not take, in its own words.
    pub(super) refused: BTreeMap<Owner, String>,
    /// What it lacks, or did at a price.
    pub(super) notes: BTreeMap<Owner, Diagnostic>,
}

/// Where the loop and a proxy's task meet.
#[derive(Default)]
pub(super) struct Desk {
    pub(super) orders: Mutex<Orders>,
    pub(super) ordered: Notify,
    pub(super) report: Mutex<Report>,
}

/// Who has something to report.
pub(super) struct Bell {
    waiting: Mutex<BTreeSet<ObjectName>>,
    /// Wakes the loop.
    wake: Arc<Notify>,
}

impl Bell {
    /// A proxy has something to report.
    pub(super) fn ring(&self, pod: &ObjectName) {
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
    desk: Arc<Desk>,
    stop: CancellationToken,
    revision: u64,
    /// The revision in which something of an object changed last; gone once it is in force.
    moved: BTreeMap<Owner, u64>,
    seen: Report,
}

/// All proxies.
pub(super) struct Fleet {
    members: BTreeMap<ObjectName, Member>,
    tasks: Tasks,
    bell: Arc<Bell>,
    slots: Arc<Semaphore>,
    ownership: Ownership,
    /// Proxies are spoken to with TLS.
    tls: Option<Arc<ClientConfig>>,
    metrics: Metrics,
}

impl Fleet {
    pub(super) fn new(tasks: Tasks, wake: Arc<Notify>, options: &super::Options, metrics: Metrics) -> Self {
        let domain = options.settings.domain.clone();
        let ownership = Ownership { domain, adopt_legacy: options.adopt_legacy };
        let tls = options.proxy_tls.clone();
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let bell = Arc::new(Bell { waiting: Mutex::default(), wake });
        Self { members: BTreeMap::new(), tasks, bell, slots, ownership, tls, metrics }
    }

    /// Ends every task: what they were told is for another leader to decide.
    pub(super) fn disband(&mut self) {
        for member in std::mem::take(&mut self.members).into_values() {
            member.stop.cancel();
        }
    }

    /// Meets a pod that came, changed or went.
    pub(super) fn meet(&mut self, name: &ObjectName, cache: &Cache, resolver: &Resolver) -> Met {
        let identity = identity(name, cache, resolver);
        if self.members.get(name).map(|member| &member.identity) == identity.as_ref() {
            return Met::Known;
        }
        if let Some(member) = self.members.remove(name) {
            member.stop.cancel();
        }
        let Some(identity) = identity else { return Met::Gone };
        let tls = match (&self.tls, server_name(name)) {
            (None, _) => None,
            (Some(config), Some(server_name)) => Some(TlsConnection { config: Arc::clone(config), server_name }),
            // better not at all than in the clear
            (Some(_), None) => return Met::Gone,
        };
        let credentials = Credentials { token: identity.token.clone(), tls };
        let desk = Arc::new(Desk::default());
        let stop = CancellationToken::new();
        let worker = Worker::new(
            ProxyClient::new(identity.address, credentials),
            Arc::clone(&desk),
            (name.clone(), Arc::clone(&self.bell)),
            Arc::clone(&self.slots),
            self.ownership.clone(),
            self.metrics.clone(),
        );
        let (own, all) = (stop.clone(), self.tasks.stop());
        self.tasks.spawn_finite("proxy", async move {
            tokio::select! { () = own.cancelled() => {} () = all.cancelled() => {} () = worker.run() => {} }
        });
        let member = Member { identity, desk, stop, revision: 0, moved: BTreeMap::new(), seen: Report::default() };
        self.members.insert(name.clone(), member);
        Met::New
    }

    /// Tells a proxy what it should hold, of the things named.
    pub(super) fn order(&mut self, name: &ObjectName, names: ConfigKeys, config: &ProxyConfig, of: ProxyInfo) {
        let domain = &self.ownership.domain;
        let Some(member) = self.members.get_mut(name) else { return };
        member.revision += 1;
        for owner in names.iter().filter_map(|(_, name)| owner(domain, name)) {
            member.moved.insert(owner, member.revision);
        }
        let mut orders = member.desk.orders.lock();
        orders.config.replace(&names, config);
        orders.names.extend(names);
        orders.revision = member.revision;
        orders.of = of;
        drop(orders);
        member.desk.ordered.notify_one();
    }

    /// What proxies have reported since the last call.
    pub(super) fn news(&mut self) -> Vec<News> {
        let mut news = Vec::new();
        for pod in std::mem::take(&mut *self.bell.waiting.lock()) {
            let Some(member) = self.members.get_mut(&pod) else { continue };
            let report = member.desk.report.lock().clone();
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
            news.push(News { pod, about, facts, refused, cut });
        }
        news
    }

    /// How an object fares on a proxy.
    pub(super) fn fares(&self, pod: &ObjectName, owner: &Owner) -> Fares<'_> {
        let Some(member) = self.members.get(pod) else { return Fares::Pending };
        if let Some(text) = member.seen.refused.get(owner) {
            return Fares::Refused(text);
        }
        if let Some(note) = member.seen.notes.get(owner).filter(|note| note.reason == Reason::RuleListMissing) {
            return Fares::Lacks(note);
        }
        // what was in force stays in force when its proxy is away
        let pending = member.moved.get(owner).is_some_and(|at| *at > member.seen.in_force) || member.seen.in_force == 0;
        match &member.seen.away {
            Some(why) if pending => Fares::Away(why),
            _ if pending => Fares::Pending,
            _ => Fares::InForce,
        }
    }

    /// Pods whose proxies do not answer, and why.
    pub(super) fn away(&self) -> impl Iterator<Item = (&ObjectName, &str)> {
        self.members.iter().filter_map(|(pod, member)| Some((pod, member.seen.away.as_deref()?)))
    }

    /// Whether a pod has a proxy.
    pub(super) fn has(&self, pod: &ObjectName) -> bool {
        self.members.contains_key(pod)
    }

    /// How many proxies there are, and how they are.
    pub(super) fn count(&self) -> Census {
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
pub(super) enum Met {
    /// It is the one that was there.
    Known,
    /// It needs to be told everything.
    New,
    /// There is none.
    Gone,
}

/// What a proxy has reported.
pub(super) struct News {
    pub(super) pod: ObjectName,
    /// Objects that may fare differently now.
    pub(super) about: BTreeSet<Owner>,
    /// What is new of the proxy itself.
    pub(super) facts: Option<ProxyInfo>,
    /// What it refuses from here on, in its own words.
    pub(super) refused: Vec<(Owner, String)>,
    /// Whose sessions it ended.
    pub(super) cut: Vec<(Owner, String)>,
}

/// How an object fares on a proxy.
pub(super) enum Fares<'a> {
    InForce,
    Pending,
    Away(&'a str),
    Refused(&'a str),
    Lacks(&'a Diagnostic),
}

/// Whose a thing on a proxy is, by its name.
pub(super) fn owner(domain: &ClusterDomain, name: &str) -> Option<Owner> {
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
