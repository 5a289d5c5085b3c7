//! Stores -> the planner's world, complete at first and then change by change. No client.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::mirror::{
    Action, AddressRefused, Change, Decision, DeletionBudget, Local, LocalService, NamespacePattern, Planner, Reason,
    RemoteName, Role, Row, ServiceName, Unmet, World, held,
};
use portolan_core::net::Family;
use tokio::time::Instant;

use super::declared::{DeclaredRemotes, declared};
use super::mcs::Clusterset;
use super::observe::{Cache, plain_name, service_name};
use super::reading::Reading;
use super::remote::RemoteContext;
use super::settings::Options;
use super::validate::{Problem, namespace, ranges, recorded_slice, service};
use crate::runtime::store::Key;

/// The planner, the remotes that are read, and what is decided.
pub(super) struct Model {
    pub(super) planner: Planner,
    pub(super) readings: BTreeMap<RemoteName, Reading>,
    /// Remotes that are not read, and why.
    pub(super) refused: BTreeMap<RemoteName, Problem>,
    /// UIDs of all RemoteClusters.
    known_uids: BTreeSet<Arc<str>>,
    /// Whether these changed since suspects were last looked for.
    uids_changed: bool,
    /// What is decided about every local name.
    pub(super) decisions: BTreeMap<ServiceName, Decision>,
    /// What clusters share.
    pub(super) clusterset: Clusterset,
    /// Mirrors that should be deleted, by remote.
    deletions: BTreeMap<RemoteName, BTreeSet<ServiceName>>,
    /// Mirrors of remotes that nobody knows.
    pub(super) unclaimed: BTreeSet<ServiceName>,
    /// Addresses that were refused, and counted.
    refused_addresses: BTreeMap<RemoteName, BTreeSet<IpAddr>>,
    /// Which Service each EndpointSlice of ours belongs to.
    slice_services: BTreeMap<Arc<Key>, ServiceName>,
    /// The planner's times are durations since then.
    epoch: Instant,
    /// When everything is decided anew.
    resync_at: Instant,
}

/// A change that a remote has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemoteEvent {
    pub(super) remote: RemoteName,
    pub(super) received: Instant,
}

/// What may have changed.
#[derive(Debug, Default)]
pub(super) struct Touched {
    pub(super) names: BTreeSet<ServiceName>,
    pub(super) remotes: BTreeSet<RemoteName>,
    /// Names that remotes touched.
    pub(super) events: BTreeMap<ServiceName, RemoteEvent>,
    /// Names whose Services changed here.
    pub(super) services: BTreeSet<ServiceName>,
    /// Names whose EndpointSlices changed here.
    pub(super) slices: BTreeSet<ServiceName>,
    /// Names that were as they should be, until somebody changed their objects here.
    pub(super) drifted: BTreeSet<ServiceName>,
    /// Addresses that were not refused before.
    pub(super) refused: Vec<(RemoteName, AddressRefused)>,
}

impl Model {
    /// The local cluster, without any remote.
    pub(super) fn new(cache: &Cache, options: &Options, now: Instant) -> (Self, Touched) {
        let mut local = Local { slice_size: options.slice_size, protected: protected(options), ..Local::default() };
        (local.ranges, local.families) = network(cache, options);
        let mut slice_services = BTreeMap::new();
        cache.services.take_changes();
        cache.services.for_each(|key, shown| drop(local.services.insert(service_name(key), service(shown))));
        cache.slices.take_changes();
        cache.slices.for_each(|key, slice| {
            if let Some((service, slice)) = recorded_slice(slice) {
                slice_services.insert(key.clone(), service.clone());
                local.slices.entry(service).or_default().insert(plain_name(key), slice);
            }
        });
        cache.namespaces.take_changes();
        cache.namespaces.for_each(|key, shown| drop(local.namespaces.insert(plain_name(key), namespace(shown))));
        for store in [cache.nodes.take_changes(), cache.service_cidrs.take_changes(), cache.api_server.take_changes()] {
            drop(store);
        }
        let planner = Planner::new(World { local, remotes: BTreeMap::new() });
        let names = planner.names();
        let model = Self {
            planner,
            readings: BTreeMap::new(),
            refused: BTreeMap::new(),
            known_uids: BTreeSet::new(),
            uids_changed: false,
            decisions: BTreeMap::new(),
            clusterset: Clusterset::default(),
            deletions: BTreeMap::new(),
            unclaimed: BTreeSet::new(),
            refused_addresses: BTreeMap::new(),
            slice_services,
            epoch: now,
            resync_at: now + jittered(options.resync_period),
        };
        (model, Touched { names, ..Touched::default() })
    }

    /// Follows everything that changed.
    pub(super) fn follow(
        &mut self,
        cache: &Cache,
        options: &Options,
        context: &RemoteContext,
        is_first: bool,
        now: Instant,
        touched: &mut Touched,
    ) {
        let (objects, secrets) = (cache.remotes.take_changes(), cache.secrets.take_changes());
        if is_first || !objects.is_empty() || !secrets.is_empty() {
            touched.remotes.extend(objects.iter().map(|key| plain_name(key)));
            self.follow_declared(declared(cache, options), context, touched);
            if is_first {
                self.readings.iter_mut().for_each(|(name, reading)| reading.hold(name, context));
            }
        }
        self.follow_local(cache, options, touched);
        self.follow_remotes(cache, context, now, touched);
        self.readings.values_mut().for_each(Reading::release);
        if self.resync_at <= now {
            self.resync_at = now + jittered(options.resync_period);
            let refused = self.planner.world().local.refused_node_ports.clone();
            for name in refused {
                touched.names.extend(self.planner.change(Change::RefusedNodePorts(name, false)));
            }
            touched.names.extend(self.planner.names());
            self.clusterset.resync();
        }
        *touched = self.redecide(std::mem::take(touched));
        self.hold_deletions(now, touched);
    }

    fn follow_declared(&mut self, all: DeclaredRemotes, context: &RemoteContext, touched: &mut Touched) {
        let DeclaredRemotes { remotes, refused, uids } = all;
        self.uids_changed |= self.known_uids != uids;
        self.known_uids = uids;
        touched.remotes.extend(self.refused.keys().chain(refused.keys()).cloned());
        self.refused = refused;
        let gone: Vec<RemoteName> = self.readings.keys().filter(|name| !remotes.contains_key(*name)).cloned().collect();
        for name in gone {
            self.readings.remove(&name);
            touched.names.extend(self.planner.change_remote(&name, |remote| *remote = None));
            touched.remotes.insert(name);
        }
        for (name, declared) in remotes {
            touched.remotes.insert(name.clone());
            match self.readings.get_mut(&name) {
                // One that was deleted and made again is another one.
                Some(reading) if reading.declared.uid == declared.uid => {
                    if reading.declared.writes_endpoints != declared.writes_endpoints {
                        touched.names.extend(self.planner.names());
                    }
                    reading.redeclare(declared);
                }
                _ => {
                    touched.names.extend(self.planner.change_remote(&name, |remote| *remote = None));
                    self.readings.insert(name.clone(), Reading::start(&name, declared, context));
                }
            }
            if let Some(reading) = self.readings.get(&name) {
                reading.cache.set_target(reading.declared.target.clone().ok());
            }
        }
    }

    fn follow_local(&mut self, cache: &Cache, options: &Options, touched: &mut Touched) {
        let Self { planner, slice_services, clusterset, .. } = self;
        let services = cache.services.take_changes();
        for key in &services {
            let shown = cache.services.get(key).map(|shown| service(&shown));
            touched.services.insert(service_name(key));
            touched.names.extend(planner.change(Change::Service(service_name(key), shown)));
        }
        for key in cache.slices.take_changes() {
            let shown = cache.slices.get(&key).and_then(|slice| recorded_slice(&slice));
            let before = slice_services.remove(&key);
            if let Some(service) = before.filter(|before| shown.as_ref().is_none_or(|(now, _)| now != before)) {
                touched.slices.insert(service.clone());
                touched.names.extend(planner.change(Change::Slice(service, plain_name(&key), None)));
            }
            if let Some((service, slice)) = shown {
                slice_services.insert(key.clone(), service.clone());
                touched.slices.insert(service.clone());
                touched.names.extend(planner.change(Change::Slice(service, plain_name(&key), Some(slice))));
            }
        }
        for key in cache.namespaces.take_changes() {
            let shown = cache.namespaces.get(&key).map(|shown| namespace(&shown));
            touched.names.extend(planner.change(Change::Namespace(plain_name(&key), shown)));
            clusterset.namespace_changed(&key.name);
        }
        let network_changes =
            [cache.nodes.take_changes(), cache.service_cidrs.take_changes(), cache.api_server.take_changes()];
        let by_services = !services.is_empty() && cache.service_cidrs.all().is_empty();
        if by_services || network_changes.iter().any(|changes| !changes.is_empty()) {
            let (ranges, families) = network(cache, options);
            let local = &planner.world().local;
            if local.ranges != ranges || local.families != families {
                touched.names.extend(planner.change_local(|local| {
                    local.ranges = ranges;
                    local.families = families;
                }));
            }
        }
    }

    fn follow_remotes(&mut self, cache: &Cache, context: &RemoteContext, now: Instant, touched: &mut Touched) {
        let own = cache.namespaces.get(&Key::of_cluster("kube-system"));
        let own = own.and_then(|namespace| namespace.metadata.uid.as_deref().map(Arc::<str>::from));
        let mut clusters: BTreeMap<Arc<str>, RemoteName> = BTreeMap::new();
        let mut order: Vec<RemoteName> = self.readings.keys().cloned().collect();
        order.sort_by_key(|name| (self.readings[name].declared.created, name.clone()));
        for name in order {
            let Some(reading) = self.readings.get_mut(&name) else { continue };
            if reading.cache.is_broken() {
                reading.restart(&name, context);
            }
            reading.cache.check();
            let refused = reading.follow_identity(&name, context).and_then(|uid| {
                if own.as_ref() == Some(&uid) {
                    let message = "this is the cluster that the operator runs in: give credentials of another";
                    return Some(Problem::new("SelfReference", message));
                }
                let first = clusters.entry(uid).or_insert_with(|| name.clone());
                let message = format!("this is the same cluster as {first}, which is older: delete one of them");
                (*first != name).then(|| Problem::new("DuplicateRemote", message))
            });
            if reading.is_news() {
                touched.remotes.insert(name.clone());
            }
            if let Some(problem) = refused {
                reading.release_refused();
                self.refused.insert(name.clone(), problem);
                if self.planner.world().remotes.contains_key(&name) {
                    touched.names.extend(self.planner.change_remote(&name, |remote| *remote = None));
                }
                continue;
            }
            let is_identity = |problem: &Problem| matches!(problem.reason, "SelfReference" | "DuplicateRemote");
            if self.refused.get(&name).is_some_and(is_identity) {
                self.refused.remove(&name);
                reading.reload();
            }
            let names = reading.follow(&name, &mut self.planner, now);
            for (touched_name, received) in reading.take_received() {
                let event = RemoteEvent { remote: name.clone(), received };
                touched.events.entry(touched_name).or_insert(event);
            }
            touched.names.extend(names);
        }
    }

    /// Decides about these names once more.
    pub(super) fn redecide(&mut self, mut touched: Touched) -> Touched {
        for name in &touched.names {
            let is_settled_mirror = |decision: &Decision| {
                let is_ours = touched.services.contains(name) && matches!(decision.row, Row::Follow | Row::Frozen);
                decision.is_settled() && (is_ours || touched.slices.contains(name))
            };
            let was_right = self.decisions.get(name).is_some_and(is_settled_mirror);
            self.decide(name, &mut touched.remotes);
            let Some(decision) = self.decisions.get(name) else { continue };
            if was_right && !decision.is_settled() && !touched.events.contains_key(name) {
                touched.drifted.insert(name.clone());
            }
            let refused = decision.unmet.iter().filter(|unmet| unmet.reason == Reason::AddressNotAllowed);
            for remote in refused.filter_map(|unmet| unmet.remote.as_ref()) {
                let counted = self.refused_addresses.entry(remote.clone()).or_default();
                if counted.len() > MOST_REFUSED {
                    counted.clear();
                }
                for (address, why) in self.planner.refused_addresses(name, remote) {
                    if counted.insert(address) {
                        touched.refused.push((remote.clone(), why));
                    }
                }
            }
        }
        touched
    }

    /// Decides about a name, and keeps the decision.
    fn decide(&mut self, name: &ServiceName, remotes: &mut BTreeSet<RemoteName>) {
        let decision = self.planner.decide(name);
        if let Some(before) = self.decisions.get(name) {
            remotes.extend(before.remote.clone());
            remotes.extend(before.unmet.iter().filter_map(|unmet| unmet.remote.clone()));
            if let Some(remote) = &before.remote
                && let Some(names) = self.deletions.get_mut(remote)
            {
                names.remove(name);
            }
        }
        remotes.extend(decision.remote.clone());
        remotes.extend(decision.unmet.iter().filter_map(|unmet| unmet.remote.clone()));
        if decision.action == Action::Delete
            && let Some(remote) = &decision.remote
        {
            self.deletions.entry(remote.clone()).or_default().insert(name.clone());
        }
        let local = &self.planner.world().local;
        let is_unclaimed = |service: &LocalService| {
            let is_known = |owner| self.readings.contains_key(owner) || self.refused.contains_key(owner);
            service.role == Role::Mirror
                && service.owner_reference.is_none()
                && service.owner.as_ref().is_some_and(|owner| !is_known(owner))
        };
        if local.services.get(name).is_some_and(is_unclaimed) {
            self.unclaimed.insert(name.clone());
        } else {
            self.unclaimed.remove(name);
        }
        let is_nothing = decision.is_settled() && decision.remote.is_none() && decision.unmet.is_empty();
        if is_nothing && local.services.get(name).is_none_or(|service| service.role == Role::Foreign) {
            self.decisions.remove(name);
        } else {
            self.decisions.insert(name.clone(), decision);
        }
    }

    /// Finds out whose deletions are held; those that no longer are may be made.
    fn hold_deletions(&mut self, now: Instant, touched: &mut Touched) {
        let clock = self.clock(now);
        for (name, reading) in &mut self.readings {
            let none = BTreeSet::new();
            let wanted = self.deletions.get(name).unwrap_or(&none);
            let budget = match reading.identity_before {
                Some(_) => DeletionBudget { max_percent: 0, floor: 0, ..reading.declared.checked.rules.deletions },
                None => reading.declared.checked.rules.deletions,
            };
            let mirrors = || {
                let services = self.planner.world().local.services.values();
                services.filter(|service| service.role == Role::Mirror && service.owner.as_ref() == Some(name)).count()
            };
            let mirrors = if wanted.is_empty() { 0 } else { mirrors() };
            let approved = reading.declared.approved.as_deref();
            let now_held = held(&budget, &mut reading.recent, wanted, mirrors, approved, clock);
            if now_held.is_none() && reading.identity_before.is_some() && reading.is_loaded() {
                // Either nothing would be lost, or the user wants to lose it.
                reading.identity_before = None;
                reading.declared.recorded_identity = None;
            }
            if reading.held != now_held {
                touched.names.extend(wanted.iter().cloned());
                touched.remotes.insert(name.clone());
                reading.held = now_held;
            }
        }
    }

    /// Whether the mirror of this name may be deleted now.
    pub(super) fn may_delete(&self, decision: &Decision) -> bool {
        let reading = decision.remote.as_ref().and_then(|remote| self.readings.get(remote));
        reading.is_none_or(|reading| reading.held.is_none())
    }

    /// A mirror was deleted.
    pub(super) fn deleted(&mut self, remote: &RemoteName, now: Instant) {
        let clock = self.clock(now);
        if let Some(reading) = self.readings.get_mut(remote) {
            reading.recent.record(clock);
        }
    }

    /// UIDs of RemoteClusters that these names have to do with, and that do not exist; all of them after RemoteClusters
    /// changed.
    pub(super) fn suspects_of(&mut self, names: &BTreeSet<ServiceName>) -> Vec<Arc<str>> {
        if std::mem::take(&mut self.uids_changed) {
            return self.suspects().into_keys().collect();
        }
        let local = &self.planner.world().local;
        let services = names.iter().filter_map(|name| local.services.get(name));
        let of_services = services.filter(|service| service.role == Role::Mirror);
        let of_services = of_services.filter_map(|service| service.owner_reference.clone());
        let slices = names.iter().filter_map(|name| local.slices.get(name)).flat_map(BTreeMap::values);
        let uids = of_services.chain(slices.map(|slice| slice.remote_uid.clone()));
        uids.filter(|uid| self.is_suspect(uid)).collect()
    }

    /// The same, of the EndpointSlices of imports.
    pub(super) fn import_suspects_of(&self, names: &BTreeSet<ServiceName>) -> Vec<Arc<str>> {
        let slices =
            names.iter().filter_map(|name| self.clusterset.set.local.slices.get(name)).flat_map(BTreeMap::values);
        let uids: BTreeSet<Arc<str>> = slices.map(|recorded| recorded.slice.remote_uid.clone()).collect();
        uids.into_iter().filter(|uid| self.is_suspect(uid)).collect()
    }

    fn is_suspect(&self, uid: &Arc<str>) -> bool {
        let gone = &self.planner.world().local.gone_remotes;
        !uid.is_empty() && !self.known_uids.contains(uid) && !gone.contains(uid)
    }

    /// RemoteClusters that mirrors and EndpointSlices name, and that do not exist: by UID, with their names.
    pub(super) fn suspects(&self) -> BTreeMap<Arc<str>, RemoteName> {
        let local = &self.planner.world().local;
        let services = local.services.values().filter(|service| service.role == Role::Mirror);
        let of_services =
            services.filter_map(|service| Some((service.owner_reference.clone()?, service.owner.clone()?)));
        let slices = local.slices.values().flat_map(BTreeMap::values);
        let of_slices = slices.map(|slice| (slice.remote_uid.clone(), slice.remote.clone()));
        let of_imports = self.clusterset.named_remotes().map(|(uid, remote)| (uid.clone(), remote.clone()));
        of_services.chain(of_slices).chain(of_imports).filter(|(uid, _)| self.is_suspect(uid)).collect()
    }

    /// A RemoteCluster is known to be gone.
    pub(super) fn gone(&mut self, uid: Arc<str>) -> BTreeSet<ServiceName> {
        self.planner.change_local(|local| {
            local.gone_remotes.insert(uid);
        })
    }

    fn clock(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.epoch)
    }

    /// When there is something to do, unless something changes before.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let readings = self.readings.values().filter_map(|reading| {
            let forgotten = reading.held.as_ref().and_then(|_| {
                let at = reading.recent.next_forgotten(&reading.declared.checked.rules.deletions)?;
                Some(self.epoch + at).filter(|at| *at > now)
            });
            reading.next_due(now).into_iter().chain(forgotten).min()
        });
        readings.chain([self.resync_at]).min()
    }
}

/// Refused addresses of a remote that are kept in mind; beyond that they are counted again.
const MOST_REFUSED: usize = 10_000;

/// Namespaces that no remote may enter.
fn protected(options: &Options) -> Vec<NamespacePattern> {
    ["kube-*", "openshift*", &options.operator_namespace].map(NamespacePattern::new).to_vec()
}

/// Ranges of this cluster, and the families that Services can have.
fn network(cache: &Cache, options: &Options) -> (Vec<ipnet::IpNet>, Option<BTreeSet<Family>>) {
    let mut families = BTreeSet::new();
    cache.service_cidrs.for_each(|_, found| {
        for range in found.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten()) {
            families.insert(if range.contains(':') { Family::V6 } else { Family::V4 });
        }
    });
    (ranges(cache, &options.local_cidrs), (!families.is_empty()).then_some(families))
}

/// Not all replicas and remotes at once.
fn jittered(period: Duration) -> Duration {
    period.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// Whether something unmet is about the Service itself: what another remote misses at a mirror is not.
pub(super) fn concerns(role: Role, decision: &Decision, unmet: &Unmet) -> bool {
    match role {
        Role::HandLabelled => true,
        Role::Mirror => unmet.remote == decision.remote,
        Role::Foreign => false,
    }
}
