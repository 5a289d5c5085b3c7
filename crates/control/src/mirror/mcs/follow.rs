//! Brings the clusterset up to date with this cluster and with the remotes that are read.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt as _;
use portolan_api::well_known::mirror::CREATED;
use portolan_core::mirror::mcs::{Exports, RemoteMember};
use portolan_core::mirror::{RemoteName, ServiceName, SourceSlices, Sync};
use tokio::time::Instant;

use super::stores::LocalStores;
use crate::mirror::model::Model;
use crate::mirror::observe::Cache;
use crate::mirror::reading::Reading;
use crate::mirror::settings::Options;
use crate::runtime::store::Key;

/// Whether a RemoteCluster asks for Services to be shared.
pub(in crate::mirror) fn shares(cache: &Cache) -> bool {
    let mut shares = false;
    cache.remotes.for_each(|_, remote| {
        shares |= remote.spec.mcs.enabled && remote.metadata.deletion_timestamp.is_none();
    });
    shares
}

/// Whether there are imports of ours.
pub(in crate::mirror) fn has_imports(cache: &Cache) -> bool {
    let mut found = false;
    cache.imports.for_each(|_, import| found |= import.labels().contains_key(CREATED));
    found
}

impl Model {
    /// Follows what the clusters share; gives names about which something was decided, and the remotes involved.
    pub(in crate::mirror) fn follow_clusterset(
        &mut self,
        cache: &Cache,
        stores: &mut LocalStores,
        options: &Options,
        now: Instant,
    ) -> (BTreeSet<ServiceName>, BTreeSet<RemoteName>) {
        let Some(cluster_id) = cluster_id(cache, options) else { return Default::default() };
        let Self { clusterset, readings, refused, planner, .. } = self;
        clusterset.named(&cluster_id);
        clusterset.follow_local(stores, &cache.imports, shares(cache));
        clusterset.keep_remotes(|name| readings.contains_key(name) && !refused.contains_key(name));
        for (name, reading) in readings.iter_mut().filter(|(name, _)| !refused.contains_key(*name)) {
            let facts = facts(reading, now);
            clusterset.follow_remote(name, facts, reading.cache.exported.as_mut().map(|(_, exported)| exported));
        }
        clusterset.decide(&planner.world().local, stores, &cache.imports)
    }
}

/// This cluster's id: given, or the beginning of what identifies it.
pub(in crate::mirror) fn cluster_id(cache: &Cache, options: &Options) -> Option<Arc<str>> {
    if let Some(given) = &options.cluster_id {
        return Some(given.as_str().into());
    }
    let namespace = cache.namespaces.get(&Key::of_cluster("kube-system"))?;
    Some(namespace.metadata.uid.as_ref()?.chars().take(12).collect::<String>().into())
}

fn facts(reading: &mut Reading, now: Instant) -> RemoteMember {
    let declared = &reading.declared;
    let is_shared = declared.shares;
    if is_shared {
        reading.cache.read_exports();
    } else {
        reading.cache.exported = None;
    }
    let slices = if reading.cache.may_read_exported_slices() == Some(false) {
        SourceSlices::Forbidden
    } else {
        SourceSlices::Unread
    };
    let sync = reading.cache.exports_sync();
    // Another cluster than before: nothing is lost until that is approved.
    let is_another = sync == Sync::Complete && reading.identity_before.is_some();
    let sync = if is_another { Sync::Broken } else { sync };
    RemoteMember {
        rules: reading.declared.checked.rules.clone(),
        uid: reading.declared.uid.clone(),
        sync: if is_shared { sync } else { Sync::Complete },
        stale: is_shared && reading.stale_at(now),
        paused: reading.declared.paused,
        exports: Exports { slices, ..Exports::default() },
    }
}
