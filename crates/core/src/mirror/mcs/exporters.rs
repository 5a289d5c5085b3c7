//! Whose exports of a name count, and why others do not.

use std::collections::{BTreeMap, BTreeSet};

use super::types::{ClusterId, ClusterSet, Export, ExportedService, Exports, RemoteMember};
use crate::mirror::decide::MAX_NAME;
use crate::mirror::qualify::namespace_refused;
use crate::mirror::{Disqualified, Local, RemoteName, ServiceName, ServiceType, Sync};

/// Why an export does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Excluded {
    /// The cluster was never listed completely.
    NotSynced,
    /// Nothing is written for the cluster.
    Paused,
    /// The export is being deleted.
    Deleting,
    /// There is no Service of its name.
    NoService,
    /// The Service is being deleted.
    ServiceDeleting,
    /// The Service is of type ExternalName.
    ExternalName,
    /// The Service is itself made for those of other clusters.
    Mirror,
    /// Another cluster has the same cluster id.
    ClusterIdTaken,
    /// The rules of the remote do not allow the namespace.
    NamespaceDenied,
    /// No import may enter the namespace.
    NamespaceProtected,
    /// No Service can have this name.
    NameTooLong,
    /// The remote has more exports than are taken into account, and this is one of the youngest.
    Limit,
}

impl Excluded {
    /// What it means, and what to do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NotSynced => "the exports of this cluster are not known yet",
            Self::Paused => "nothing is written for this cluster: resume its RemoteCluster",
            Self::Deleting => "the export is being deleted",
            Self::NoService => "there is no Service of this name: create it, or delete the export",
            Self::ServiceDeleting => "the Service is being deleted: delete the export too, or create the Service again",
            Self::ExternalName => "a Service of type ExternalName cannot be exported: change its type",
            Self::Mirror => {
                "the Service is made for a Service of another cluster: create the ServiceExport in that cluster"
            }
            Self::ClusterIdTaken => "another cluster has the same cluster id: change clusterId in the RemoteCluster",
            Self::NamespaceDenied => "its namespace is not mirrored: see namespaces in the RemoteCluster",
            Self::NamespaceProtected => "its namespace is protected, so no import is made there: use another one",
            Self::NameTooLong => "its name is longer than 63 characters: rename the Service",
            Self::Limit => {
                "the cluster has more exports than limits.services, and older ones come first: raise the limit"
            }
        }
    }
}

/// An export that does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExcludedExport {
    /// The cluster it is in.
    pub cluster_id: ClusterId,
    /// The remote of that cluster. None: this cluster.
    pub remote: Option<RemoteName>,
    /// Why it does not count.
    pub why: Excluded,
}

/// An export that counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exporter<'a> {
    pub(super) cluster_id: &'a ClusterId,
    /// None: this cluster.
    pub(super) remote: Option<(&'a RemoteName, &'a RemoteMember)>,
    pub(super) export: &'a Export,
    pub(super) service: &'a ExportedService,
}

/// The exports of a name.
#[derive(Debug, Default)]
pub(super) struct Exporters<'a> {
    /// Those that count, oldest first.
    pub(super) counted: Vec<Exporter<'a>>,
    pub(super) excluded: Vec<ExcludedExport>,
}

impl<'a> Exporters<'a> {
    pub(super) fn of(here: &Local, set: &'a ClusterSet, limits: &Limits<'_>, name: &ServiceName) -> Self {
        let mut found = Self::default();
        let own = valid(&set.local.exports, name).map(|valid| {
            let (export, service) = valid?;
            let protected = here.protected.iter().any(|pattern| pattern.matches(&name.namespace));
            if protected { Err(Excluded::NamespaceProtected) } else { Ok((export, service)) }
        });
        found.insert(&set.local.cluster_id, None, own);
        let mut cluster_ids = BTreeSet::from([&set.local.cluster_id]);
        for (remote_name, remote) in &set.remotes {
            let is_duplicate = !cluster_ids.insert(&remote.rules.cluster_id);
            let of_remote = match valid(&remote.exports, name) {
                _ if remote.sync == Sync::Listing => Some(Err(Excluded::NotSynced)),
                _ if remote.paused => Some(Err(Excluded::Paused)),
                Some(_) if is_duplicate => Some(Err(Excluded::ClusterIdTaken)),
                valid => valid.map(|valid| {
                    let (export, service) = valid?;
                    let is_within = limits.is_within(remote_name, name, export.created);
                    allowed(here, remote, name).and(if is_within { Ok(()) } else { Err(Excluded::Limit) })?;
                    Ok((export, service))
                }),
            };
            found.insert(&remote.rules.cluster_id, Some((remote_name, remote)), of_remote);
        }
        found.counted.sort_by_key(|one| (one.export.created, one.cluster_id));
        found
    }

    fn insert(
        &mut self,
        cluster_id: &'a ClusterId,
        remote: Option<(&'a RemoteName, &'a RemoteMember)>,
        valid: Option<Result<(&'a Export, &'a ExportedService), Excluded>>,
    ) {
        match valid {
            Some(Ok((export, service))) => self.counted.push(Exporter { cluster_id, remote, export, service }),
            Some(Err(why)) => {
                let remote = remote.map(|(name, _)| name.clone());
                self.excluded.push(ExcludedExport { cluster_id: cluster_id.clone(), remote, why });
            }
            None => {}
        }
    }
}

/// The export of a name and its Service, or why it does not count. None: there is no export.
fn valid<'a>(exports: &'a Exports, name: &ServiceName) -> Option<Result<(&'a Export, &'a ExportedService), Excluded>> {
    let export = exports.exports.get(name)?;
    Some(match exports.services.get(name) {
        _ if export.deleting => Err(Excluded::Deleting),
        _ if name.name.len() > MAX_NAME => Err(Excluded::NameTooLong),
        None => Err(Excluded::NoService),
        Some(service) if service.is_mirror => Err(Excluded::Mirror),
        Some(service) if service.spec.service_type == ServiceType::ExternalName => Err(Excluded::ExternalName),
        Some(service) if service.deleting => Err(Excluded::ServiceDeleting),
        Some(service) => Ok((export, service)),
    })
}

fn allowed(here: &Local, remote: &RemoteMember, name: &ServiceName) -> Result<(), Excluded> {
    match namespace_refused(here, &remote.rules, &name.namespace) {
        None => Ok(()),
        Some(Disqualified::NamespaceProtected) => Err(Excluded::NamespaceProtected),
        Some(
            Disqualified::NamespaceDenied
            | Disqualified::Ignored
            | Disqualified::ServiceType
            | Disqualified::Labels
            | Disqualified::Deleting
            | Disqualified::ApiServer
            | Disqualified::Mirror
            | Disqualified::Limit,
        ) => Err(Excluded::NamespaceDenied),
    }
}

/// For each remote with too many exports, the youngest that counts.
#[derive(Debug)]
pub(super) struct Limits<'a>(BTreeMap<&'a RemoteName, Option<(i64, &'a ServiceName)>>);

impl<'a> Limits<'a> {
    pub(super) fn of(set: &'a ClusterSet) -> Self {
        let limited = set.remotes.iter().filter_map(|(name, remote)| {
            let exports = &remote.exports.exports;
            let limit = remote.rules.limits.services;
            (exports.len() > limit).then(|| {
                let mut ages: Vec<_> = exports.iter().map(|(name, export)| (export.created, name)).collect();
                let last = limit.checked_sub(1).map(|last| *ages.select_nth_unstable(last).1);
                (name, last)
            })
        });
        Self(limited.collect())
    }

    fn is_within(&self, remote: &RemoteName, name: &ServiceName, created: i64) -> bool {
        self.0.get(remote).is_none_or(|last| last.is_some_and(|last| (created, name) <= last))
    }
}
