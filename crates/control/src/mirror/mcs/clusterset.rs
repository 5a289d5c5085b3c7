//! The clusters that share Services, and what is decided about each name. No client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use portolan_api::mirror::ServiceImport;
use portolan_core::mirror::mcs::{
    ClusterSet, Decision, Exports, NotImported, Outcome, Planner, RemoteMember, derived_name,
};
use portolan_core::mirror::{Local, RemoteName, ServiceName, SourceSlices, Sync};
use portolan_core::net::Family;

use super::exported::{Exported, Followed};
use super::read::{derived, derived_from, export_status, import, import_slice};
use super::stores::LocalStores;
use crate::mirror::observe::{plain_name, service_key, service_name};
use crate::runtime::store::{Key, Store};

/// The clusters that share Services, and what is decided.
#[derive(Debug, Default)]
pub(in crate::mirror) struct Clusterset {
    pub(in crate::mirror) set: ClusterSet,
    /// What is decided about every name.
    pub(in crate::mirror) decisions: BTreeMap<ServiceName, Decision>,
    /// Which import each EndpointSlice belongs to.
    slice_imports: BTreeMap<Arc<Key>, ServiceName>,
    /// What decisions about all names depended on.
    here: Option<Here>,
    /// Names to decide about.
    touched: BTreeSet<ServiceName>,
    all_touched: bool,
    /// Everything that the stores of this cluster showed was taken over.
    loaded: bool,
}

/// What of this cluster all decisions depend on.
#[derive(Debug, Clone, PartialEq)]
struct Here {
    ranges: Vec<IpNet>,
    families: Option<BTreeSet<Family>>,
    gone_remotes: usize,
}

impl Clusterset {
    /// Gives this cluster its id.
    pub(in crate::mirror) fn named(&mut self, cluster_id: &Arc<str>) {
        if self.set.local.cluster_id != *cluster_id {
            self.set.local.cluster_id = cluster_id.clone();
            self.all_touched = true;
        }
    }

    /// Follows this cluster. What it exports counts only while a remote shares Services.
    pub(in crate::mirror) fn follow_local(
        &mut self,
        stores: &mut LocalStores,
        imports: &Store<ServiceImport>,
        shares: bool,
    ) {
        if !std::mem::replace(&mut self.loaded, true) {
            self.load_local(stores, imports);
        }
        let local = &mut self.set.local;
        let followed = if shares {
            stores.own.follow(&mut local.exports)
        } else {
            if !local.exports.exports.is_empty() {
                local.exports = Exports::default();
                stores.own.reload();
                self.all_touched = true;
            }
            Followed { services: stores.own.services.take_changes(), ..Followed::default() }
        };
        self.touched.extend(followed.names);
        for key in followed.services.iter().filter(|key| key.name.starts_with("derived-")) {
            let owner = stores.own.services.get(key).and_then(|service| derived_from(&service));
            self.touched.extend(owner);
            // One that is gone or another's stands for a name that is known already.
            self.touched.extend(self.decisions.keys().filter(|name| is_derived(name, key)).cloned());
        }
        for key in imports.take_changes() {
            self.touched.insert(service_name(&key));
        }
        for key in stores.slices.take_changes() {
            let shown = stores.slices.get(&key).and_then(|slice| import_slice(&slice));
            let slices = &mut self.set.local.slices;
            if let Some(before) = self.slice_imports.remove(&key) {
                if let Some(of_import) = slices.get_mut(&before) {
                    of_import.remove(&*key.name);
                    if of_import.is_empty() {
                        slices.remove(&before);
                    }
                }
                self.touched.insert(before);
            }
            if let Some((name, slice)) = shown {
                slices.entry(name.clone()).or_default().insert(plain_name(&key), slice);
                self.slice_imports.insert(key, name.clone());
                self.touched.insert(name);
            }
        }
    }

    /// Takes over everything that the stores of this cluster show.
    fn load_local(&mut self, stores: &LocalStores, imports: &Store<ServiceImport>) {
        drop((imports.take_changes(), stores.slices.take_changes()));
        imports.for_each_key(|key| self.touched.extend([service_name(key)]));
        stores.slices.for_each(|key, slice| {
            if let Some((name, slice)) = import_slice(slice) {
                self.set.local.slices.entry(name.clone()).or_default().insert(plain_name(key), slice);
                self.slice_imports.insert(key.clone(), name.clone());
                self.touched.insert(name);
            }
        });
        stores.own.services.for_each(|_, service| self.touched.extend(derived_from(service)));
    }

    /// Follows a remote, with everything about it but what it exports. One that does not share exports nothing.
    pub(in crate::mirror) fn follow_remote(
        &mut self,
        name: &RemoteName,
        mut facts: RemoteMember,
        exported: Option<&mut Exported>,
    ) {
        let member = self.set.remotes.entry(name.clone()).or_insert_with(|| {
            self.all_touched = true;
            facts.clone()
        });
        match exported {
            Some(exported) if exported.synced() => self.touched.extend(exported.follow(&mut member.exports).names),
            // What is known stays until there is something to replace it.
            Some(_) => {}
            None => member.exports = Exports::default(),
        }
        if facts.exports.slices == SourceSlices::Forbidden {
            member.exports.slices = SourceSlices::Forbidden;
        }
        if facts.sync == Sync::Listing && member.sync != Sync::Listing {
            facts.sync = Sync::Broken;
        }
        let RemoteMember { rules, uid, sync, stale, paused, exports: _ } = &facts;
        if (&member.rules, &member.uid, member.sync, member.stale, member.paused)
            != (rules, uid, *sync, *stale, *paused)
        {
            *member = RemoteMember { exports: std::mem::take(&mut member.exports), ..facts };
            self.all_touched = true;
        }
    }

    /// Forgets remotes that are not read.
    pub(in crate::mirror) fn keep_remotes(&mut self, is_read: impl Fn(&RemoteName) -> bool) {
        let before = self.set.remotes.len();
        self.set.remotes.retain(|name, _| is_read(name));
        self.all_touched |= self.set.remotes.len() != before;
    }

    /// A namespace came, went or changed.
    pub(in crate::mirror) fn namespace_changed(&mut self, namespace: &str) {
        let in_it = self.decisions.keys().filter(|name| *name.namespace == *namespace).cloned();
        self.touched.extend(in_it);
    }

    /// Decides about every name again.
    pub(in crate::mirror) fn resync(&mut self) {
        self.all_touched = true;
    }

    /// Decides about what changed; gives the names, and the remotes that are involved.
    pub(in crate::mirror) fn decide(
        &mut self,
        here: &Local,
        stores: &LocalStores,
        imports: &Store<ServiceImport>,
    ) -> (BTreeSet<ServiceName>, BTreeSet<RemoteName>) {
        let facts = Here {
            ranges: here.ranges.clone(),
            families: here.families.clone(),
            gone_remotes: here.gone_remotes.len(),
        };
        let is_elsewhere = self.here.as_ref() != Some(&facts);
        let mut names = std::mem::take(&mut self.touched);
        if std::mem::take(&mut self.all_touched) || is_elsewhere {
            names.extend(Planner::new(here, &self.set).names());
            names.extend(self.decisions.keys().cloned());
            self.here = Some(facts);
        }
        for name in &names {
            self.refresh(name, stores, imports);
        }
        let planner = Planner::new(here, &self.set);
        let mut remotes = BTreeSet::new();
        for name in &names {
            let decision = planner.decide(name);
            let unmet = |decision: &Decision| {
                decision.unmet.iter().filter_map(|unmet| unmet.remote.clone()).collect::<Vec<_>>()
            };
            remotes.extend(unmet(&decision));
            let is_nothing = decision.is_settled()
                && decision.unmet.is_empty()
                && decision.excluded.is_empty()
                && decision.outcome == Outcome::NotImported(NotImported::NotExported);
            let before =
                if is_nothing { self.decisions.remove(name) } else { self.decisions.insert(name.clone(), decision) };
            remotes.extend(before.iter().flat_map(unmet));
        }
        (names, remotes)
    }

    /// Takes over single objects of a name.
    fn refresh(&mut self, name: &ServiceName, stores: &LocalStores, imports: &Store<ServiceImport>) {
        let local = &mut self.set.local;
        let key = service_key(name);
        match stores.own.exports.get(&key).and_then(|export| export_status(&export)) {
            Some(status) => drop(local.statuses.insert(name.clone(), status)),
            None => drop(local.statuses.remove(name)),
        }
        match imports.get(&key) {
            Some(shown) => drop(local.imports.insert(name.clone(), import(&shown))),
            None => drop(local.imports.remove(name)),
        }
        match stores.own.services.get(&derived_key(name)) {
            Some(shown) => drop(local.derived.insert(name.clone(), derived(&shown))),
            None => drop(local.derived.remove(name)),
        }
    }

    /// Remotes that EndpointSlices of imports name, by UID.
    pub(in crate::mirror) fn named_remotes(&self) -> impl Iterator<Item = (&Arc<str>, &RemoteName)> {
        let slices = self.set.local.slices.values().flat_map(BTreeMap::values);
        slices.map(|recorded| (&recorded.slice.remote_uid, &recorded.slice.remote))
    }
}

/// The key of the Service that an import derives.
pub(in crate::mirror) fn derived_key(name: &ServiceName) -> Key {
    Key { namespace: name.namespace.to_string(), name: derived_name(name).to_string() }
}

fn is_derived(name: &ServiceName, key: &Key) -> bool {
    *name.namespace == *key.namespace && *derived_name(name) == *key.name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_that_is_listed_again_keeps_what_was_known_of_it() {
        let mut clusters = Clusterset::default();
        let name = RemoteName::from("east");
        let facts = |sync| RemoteMember { sync, ..RemoteMember::default() };
        clusters.follow_remote(&name, facts(Sync::Listing), None);
        assert_eq!(clusters.set.remotes[&name].sync, Sync::Listing, "nothing was known");
        clusters.follow_remote(&name, facts(Sync::Complete), None);
        clusters.follow_remote(&name, facts(Sync::Listing), None);
        assert_eq!(clusters.set.remotes[&name].sync, Sync::Broken, "what was known stays in use");
    }
}
