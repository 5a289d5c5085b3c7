//! What a cluster exports, as its watches show it. Of Services and EndpointSlices, only those of exports are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use portolan_api::mirror::ServiceExport;
use portolan_api::well_known::mirror::{BARRELMAN, CREATED, REMOTE};
use portolan_core::mirror::mcs::Exports;
use portolan_core::mirror::{ServiceName, SourceSlices};

use super::read::{export, exported_service};
use crate::mirror::names::{IMPORT_NAME, LINKERD_MIRROR};
use crate::mirror::observe::{plain_name, service_key, service_name};
use crate::mirror::slim::Slice;
use crate::mirror::validate::source_slice;
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::{Selection, Watches};

/// What a cluster exports.
pub(in crate::mirror) struct Exported {
    pub(in crate::mirror) exports: Store<ServiceExport>,
    pub(in crate::mirror) services: Store<Service>,
    slices: Store<Slice>,
    /// Everything that the watches showed was taken over.
    loaded: bool,
    /// Which exported Service each EndpointSlice belongs to.
    slice_services: BTreeMap<Arc<Key>, ServiceName>,
}

/// What changed.
#[derive(Debug, Default)]
pub(in crate::mirror) struct Followed {
    /// Names of exports.
    pub(in crate::mirror) names: BTreeSet<ServiceName>,
    /// Services, exported or not.
    pub(in crate::mirror) services: BTreeSet<Arc<Key>>,
}

impl Exported {
    /// Watches exports, Services and these EndpointSlices, in this order.
    pub(in crate::mirror) fn watched(watches: &mut Watches, slices: Selection<Slice>) -> Self {
        Self {
            exports: watches.add(Selection { optional: true, ..Selection::default() }),
            services: watches.add(Selection { trim, ..Selection::default() }),
            slices: watches.add(slices),
            loaded: false,
            slice_services: BTreeMap::new(),
        }
    }

    /// The same of objects that were read once.
    pub(in crate::mirror) fn of(exports: Store<ServiceExport>, services: Store<Service>, slices: Store<Slice>) -> Self {
        Self { exports, services, slices, loaded: false, slice_services: BTreeMap::new() }
    }

    /// Everything is taken over anew the next time.
    pub(in crate::mirror) fn reload(&mut self) {
        self.loaded = false;
    }

    /// True once exports and Services were listed.
    pub(in crate::mirror) fn synced(&self) -> bool {
        self.exports.synced() && self.services.synced()
    }

    /// True while what they show is complete.
    pub(in crate::mirror) fn settled(&self) -> bool {
        self.exports.settled() && self.services.settled()
    }

    /// True once EndpointSlices were listed.
    pub(in crate::mirror) fn slices_synced(&self) -> bool {
        self.slices.synced()
    }

    /// Brings what is known up to date.
    pub(in crate::mirror) fn follow(&mut self, known: &mut Exports) -> Followed {
        let mut followed = Followed { services: self.services.take_changes(), ..Followed::default() };
        let exports = self.exports.take_changes();
        if !std::mem::replace(&mut self.loaded, true) {
            drop(self.slices.take_changes());
            followed.names.extend(std::mem::take(&mut known.exports).into_keys());
            known.services.clear();
            known.slices = SourceSlices::Unread;
            self.slice_services.clear();
            self.exports.for_each_key(|key| followed.names.extend([service_name(key)]));
            self.services.for_each_key(|key| followed.services.extend([key.clone()]));
            for name in &followed.names {
                self.load(name, known);
            }
            self.read_slices(known, &mut followed.names);
            return followed;
        }
        for key in exports {
            let name = service_name(&key);
            self.load(&name, known);
            if let SourceSlices::Read(slices) = &mut known.slices {
                self.load_slices(&name, known.exports.contains_key(&name), slices);
            }
            followed.names.insert(name);
        }
        for key in &followed.services {
            let name = service_name(key);
            if known.exports.contains_key(&name) {
                self.load(&name, known);
                followed.names.insert(name);
            }
        }
        self.read_slices(known, &mut followed.names);
        followed
    }

    /// An export and its Service, as they are shown.
    fn load(&self, name: &ServiceName, known: &mut Exports) {
        let key = service_key(name);
        let Some(shown) = self.exports.get(&key) else {
            known.exports.remove(name);
            known.services.remove(name);
            return;
        };
        known.exports.insert(name.clone(), export(&shown));
        match self.services.get(&key) {
            Some(service) => drop(known.services.insert(name.clone(), exported_service(&service))),
            None => drop(known.services.remove(name)),
        }
    }

    /// The EndpointSlices of exports, once they are listed: all of them at first, then those that changed.
    fn read_slices(&mut self, known: &mut Exports, names: &mut BTreeSet<ServiceName>) {
        if !self.slices.synced() {
            return;
        }
        let changes = self.slices.take_changes();
        let Exports { exports, slices, .. } = known;
        let SourceSlices::Read(read) = slices else {
            let mut read = SlicesByService::new();
            for name in exports.keys() {
                self.load_slices(name, true, &mut read);
            }
            names.extend(exports.keys().cloned());
            *slices = SourceSlices::Read(read);
            return;
        };
        for key in changes {
            let changed = self.slices.get(&key).and_then(|slice| source_slice(&slice));
            if let Some(before) = self.slice_services.remove(&key) {
                if let Some(of_service) = read.get_mut(&before) {
                    of_service.remove(&*key.name);
                }
                names.insert(before);
            }
            if let Some((name, slice)) = changed.filter(|(name, _)| exports.contains_key(name)) {
                read.entry(name.clone()).or_default().insert(plain_name(&key), slice);
                self.slice_services.insert(key, name.clone());
                names.insert(name);
            }
        }
    }

    fn load_slices(&mut self, name: &ServiceName, is_exported: bool, read: &mut SlicesByService) {
        read.remove(name);
        if !is_exported {
            self.slice_services.retain(|_, service| service != name);
            return;
        }
        let slice_services = &mut self.slice_services;
        self.slices.in_namespace(&name.namespace, |key, slice| {
            if let Some((service, slice)) = source_slice(slice).filter(|(service, _)| service == name) {
                read.entry(service.clone()).or_default().insert(plain_name(key), slice);
                slice_services.insert(key.clone(), service);
            }
        });
    }
}

type SlicesByService = BTreeMap<ServiceName, BTreeMap<Arc<str>, portolan_core::mirror::SourceSlice>>;

/// Drops what decides nothing about an export.
fn trim(service: &mut Service) {
    service.status = None;
    service.metadata.annotations = None;
    if let Some(labels) = &mut service.metadata.labels {
        labels.retain(|key, _| [BARRELMAN, REMOTE, CREATED, IMPORT_NAME, LINKERD_MIRROR].contains(&key.as_str()));
    }
    if let Some(spec) = &mut service.spec {
        spec.selector = None;
    }
}
