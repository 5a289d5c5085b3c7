//! The decision about one local name: whose mirror is there, and what its endpoints are.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::desired::{DesiredMirror, Difference};
use super::endpoints::{EndpointPlanner, Endpoints, port_set};
use super::index::Index;
use super::names::SliceGroup;
use super::packing::{is_packed, pack};
use super::qualify::{Disqualified, namespace_refused, qualifies};
use super::reason::{Reason, Unmet};
use super::rules::{MirrorType, StalePolicy, TargetMode};
use super::types::{
    LocalService, RecordedSlice, Remote, RemoteName, Role, ServiceName, ServiceType, SliceContent, Source, Sync, World,
};

/// What is done about one local name.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The row of the decision table that applied.
    pub row: Row,
    /// The remote it applied for.
    pub remote: Option<RemoteName>,
    /// What happens to the Service.
    pub action: Action,
    /// EndpointSlices that differ, by name.
    pub slices: BTreeMap<Arc<str>, SliceAction>,
    /// What cannot be met.
    pub unmet: Vec<Unmet>,
}

/// The rows of the decision table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// 1: a source without a Service here.
    Add,
    /// 2: the Service here is a user's.
    UsersService,
    /// 3: the mirror is frozen.
    Frozen,
    /// 4: the mirror follows its source.
    Follow,
    /// 5: the mirror has no source.
    Orphan,
    /// 6: there is no source, and the Service is not ours to delete.
    NotOurs,
    /// 7: there is nothing.
    Nothing,
    /// 8: another remote has the name.
    OtherRemote,
    /// 9: the remote is not known well enough.
    Unknown,
}

/// What happens to a Service.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Nothing.
    None,
    /// It is made, and its namespace before it if that is missing.
    Add(Box<DesiredMirror>),
    /// It is changed.
    Update(Box<DesiredMirror>),
    /// It is deleted, to be made again.
    Recreate,
    /// It is deleted, within the deletion budget of the remote.
    Delete,
}

/// What happens to an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SliceAction {
    /// It is made or replaced.
    Write(Box<DesiredSlice>),
    /// It is deleted.
    Delete,
}

/// An EndpointSlice as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredSlice {
    /// The remote whose endpoints it has.
    pub remote: RemoteName,
    /// UID of that RemoteCluster; empty for the remote of the flags.
    pub remote_uid: Arc<str>,
    /// Its cluster id.
    pub cluster_id: Arc<str>,
    /// What it holds.
    pub content: Arc<SliceContent>,
}

/// Decides about one local name.
pub(super) fn decide(world: &World, index: &Index, name: &ServiceName) -> Decision {
    Decider { world, index, name, unmet: Vec::new() }.decide()
}

struct Decider<'a> {
    world: &'a World,
    index: &'a Index,
    name: &'a ServiceName,
    unmet: Vec<Unmet>,
}

/// A source that wants the name.
struct Contender<'a> {
    remote_name: &'a RemoteName,
    remote: &'a Remote,
    source: &'a Source,
}

impl<'a> Decider<'a> {
    fn decide(mut self) -> Decision {
        let contenders = self.contenders();
        let (row, remote, action, slices) = match self.world.local.services.get(self.name) {
            None => {
                let (row, remote, action) = self.vacant(&contenders);
                (row, remote, action, BTreeMap::new())
            }
            Some(service) => {
                let owner = self.owner(service, &contenders);
                let (row, remote, action) = self.occupied(service, owner, &contenders);
                let slices = self.slices(service, owner, &action);
                (row, remote, action, slices)
            }
        };
        self.unmet.sort();
        self.unmet.dedup();
        Decision { row, remote, action, slices, unmet: self.unmet }
    }

    fn occupied(
        &mut self,
        service: &LocalService,
        owner: Owner<'a>,
        contenders: &[Contender<'a>],
    ) -> (Row, Option<RemoteName>, Action) {
        match owner {
            Owner::Remote(name, remote) => {
                self.report_others(contenders, name);
                let (row, action) = self.owned(service, name, remote);
                (row, Some(name.clone()), action)
            }
            // The mirror of a RemoteCluster that is gone goes with it.
            Owner::Gone => (Row::Orphan, None, Action::Delete),
            Owner::Unknown => {
                self.report_others(contenders, service.owner.as_ref().unwrap_or(&Arc::from("another remote")));
                let row = if contenders.is_empty() { Row::NotOurs } else { Row::OtherRemote };
                (row, None, Action::None)
            }
            Owner::Nobody => {
                if service.role != Role::HandLabelled {
                    for contender in contenders {
                        let message = format!(
                            "a Service of this name exists here, so that of {} is not mirrored: rename or delete one",
                            contender.remote_name
                        );
                        self.unmet.push(unmet(contender.remote_name, Reason::NameConflict, message));
                    }
                }
                match contenders.first() {
                    Some(first) => (Row::UsersService, Some(first.remote_name.clone()), Action::None),
                    None => (Row::NotOurs, None, Action::None),
                }
            }
        }
    }

    /// Sources of this name that qualify, of remotes that are known; the one that gets a free name first.
    fn contenders(&mut self) -> Vec<Contender<'a>> {
        let mut contenders = Vec::new();
        for (remote_name, remote) in &self.world.remotes {
            let Some(source_name) = remote.rules.source_name(self.name) else { continue };
            if remote.sync == Sync::Listing || remote.paused {
                continue;
            }
            match qualifies(&self.world.local, remote, &source_name) {
                Ok(source) if self.index.is_within_limit(remote_name, &source_name, source.created) => {
                    contenders.push(Contender { remote_name, remote, source });
                }
                Ok(_) => {
                    let message = format!(
                        "{remote_name} has more than {} Services to mirror, and older ones come first: raise \
                         limits.services or select fewer",
                        remote.rules.limits.services
                    );
                    self.unmet.push(unmet(remote_name, Reason::LimitExceeded, message));
                }
                Err(Some(Disqualified::NamespaceProtected)) if remote.rules.namespaces.allow.is_some() => {
                    let message = format!("namespace {} is protected: no remote may write there", self.name.namespace);
                    self.unmet.push(unmet(remote_name, Reason::NamespaceProtected, message));
                }
                Err(_) => {}
            }
        }
        contenders.sort_by_key(|contender| (contender.source.created, contender.remote_name.clone()));
        contenders
    }

    fn vacant(&mut self, contenders: &[Contender<'a>]) -> (Row, Option<RemoteName>, Action) {
        let Some(winner) = contenders.first() else {
            let unknown = self.world.remotes.values().any(|remote| remote.sync == Sync::Listing);
            return (if unknown { Row::Unknown } else { Row::Nothing }, None, Action::None);
        };
        let (name, remote, source) = (winner.remote_name, winner.remote, winner.source);
        self.report_others(contenders, name);
        let action = match self.obstacle(name, remote) {
            Some(unmet) => {
                self.unmet.push(unmet);
                Action::None
            }
            None => Action::Add(Box::new(self.desired(name, remote, source))),
        };
        (Row::Add, Some(name.clone()), action)
    }

    /// Why a Service cannot be made here.
    fn obstacle(&self, name: &RemoteName, remote: &Remote) -> Option<Unmet> {
        let namespace = &self.name.namespace;
        if self.name.name.len() > MAX_NAME {
            let message = format!("{} is longer than {MAX_NAME} characters: rename the source", self.name.name);
            return Some(unmet(name, Reason::NameTooLong, message));
        }
        match self.world.local.namespaces.get(namespace) {
            Some(there) if there.terminating => {
                let message = format!("namespace {namespace} is being deleted");
                Some(unmet(name, Reason::NamespaceTerminating, message))
            }
            None if !remote.rules.namespaces.create => {
                let message = format!("namespace {namespace} does not exist: create it, or set namespaces.create");
                Some(unmet(name, Reason::NamespaceMissing, message))
            }
            None if !self.index.may_create(&self.world.local, name, remote, namespace) => {
                let message = format!(
                    "namespace {namespace} does not exist, and {name} has used up namespaces.maxCreated ({}): create \
                     it, or raise the limit",
                    remote.rules.namespaces.max_created
                );
                Some(unmet(name, Reason::LimitExceeded, message))
            }
            Some(_) | None => None,
        }
    }

    fn owned(&mut self, service: &LocalService, name: &RemoteName, remote: &'a Remote) -> (Row, Action) {
        if remote.sync == Sync::Listing || remote.paused {
            return (Row::Unknown, Action::None);
        }
        let source = self.source(name, remote);
        match (source, self.is_frozen(service, remote)) {
            (Some(_), true) => (Row::Frozen, Action::None),
            (None, true) => (Row::NotOurs, Action::None),
            _ if service.deleting => (Row::Follow, Action::None),
            (Some(source), false) => {
                let desired = self.desired(name, remote, source);
                let action = match desired.difference(service) {
                    Difference::None => Action::None,
                    Difference::Patch => Action::Update(Box::new(desired)),
                    Difference::Immutable => Action::Recreate,
                };
                (Row::Follow, action)
            }
            (None, false) if remote.sync != Sync::Complete => (Row::Unknown, Action::None),
            (None, false) => (Row::Orphan, Action::Delete),
        }
    }

    /// The source of the mirror of this name.
    fn source(&self, name: &RemoteName, remote: &'a Remote) -> Option<&'a Source> {
        let source_name = remote.rules.source_name(self.name)?;
        let source = qualifies(&self.world.local, remote, &source_name).ok()?;
        self.index.is_within_limit(name, &source_name, source.created).then_some(source)
    }

    fn is_frozen(&self, service: &LocalService, remote: &Remote) -> bool {
        let is_denied = || namespace_refused(&self.world.local, &remote.rules, &self.name.namespace).is_some();
        service.ignored || remote.rules.namespaces.denied_are_frozen && is_denied()
    }

    fn desired(&mut self, name: &RemoteName, remote: &Remote, source: &Source) -> DesiredMirror {
        let local = &self.world.local;
        let mut node_ports = remote.rules.mirror_type == MirrorType::NodePort;
        if node_ports && let Some(taken) = self.taken_node_port(source) {
            self.unmet.push(unmet(name, Reason::NodePortTaken, taken));
            node_ports = false;
        }
        DesiredMirror::of(local, name, remote, source, node_ports)
    }

    fn taken_node_port(&self, source: &Source) -> Option<String> {
        let mut ports = source.spec.ports.iter().filter_map(|port| port.node_port);
        let taken = ports.find_map(|port| Some((port, self.index.node_port_user(port, self.name)?)));
        match taken {
            Some((port, user)) => {
                Some(format!("nodePort {port} belongs to Service {user} here: the mirror is of type ClusterIP"))
            }
            None if self.world.local.refused_node_ports.contains(self.name) => {
                Some("the API server refused the nodePorts of the source: the mirror is of type ClusterIP".to_owned())
            }
            None => None,
        }
    }

    fn report_others(&mut self, contenders: &[Contender<'_>], owner: &RemoteName) {
        for contender in contenders.iter().filter(|contender| contender.remote_name != owner) {
            let message = format!(
                "the name belongs to {owner}, so the Service of {} is not mirrored: rename one, or set naming: Suffix",
                contender.remote_name
            );
            self.unmet.push(unmet(contender.remote_name, Reason::OwnedByOtherRemote, message));
        }
    }

    fn owner(&self, service: &'a LocalService, contenders: &[Contender<'a>]) -> Owner<'a> {
        if service.role != Role::Mirror {
            return Owner::Nobody;
        }
        let Some(owner) = &service.owner else { return self.adopter(contenders) };
        let is_gone = |uid: &Option<Arc<str>>| {
            uid.as_ref().is_some_and(|uid| !uid.is_empty() && self.world.local.gone_remotes.contains(uid))
        };
        match self.world.remotes.get_key_value(owner) {
            Some((name, remote)) => Owner::Remote(name, remote),
            None if is_gone(&service.owner_reference) => Owner::Gone,
            None => Owner::Unknown,
        }
    }

    /// The remote that takes over a mirror of Barrelman: one that has its source, else the only one that may.
    fn adopter(&self, contenders: &[Contender<'a>]) -> Owner<'a> {
        if let Some(first) = contenders.iter().find(|contender| contender.remote.rules.adopts) {
            return Owner::Remote(first.remote_name, first.remote);
        }
        let mut adopting = self.world.remotes.iter().filter(|(_, remote)| remote.rules.adopts);
        match (adopting.next(), adopting.next()) {
            (Some((name, remote)), None) => Owner::Remote(name, remote),
            _ => Owner::Unknown,
        }
    }

    /// Slices that differ from what the Service should have. The API server deletes those of a Service that goes.
    fn slices(
        &mut self,
        service: &'a LocalService,
        owner: Owner<'a>,
        action: &Action,
    ) -> BTreeMap<Arc<str>, SliceAction> {
        if service.deleting || *action == Action::Recreate {
            return BTreeMap::new();
        }
        let serving = match (service.role, owner) {
            (Role::Mirror, Owner::Remote(name, remote)) => vec![(name, remote)],
            (Role::HandLabelled, _) => self.named_remotes(service),
            (Role::Mirror | Role::Foreign, _) => Vec::new(),
        };
        let wanted: Vec<(&RemoteName, &Remote, Endpoints)> =
            serving.into_iter().map(|(name, remote)| (name, remote, self.endpoints(service, name, remote))).collect();
        self.compare(service, &wanted)
    }

    fn named_remotes(&mut self, service: &'a LocalService) -> Vec<(&'a RemoteName, &'a Remote)> {
        if service.spec.service_type == ServiceType::ExternalName {
            let message = "a Service of type ExternalName has no endpoints: remove the label or change the type";
            self.unmet.push(Unmet { remote: None, reason: Reason::NotMirrorable, message: message.to_owned() });
            return Vec::new();
        }
        if service.has_selector {
            let message = "the Service has a selector, so Kubernetes keeps its endpoints: remove the selector or the \
                           label tfw.io/barrelman";
            self.unmet.push(Unmet { remote: None, reason: Reason::SelectorPresent, message: message.to_owned() });
            return Vec::new();
        }
        let remotes = &self.world.remotes;
        if let Some(named) = &service.remotes {
            return remotes.iter().filter(|(name, _)| named.contains(*name)).collect();
        }
        if remotes.len() <= 1 {
            return remotes.iter().collect();
        }
        let defaults = remotes.iter().filter_map(|(name, remote)| Some((remote.rules.default_since?, name, remote)));
        if let Some((_, name, remote)) = defaults.min_by_key(|(since, name, _)| (*since, *name)) {
            return vec![(name, remote)];
        }
        let message = "there are several remotes and none of them is the default: name some in the annotation \
                       mirror.portolan.dev/remotes";
        self.unmet.push(Unmet { remote: None, reason: Reason::RemoteAmbiguous, message: message.to_owned() });
        Vec::new()
    }

    fn endpoints(&mut self, service: &LocalService, name: &RemoteName, remote: &'a Remote) -> Endpoints {
        if remote.sync == Sync::Listing || remote.paused {
            return Endpoints::Keep;
        }
        if remote.stale {
            let message = format!("{name} is out of contact: endpoints may be outdated");
            self.unmet.push(unmet(name, Reason::RemoteStale, message));
            return match remote.rules.stale {
                StalePolicy::Keep => Endpoints::Keep,
                StalePolicy::NotReady => Endpoints::NotReady,
                StalePolicy::Remove => Endpoints::Emptied,
            };
        }
        let nodes = self.index.nodes(name);
        let planner = EndpointPlanner { local: &self.world.local, name, remote, nodes };
        let source_name = remote.rules.source_name(self.name);
        if service.role == Role::HandLabelled {
            let source = source_name.and_then(|source_name| remote.services.get(&source_name));
            return planner.of_target_ports(service, source, &mut self.unmet);
        }
        let source = self.source(name, remote).filter(|_| !self.is_frozen(service, remote));
        match (source, source_name) {
            (Some(source), Some(source_name)) => planner.of_source(service, &source_name, source, &mut self.unmet),
            _ if remote.rules.target == TargetMode::NodePort => planner.of_target_ports(service, None, &mut self.unmet),
            _ => Endpoints::Keep,
        }
    }

    fn compare(
        &self,
        service: &LocalService,
        wanted: &[(&RemoteName, &Remote, Endpoints)],
    ) -> BTreeMap<Arc<str>, SliceAction> {
        let recorded = self.world.local.slices.get(self.name);
        let mut unwanted: BTreeMap<&Arc<str>, &RecordedSlice> = recorded.into_iter().flatten().collect();
        let mut desired: Vec<(Arc<str>, DesiredSlice)> = Vec::new();
        for (name, remote, endpoints) in wanted {
            let slice = |content: Arc<SliceContent>| DesiredSlice {
                remote: (*name).clone(),
                remote_uid: remote.uid.clone(),
                cluster_id: remote.rules.cluster_id.clone(),
                content,
            };
            let of_remote = unwanted.iter().filter(|(_, recorded)| recorded.remote == **name);
            match endpoints {
                Endpoints::Exactly(groups) => {
                    for (group, want) in groups {
                        // Names are tried one by one until all are found: only those of this port set can be.
                        let has_ports = |slice: &RecordedSlice| {
                            group.ports.is_empty() || port_set(&slice.content.ports) == group.ports
                        };
                        let candidates = unwanted.iter().filter(|(_, slice)| has_ports(slice));
                        let candidates = candidates.map(|(name, slice)| (*name, *slice)).collect();
                        let contents = of_group(group, &self.name.name, &candidates);
                        if is_packed(&contents, want, self.world.local.slice_size) {
                            let is_one = |slice: &RecordedSlice| {
                                contents.values().any(|content| std::ptr::eq(*content, &raw const *slice.content))
                            };
                            let kept = unwanted.iter().filter(|(_, recorded)| is_one(recorded));
                            desired.extend(kept.map(|(slice_name, recorded)| {
                                ((*slice_name).clone(), slice(recorded.content.clone()))
                            }));
                            continue;
                        }
                        for (index, content) in pack(&contents, want, self.world.local.slice_size) {
                            desired.push((group.slice_name(&self.name.name, index), slice(Arc::new(content))));
                        }
                    }
                }
                Endpoints::Keep | Endpoints::NotReady | Endpoints::Emptied => {
                    let in_place = of_remote.map(|(slice_name, recorded)| {
                        ((*slice_name).clone(), slice(Arc::new(endpoints.in_place(&recorded.content))))
                    });
                    desired.extend(in_place);
                }
            }
        }
        let mut actions = BTreeMap::new();
        for (slice_name, want) in desired {
            let before = unwanted.remove(&slice_name);
            if before.is_none_or(|recorded| differs(recorded, &want, &service.uid)) {
                actions.insert(slice_name, SliceAction::Write(Box::new(want)));
            }
        }
        let deleted = unwanted.into_iter().filter(|(_, slice)| self.may_delete(slice));
        actions.extend(deleted.map(|(name, _)| (name.clone(), SliceAction::Delete)));
        actions
    }

    /// A slice of a remote that is not known stays, unless its RemoteCluster is gone.
    fn may_delete(&self, slice: &RecordedSlice) -> bool {
        match self.world.remotes.get(&slice.remote) {
            Some(remote) => !remote.paused && remote.sync != Sync::Listing,
            None => self.world.local.gone_remotes.contains(&slice.remote_uid),
        }
    }
}

/// Who a Service belongs to.
#[derive(Clone, Copy)]
enum Owner<'a> {
    /// A known remote.
    Remote(&'a RemoteName, &'a Remote),
    /// A RemoteCluster that no longer exists.
    Gone,
    /// A remote that is not known here.
    Unknown,
    /// A user.
    Nobody,
}

fn unmet(remote: &RemoteName, reason: Reason, message: String) -> Unmet {
    Unmet { remote: Some(remote.clone()), reason, message }
}

/// What the recorded slices of a group hold, by index.
pub(super) fn of_group<'s>(
    group: &SliceGroup,
    service: &str,
    recorded: &BTreeMap<&Arc<str>, &'s RecordedSlice>,
) -> BTreeMap<usize, &'s SliceContent> {
    let same = |slice: &RecordedSlice| slice.remote == group.remote && slice.content.family == group.family;
    let mut left = recorded.values().filter(|slice| same(slice)).count();
    let mut found = BTreeMap::new();
    for index in 0..MAX_SLICES {
        if left == 0 {
            break;
        }
        let name = group.slice_name(service, index);
        if let Some(slice) = recorded.get(&name).filter(|slice| same(slice)) {
            found.insert(index, &*slice.content);
            left -= 1;
        }
    }
    found
}

pub(super) fn differs(recorded: &RecordedSlice, desired: &DesiredSlice, service_uid: &Arc<str>) -> bool {
    let RecordedSlice { remote, remote_uid, cluster_id, service_uid: owner, content } = recorded;
    (remote, remote_uid, cluster_id, content)
        != (&desired.remote, &desired.remote_uid, &desired.cluster_id, &desired.content)
        || owner != service_uid
}

/// The longest name of a Service.
pub(super) const MAX_NAME: usize = 63;
/// More slices of one group than any Service has.
const MAX_SLICES: usize = 1024;
