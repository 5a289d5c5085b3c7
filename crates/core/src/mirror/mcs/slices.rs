//! The EndpointSlices of an import: one set for each exporting cluster, made from that cluster's own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::derived::derived_name;
use super::exporters::Exporter;
use super::types::{ClusterSet, ImportPort, ImportSpec, RecordedImportSlice};
use crate::mirror::addresses::{self, AddressRefused};
use crate::mirror::decide::{differs, of_group};
use crate::mirror::endpoints::{Endpoints, port_set};
use crate::mirror::names::SliceGroup;
use crate::mirror::packing::{Wanted, pack};
use crate::mirror::{
    DesiredSlice, EndpointPort, Local, NodeName, Reason, RecordedSlice, RemoteName, ServiceName, SliceContent,
    SourceEndpoint, SourceSlice, SourceSlices, StalePolicy, Sync, Unmet,
};
use crate::net::Family;

/// What happens to an EndpointSlice of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportSliceAction {
    /// It is made or replaced.
    Write(Box<DesiredImportSlice>),
    /// It is deleted.
    Delete,
}

/// An EndpointSlice of an import as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredImportSlice {
    /// What all our slices have. The remote of this cluster's own endpoints is empty.
    pub slice: DesiredSlice,
    /// Who owns it.
    pub owner: SliceOwner,
    /// Nodes of endpoints, for those of this cluster.
    pub nodes: BTreeMap<IpAddr, NodeName>,
}

/// The object that owns the slices of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceOwner {
    /// UID of the derived Service, or of the import if that is headless.
    pub uid: Arc<str>,
    /// Label `kubernetes.io/service-name`. None: the import is headless.
    pub service_name: Option<Arc<str>>,
}

/// The half of the decision that is about endpoints.
pub(super) struct SlicePlanner<'a> {
    pub(super) here: &'a Local,
    pub(super) set: &'a ClusterSet,
    pub(super) name: &'a ServiceName,
    pub(super) spec: &'a ImportSpec,
    pub(super) exporters: &'a [Exporter<'a>],
}

type Recorded<'a> = BTreeMap<&'a Arc<str>, &'a RecordedImportSlice>;
type Nodes = BTreeMap<IpAddr, NodeName>;

impl SlicePlanner<'_> {
    /// Slices that differ. Without an owner nothing is written, and only those of clusters that do not export go.
    pub(super) fn actions(
        &self,
        owner: Option<&SliceOwner>,
        unmet: &mut Vec<Unmet>,
    ) -> BTreeMap<Arc<str>, ImportSliceAction> {
        let all: Recorded<'_> = self.set.local.slices.get(self.name).into_iter().flatten().collect();
        let exporting = self.exporters.iter().map(remote_name);
        let sources: BTreeSet<RemoteName> =
            all.values().map(|recorded| recorded.slice.remote.clone()).chain(exporting).collect();
        let mut actions = BTreeMap::new();
        for source in sources {
            let mut recorded: Recorded<'_> = all.clone();
            recorded.retain(|_, slice| slice.slice.remote == source);
            let exporter = self.exporters.iter().find(|one| remote_name(one) == source);
            let (endpoints, nodes) = match exporter {
                Some(exporter) => self.exported(exporter, unmet),
                None => (self.not_exported(&source, &recorded), Nodes::new()),
            };
            if owner.is_none() && endpoints != Endpoints::Exactly(BTreeMap::new()) {
                continue;
            }
            let mut desired = match (&endpoints, exporter, owner) {
                (Endpoints::Exactly(groups), Some(exporter), Some(owner)) => {
                    self.packed(exporter, groups, &nodes, &recorded, owner)
                }
                (Endpoints::Exactly(_), ..) | (_, _, None) => BTreeMap::new(),
                (_, _, Some(owner)) => in_place(&endpoints, &recorded, owner),
            };
            for (name, recorded) in recorded {
                let Some(want) = desired.remove(name) else {
                    actions.insert(name.clone(), ImportSliceAction::Delete);
                    continue;
                };
                if slice_differs(recorded, &want) {
                    actions.insert(name.clone(), ImportSliceAction::Write(Box::new(want)));
                }
            }
            let missing = desired.into_iter().map(|(name, want)| (name, ImportSliceAction::Write(Box::new(want))));
            actions.extend(missing);
        }
        actions
    }

    /// What becomes of the slices of a cluster that does not export, or of which that is not known.
    fn not_exported(&self, source: &RemoteName, recorded: &Recorded<'_>) -> Endpoints {
        let may_delete = match self.set.remotes.get(source) {
            _ if source.is_empty() => true,
            Some(remote) => !remote.paused && remote.sync == Sync::Complete,
            None => recorded.values().all(|slice| self.here.gone_remotes.contains(&slice.slice.remote_uid)),
        };
        if may_delete { Endpoints::Exactly(BTreeMap::new()) } else { Endpoints::Keep }
    }

    fn exported(&self, exporter: &Exporter<'_>, unmet: &mut Vec<Unmet>) -> (Endpoints, Nodes) {
        let Some((name, remote)) = exporter.remote else {
            return self.of_slices(exporter, &self.set.local.exports.slices, &mut |_| true);
        };
        let mut report = |reason, message| unmet.push(Unmet { remote: Some(name.clone()), reason, message });
        if remote.stale {
            report(Reason::RemoteStale, format!("{name} is out of contact: its endpoints may be outdated"));
            let endpoints = match remote.rules.stale {
                StalePolicy::Keep => Endpoints::Keep,
                StalePolicy::NotReady => Endpoints::NotReady,
                StalePolicy::Remove => Endpoints::Emptied,
            };
            return (endpoints, Nodes::new());
        }
        if remote.exports.slices == SourceSlices::Forbidden {
            let message = format!(
                "EndpointSlices of {name} cannot be read, so its endpoints are unknown: grant list and watch on \
                 endpointslices"
            );
            report(Reason::EndpointSlicesForbidden, message);
        }
        let mut refused: BTreeMap<IpAddr, AddressRefused> = BTreeMap::new();
        let mut is_allowed = |address| match addresses::check(self.here, &remote.rules, address) {
            Ok(()) => true,
            Err(why) => {
                refused.insert(address, why);
                false
            }
        };
        let (endpoints, _) = self.of_slices(exporter, &remote.exports.slices, &mut is_allowed);
        if let Some((address, why)) = refused.first_key_value() {
            let count = refused.len();
            let message =
                format!("address {address} of {name} {}: it gets no traffic ({count} refused in all)", why.message());
            report(Reason::AddressNotAllowed, message);
        }
        // Nodes of other clusters do not exist here.
        (endpoints, Nodes::new())
    }

    fn of_slices(
        &self,
        exporter: &Exporter<'_>,
        slices: &SourceSlices,
        is_allowed: &mut impl FnMut(IpAddr) -> bool,
    ) -> (Endpoints, Nodes) {
        let SourceSlices::Read(slices) = slices else { return (Endpoints::Keep, Nodes::new()) };
        let mut groups: BTreeMap<SliceGroup, (Vec<EndpointPort>, Vec<&SourceEndpoint>)> = BTreeMap::new();
        let slices = slices.get(self.name).into_iter().flat_map(BTreeMap::values);
        for slice in slices.filter(|slice| self.spec.families.contains(&slice.family)) {
            let Some(ports) = self.ports(exporter, slice) else { continue };
            let group = SliceGroup { remote: remote_name(exporter), family: slice.family, ports: port_set(&ports) };
            let (of_group, endpoints) = groups.entry(group).or_insert_with(|| (ports.clone(), Vec::new()));
            // They differ in what is spoken only; which slice comes first must not matter.
            if ports < *of_group {
                *of_group = ports;
            }
            let of_slice = slice.endpoints.iter().filter(|source| {
                let address = source.endpoint.address;
                Family::of(address) == slice.family && is_allowed(address)
            });
            endpoints.extend(of_slice);
        }
        let mut nodes = Nodes::new();
        let groups = groups.into_iter().map(|(group, (ports, mut endpoints))| {
            let rank = |one: &SourceEndpoint| (one.endpoint.address, !one.endpoint.conditions.ready);
            endpoints.sort_by(|one, other| {
                rank(one)
                    .cmp(&rank(other))
                    .then_with(|| (&one.endpoint, &one.node).cmp(&(&other.endpoint, &other.node)))
            });
            endpoints.dedup_by_key(|one| one.endpoint.address);
            for one in &endpoints {
                nodes.extend(one.node.clone().map(|node| (one.endpoint.address, node)));
            }
            let endpoints = endpoints.into_iter().map(|one| one.endpoint.clone()).collect();
            let wanted = Wanted { family: group.family, ports, endpoints };
            (group, wanted)
        });
        (Endpoints::Exactly(groups.collect()), nodes)
    }

    /// Ports of a slice that are those of the import. None: the slice has ports, but none of them.
    fn ports(&self, exporter: &Exporter<'_>, slice: &SourceSlice) -> Option<Vec<EndpointPort>> {
        let own: Vec<ImportPort> = exporter.service.spec.ports.iter().map(ImportPort::from).collect();
        let key = |port: &ImportPort| (port.name.clone(), port.protocol, port.port);
        let shared = |port: &&ImportPort| own.iter().any(|own| key(own) == key(port));
        let shared: Vec<&ImportPort> = self.spec.ports.iter().filter(shared).collect();
        let is_shared =
            |port: &&EndpointPort| shared.iter().any(|one| (&one.name, one.protocol) == (&port.name, port.protocol));
        let ports: BTreeSet<EndpointPort> = slice.ports.iter().filter(is_shared).cloned().collect();
        (slice.ports.is_empty() || !ports.is_empty()).then(|| ports.into_iter().collect())
    }

    fn packed(
        &self,
        exporter: &Exporter<'_>,
        groups: &BTreeMap<SliceGroup, Wanted>,
        nodes: &Nodes,
        recorded: &Recorded<'_>,
        owner: &SliceOwner,
    ) -> BTreeMap<Arc<str>, DesiredImportSlice> {
        let prefix = derived_name(self.name);
        let mut desired = BTreeMap::new();
        for (group, wanted) in groups {
            // Names are tried one by one until all are found, so only those that can be found are looked for.
            let has_ports = |slice: &RecordedSlice| port_set(&slice.content.ports) == group.ports;
            let of_ports: BTreeMap<&Arc<str>, &RecordedSlice> = recorded
                .iter()
                .map(|(name, slice)| (*name, &slice.slice))
                .filter(|(_, slice)| has_ports(slice))
                .collect();
            for (index, content) in pack(&of_group(group, &prefix, &of_ports), wanted, self.here.slice_size) {
                let nodes = of_content(nodes, &content);
                let slice = DesiredSlice {
                    remote: group.remote.clone(),
                    remote_uid: exporter.remote.map_or_else(|| "".into(), |(_, remote)| remote.uid.clone()),
                    cluster_id: exporter.cluster_id.clone(),
                    content: Arc::new(content),
                };
                let want = DesiredImportSlice { slice, owner: owner.clone(), nodes };
                desired.insert(group.slice_name(&prefix, index), want);
            }
        }
        desired
    }
}

/// The name of the exporter's remote; empty for this cluster.
fn remote_name(exporter: &Exporter<'_>) -> RemoteName {
    exporter.remote.map_or_else(|| "".into(), |(name, _)| name.clone())
}

/// Recorded slices that are not replaced by others.
fn in_place(
    endpoints: &Endpoints,
    recorded: &Recorded<'_>,
    owner: &SliceOwner,
) -> BTreeMap<Arc<str>, DesiredImportSlice> {
    let desired = recorded.iter().map(|(name, slice)| {
        let RecordedSlice { remote, remote_uid, cluster_id, content, .. } = &slice.slice;
        let content = endpoints.in_place(content);
        let nodes = of_content(&slice.nodes, &content);
        let slice = DesiredSlice {
            remote: remote.clone(),
            remote_uid: remote_uid.clone(),
            cluster_id: cluster_id.clone(),
            content: Arc::new(content),
        };
        ((*name).clone(), DesiredImportSlice { slice, owner: owner.clone(), nodes })
    });
    desired.collect()
}

fn of_content(nodes: &Nodes, content: &SliceContent) -> Nodes {
    let addresses = content.endpoints.iter().map(|endpoint| endpoint.address);
    addresses.filter_map(|address| Some((address, nodes.get(&address)?.clone()))).collect()
}

fn slice_differs(recorded: &RecordedImportSlice, want: &DesiredImportSlice) -> bool {
    differs(&recorded.slice, &want.slice, &want.owner.uid)
        || recorded.service_name != want.owner.service_name
        || recorded.nodes != want.nodes
}
