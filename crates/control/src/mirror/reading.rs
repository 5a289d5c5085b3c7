//! One remote as the planner knows it: what its watches show, damped and gathered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use portolan_core::mirror::{
    Change, FlapDamping, HeldDeletions, Node, NodeName, Planner, RecentDeletions, Remote, RemoteName, ServiceName,
    SourceSlices, Sync, TargetMode,
};
use tokio::time::Instant;

use super::declared::Declared;
use super::observe::{plain_name, service_name};
use super::remote::{ClusterIdentity, ConnectionState, Moved, RemoteCache, RemoteContext};
use super::validate::{Problem, node, source, source_slice};
use crate::runtime::ready::Guard;
use crate::runtime::store::{Key, Store};

/// A remote that is being read.
pub(super) struct Reading {
    started: Instant,
    pub(super) declared: Declared,
    pub(super) cache: RemoteCache,
    /// It is in the planner, with everything that its watches showed.
    loaded: bool,
    slices_loaded: bool,
    /// Which Service each EndpointSlice belongs to.
    slice_services: BTreeMap<Arc<Key>, ServiceName>,
    damping: Damping,
    /// Nodes that differ from what the planner knows, since when.
    waiting: Option<(Instant, BTreeSet<NodeName>)>,
    /// Names that changes of the remote touched, and when the first of these was received.
    received: BTreeMap<ServiceName, Instant>,
    /// When the first change of a node came that is waited with.
    nodes_received: Option<Instant>,
    /// How often nodes came or went.
    pub(super) flips: u64,
    pub(super) recent: RecentDeletions,
    pub(super) held: Option<HeldDeletions>,
    /// The cluster that its watches have shown.
    pub(super) identity: Option<Arc<str>>,
    /// The cluster that it was before, if it is another one now.
    pub(super) identity_before: Option<Arc<str>>,
    /// What its status was last made from.
    shown: Option<Shown>,
    /// How often its server had moved when that was last reported.
    reported_moves: u32,
    /// The process is not ready until this remote is known, or known to be away.
    unready: Option<Guard>,
}

/// What the status of a remote is made from, besides decisions.
#[derive(PartialEq)]
struct Shown {
    state: ConnectionState,
    sync: Sync,
    loaded: bool,
    problem: Option<Problem>,
    stale: bool,
    held: Option<HeldDeletions>,
    identity_before: Option<Arc<str>>,
}

impl Reading {
    pub(super) fn start(name: &str, declared: Declared, context: &RemoteContext) -> Self {
        let cache = RemoteCache::start(name, context);
        Self {
            started: Instant::now(),
            declared,
            cache,
            loaded: false,
            slices_loaded: false,
            slice_services: BTreeMap::new(),
            damping: Damping::new(),
            waiting: None,
            received: BTreeMap::new(),
            nodes_received: None,
            flips: 0,
            recent: RecentDeletions::default(),
            held: None,
            identity: None,
            identity_before: None,
            shown: None,
            reported_moves: 0,
            unready: None,
        }
    }

    /// Keeps the process unready until this remote is known, or known to be away.
    pub(super) fn hold(&mut self, name: &str, context: &RemoteContext) {
        self.unready = Some(context.readiness.hold(format!("remote {name}")));
    }

    /// Lets the process be ready if it need not wait for this remote any more.
    pub(super) fn release(&mut self) {
        if self.loaded || self.declared.target.is_err() || self.cache.state().problem.is_some() {
            self.unready = None;
        }
    }

    /// The same, for one that is refused.
    pub(super) fn release_refused(&mut self) {
        self.unready = None;
    }

    /// Whether its status may differ from what was last asked.
    pub(super) fn is_news(&mut self) -> bool {
        let shown = Some(Shown {
            state: ConnectionState { listed: None, ..self.cache.state() },
            sync: self.cache.sync(),
            loaded: self.loaded,
            problem: self.cache.problem().or_else(|| self.cache.exports_problem()),
            stale: self.is_stale(),
            held: self.held.clone(),
            identity_before: self.identity_before.clone(),
        });
        let differs = self.shown != shown;
        self.shown = shown;
        differs
    }

    /// What moved since the last call, and where the server is now.
    pub(super) fn take_move(&mut self) -> Option<(Moved, String)> {
        let ConnectionState { moved: (count, moved), server, .. } = self.cache.state();
        if std::mem::replace(&mut self.reported_moves, count) == count {
            return None;
        }
        Some((moved?, server?))
    }

    /// Starts its watches anew; what the planner knows of it stays.
    pub(super) fn restart(&mut self, name: &str, context: &RemoteContext) {
        self.cache = RemoteCache::start(name, context);
        self.cache.set_target(self.declared.target.clone().ok());
        (self.loaded, self.slices_loaded) = (false, false);
        self.slice_services.clear();
    }

    /// Gives the planner everything anew.
    pub(super) fn reload(&mut self) {
        (self.loaded, self.slices_loaded) = (false, false);
    }

    /// Takes other wishes of the user.
    pub(super) fn redeclare(&mut self, declared: Declared) {
        if declared.checked.rules != self.declared.checked.rules {
            // What is read of objects depends on the rules.
            self.reload();
        }
        self.declared = declared;
    }

    /// Which cluster it is, once known. Watches of another one are started anew, and a change is kept in mind until it
    /// is approved.
    pub(super) fn follow_identity(&mut self, name: &str, context: &RemoteContext) -> Option<Arc<str>> {
        let Some(ClusterIdentity::Uid(uid)) = &self.cache.state().identity else { return None };
        if let Some(before) = self.identity.replace(uid.clone()).filter(|before| before != uid) {
            // The remote of the flags is recorded nowhere else.
            self.declared.recorded_identity.get_or_insert(before);
            self.restart(name, context);
        }
        let recorded = self.declared.recorded_identity.as_ref();
        if recorded.is_some_and(|recorded| recorded != uid) && self.identity_before.is_none() {
            self.identity_before = recorded.cloned();
        } else if recorded.is_none_or(|recorded| recorded == uid) {
            self.identity_before = None;
        }
        Some(uid.clone())
    }

    /// Brings the planner up to date; gives the names whose decisions may differ.
    pub(super) fn follow(&mut self, name: &RemoteName, planner: &mut Planner, now: Instant) -> BTreeSet<ServiceName> {
        let sync = self.cache.sync();
        let stale = self.stale_at(now);
        let mut names = BTreeSet::new();
        if self.loaded {
            let received = self.cache.services.changing_since();
            let touched = self.follow_services(name, planner);
            self.note_received(&touched, received);
            names.extend(touched);
            self.nodes_received = self.nodes_received.or(self.cache.nodes.changing_since());
            let touched = self.follow_nodes(name, planner, now);
            if self.waiting.is_none() {
                let received = self.nodes_received.take();
                self.note_received(&touched, received);
            }
            names.extend(touched);
        } else if sync != Sync::Listing || !planner.world().remotes.contains_key(name) {
            // What was known before stays until there is something to replace it.
            let whole = self.whole(sync, stale, now);
            self.loaded = sync != Sync::Listing;
            names.extend(planner.change_remote(name, |remote| *remote = Some(whole)));
        }
        let received = self.cache.slices.as_ref().filter(|_| self.slices_loaded).and_then(Store::changing_since);
        let touched = self.follow_slices(name, planner);
        self.note_received(&touched, received);
        names.extend(touched);
        let shown = planner.world().remotes.get(name).map(|remote| (remote.sync, remote.stale, remote.paused));
        let sync = match shown {
            _ if self.loaded => sync,
            None | Some((Sync::Listing, ..)) => Sync::Listing,
            Some(_) => Sync::Broken,
        };
        let wanted = (sync, stale, self.declared.paused);
        if shown.is_some_and(|(_, stale, paused)| (stale, paused) == (wanted.1, wanted.2)) {
            names.extend(planner.change(Change::Sync(name.clone(), sync)));
        } else if shown.is_some_and(|shown| shown != wanted) {
            names.extend(planner.change_remote(name, |remote| {
                if let Some(remote) = remote {
                    (remote.sync, remote.stale, remote.paused) = wanted;
                }
            }));
        }
        names
    }

    fn note_received(&mut self, names: &BTreeSet<ServiceName>, received: Option<Instant>) {
        if let Some(received) = received {
            self.received.extend(names.iter().map(|name| (name.clone(), received)));
        }
    }

    /// Names that changes touched since the last call, and when these were received. What a first list shows is no change.
    pub(super) fn take_received(&mut self) -> BTreeMap<ServiceName, Instant> {
        std::mem::take(&mut self.received)
    }

    /// Everything, as it is shown.
    fn whole(&mut self, sync: Sync, stale: bool, now: Instant) -> Remote {
        let Self { declared, cache, damping, .. } = self;
        let rules = &declared.checked.rules;
        let mut remote = Remote {
            rules: rules.clone(),
            uid: declared.uid.clone(),
            sync,
            stale,
            paused: declared.paused,
            ..Remote::default()
        };
        drop((cache.services.take_changes(), cache.nodes.take_changes()));
        self.waiting = None;
        if sync == Sync::Listing {
            return remote;
        }
        cache.services.for_each(|key, service| {
            remote.services.insert(service_name(key), source(service, rules));
        });
        cache.nodes.for_each(|key, shown| {
            let (name, mut node) = (plain_name(key), node(shown, rules));
            node.damped = damping.follow(&name, node.ready, now);
            remote.nodes.insert(name, node);
        });
        self.slices_loaded = false;
        remote
    }

    fn follow_services(&mut self, name: &RemoteName, planner: &mut Planner) -> BTreeSet<ServiceName> {
        let rules = &self.declared.checked.rules;
        let mut names = BTreeSet::new();
        for key in self.cache.services.take_changes() {
            let changed = self.cache.services.get(&key).map(|service| source(&service, rules));
            let known = planner.world().remotes.get(name).and_then(|remote| remote.services.get(&service_name(&key)));
            if known != changed.as_ref() {
                let local_name = rules.local_name(&service_name(&key));
                names.extend(planner.change(Change::Source(name.clone(), service_name(&key), changed)));
                names.extend(planner.change(Change::RefusedNodePorts(local_name, false)));
            }
        }
        names
    }

    /// Nodes are gathered, so that many that go together cost one write per Service.
    fn follow_nodes(&mut self, name: &RemoteName, planner: &mut Planner, now: Instant) -> BTreeSet<ServiceName> {
        let Some(remote) = planner.world().remotes.get(name) else { return BTreeSet::new() };
        let changed = self.cache.nodes.take_changes();
        let mut looked_at: BTreeSet<NodeName> = self.damping.over(now).collect();
        looked_at.extend(changed.iter().map(|key| plain_name(key)));
        for node_name in looked_at {
            if self.node(&node_name, now).as_ref() != remote.nodes.get(&node_name) {
                self.waiting.get_or_insert_with(|| (now, BTreeSet::new())).1.insert(node_name);
            }
        }
        if self.waiting.as_ref().is_none_or(|(since, _)| *since + GATHER > now) {
            return BTreeSet::new();
        }
        let (_, waiting) = self.waiting.take().unwrap_or_else(|| (now, BTreeSet::new()));
        let nodes: BTreeMap<NodeName, Option<Node>> =
            waiting.into_iter().map(|node_name| (node_name.clone(), self.node(&node_name, now))).collect();
        let ready = |node: Option<&Node>| node.is_some_and(|node| node.ready);
        let flips = nodes.iter().filter(|(node, now)| ready(remote.nodes.get(*node)) != ready(now.as_ref())).count();
        self.flips += u64::try_from(flips).unwrap_or_default();
        planner.change(Change::Nodes(name.clone(), nodes))
    }

    /// A node as it is shown.
    fn node(&mut self, name: &NodeName, now: Instant) -> Option<Node> {
        let Some(shown) = self.cache.nodes.get(&Key::of_cluster(name)) else {
            self.damping.forget(name);
            return None;
        };
        let mut node = node(&shown, &self.declared.checked.rules);
        node.damped = self.damping.follow(name, node.ready, now);
        Some(node)
    }

    /// EndpointSlices are read once a Service needs them.
    fn follow_slices(&mut self, name: &RemoteName, planner: &mut Planner) -> BTreeSet<ServiceName> {
        let Some(remote) = planner.world().remotes.get(name) else { return BTreeSet::new() };
        if self.cache.slices.is_none() {
            let local_only = || remote.services.values().any(|source| source.local_traffic_only);
            let needed = match remote.rules.target {
                TargetMode::Pod => true,
                TargetMode::NodePort => local_only(),
                TargetMode::LoadBalancer => false,
            };
            if needed {
                self.cache.read_slices();
            }
        }
        let Some(store) = &self.cache.slices else { return BTreeSet::new() };
        match (self.cache.may_read_slices(), &remote.slices) {
            (Some(true), SourceSlices::Read(_)) if self.slices_loaded => {
                let mut names = BTreeSet::new();
                for key in store.take_changes() {
                    let changed = store.get(&key).and_then(|slice| source_slice(&slice));
                    let before = self.slice_services.remove(&key);
                    if let Some(service) = before.filter(|before| changed.as_ref().is_none_or(|(now, _)| now != before))
                    {
                        let change = Change::SourceSlice(name.clone(), service, plain_name(&key), None);
                        names.extend(planner.change(change));
                    }
                    if let Some((service, slice)) = changed {
                        self.slice_services.insert(key.clone(), service.clone());
                        let change = Change::SourceSlice(name.clone(), service, plain_name(&key), Some(slice));
                        names.extend(planner.change(change));
                    }
                }
                names
            }
            (Some(true), _) => {
                drop(store.take_changes());
                let mut read: BTreeMap<ServiceName, BTreeMap<Arc<str>, _>> = BTreeMap::new();
                self.slice_services.clear();
                store.for_each(|key, slice| {
                    if let Some((service, slice)) = source_slice(slice) {
                        self.slice_services.insert(key.clone(), service.clone());
                        read.entry(service).or_default().insert(plain_name(key), slice);
                    }
                });
                self.slices_loaded = true;
                set_slices(planner, name, SourceSlices::Read(read))
            }
            (Some(false), SourceSlices::Unread) => set_slices(planner, name, SourceSlices::Forbidden),
            (Some(false) | None, _) => BTreeSet::new(),
        }
    }

    /// When it counts as stale, unless it is in contact before.
    fn stale_since(&self) -> Option<Instant> {
        Some(self.cache.contact()? + self.declared.checked.stale_after)
    }

    /// When there is something to do, unless something changes before.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let gathered = self.waiting.as_ref().map(|(since, _)| *since + GATHER);
        let damped = self.damping.next_due();
        let stale = self.stale_since().filter(|at| *at > now);
        [gathered, damped, stale].into_iter().flatten().min()
    }

    /// Out of contact for too long.
    pub(super) fn is_stale(&self) -> bool {
        self.stale_at(Instant::now())
    }

    pub(super) fn stale_at(&self, now: Instant) -> bool {
        self.stale_since().is_some_and(|since| since <= now)
    }

    /// Until when it is expected to be read for the first time; none if it is, or if something is wrong with it.
    pub(super) fn starting_until(&self) -> Option<Instant> {
        let until = self.started + START;
        (!self.loaded && self.cache.problem().is_none() && Instant::now() < until).then_some(until)
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.loaded
    }
}

fn set_slices(planner: &mut Planner, name: &RemoteName, slices: SourceSlices) -> BTreeSet<ServiceName> {
    planner.change_remote(name, |remote| {
        if let Some(remote) = remote {
            remote.slices = slices;
        }
    })
}

/// The planner's damping, with times of the clock.
struct Damping {
    /// The planner's times are durations since then.
    epoch: Instant,
    flaps: FlapDamping,
    /// Until when nodes are damped.
    until: BTreeMap<NodeName, Instant>,
}

impl Damping {
    fn new() -> Self {
        Self { epoch: Instant::now(), flaps: FlapDamping::default(), until: BTreeMap::new() }
    }

    /// Follows a node; true while it is damped.
    fn follow(&mut self, node: &NodeName, ready: bool, now: Instant) -> bool {
        let until = self.flaps.follow(node, ready, now.saturating_duration_since(self.epoch));
        match until {
            Some(until) => drop(self.until.insert(node.clone(), self.epoch + until)),
            None => drop(self.until.remove(node)),
        }
        until.is_some()
    }

    fn forget(&mut self, node: &NodeName) {
        self.flaps.forget(node);
        self.until.remove(node);
    }

    /// Nodes that are damped no longer.
    fn over(&self, now: Instant) -> impl Iterator<Item = NodeName> {
        self.until.iter().filter(move |(_, until)| **until <= now).map(|(node, _)| node.clone())
    }

    fn next_due(&self) -> Option<Instant> {
        self.until.values().min().copied()
    }
}

/// How long a remote may take to be read for the first time before that is reported.
const START: Duration = Duration::from_secs(10);
/// How long changes of nodes are gathered after the first.
const GATHER: Duration = Duration::from_secs(1);
