//! Watches -> what is seen, and what moved since the last turn. Synchronous, no client.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Namespace, ObjectReference, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Resource as _;
use portolan_api::mesh::{Route, Rule, Target, VirtualService};
use portolan_core::mesh::control::types::{MeshKind, ObjectName};
use portolan_core::mesh::control::{Change, Settings, World};

use super::owner::{self, Owner};
use super::pod::Pod;
use super::{Options, validate};
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::{Kind, Selection, Watches};

/// Everything that a decision may look at. Clones see the same objects.
#[derive(Clone)]
pub struct Cache {
    pub virtual_services: Store<VirtualService>,
    pub routes: Store<Route>,
    pub targets: Store<Target>,
    pub rules: Store<Rule>,
    pub services: Store<Service>,
    pub slices: Store<EndpointSlice>,
    pub pods: Store<Pod>,
    pub namespaces: Store<Namespace>,
    /// With the tokens of proxies, one in each namespace that has any.
    pub secrets: Store<Secret>,
    /// Where the API server is: the Service `kubernetes`, which has one port and one address.
    pub api_services: Store<Service>,
    /// Its EndpointSlices.
    pub api_slices: Store<EndpointSlice>,
}

/// What moved.
#[derive(Default)]
pub(super) struct Moved {
    pub(super) changes: Vec<Change>,
    pub(super) pods: Vec<ObjectName>,
    pub(super) secrets: bool,
    pub(super) api_server: bool,
}

impl Cache {
    /// Starts watching.
    pub(super) fn watched(watches: &mut Watches, options: &Options) -> Self {
        let fields = Some(format!("metadata.name={}", options.token_secret));
        let namespace = &options.namespace;
        Self {
            virtual_services: watches.add(within(namespace)),
            routes: watches.add(within(namespace)),
            targets: watches.add(within(namespace)),
            rules: watches.add(within(namespace)),
            services: watches.add(Selection { trim: trim_service, ..within(namespace) }),
            slices: watches.add(Selection { trim: trim_slice, ..within(namespace) }),
            pods: watches.add(Selection { trim: Pod::trim, ..within(namespace) }),
            namespaces: watches.add(Selection { trim: trim_namespace, ..Selection::default() }),
            secrets: watches.add(Selection { fields, ..within(namespace) }),
            api_services: watches
                .add(Selection { fields: Some("metadata.name=kubernetes".to_owned()), ..within(API_NAMESPACE) }),
            api_slices: watches.add(Selection {
                labels: Some("kubernetes.io/service-name=kubernetes".to_owned()),
                ..within(API_NAMESPACE)
            }),
        }
    }

    /// Everything there is.
    pub(super) fn world(&self, settings: &Settings) -> World {
        drop(self.moved());
        let mut world = World { settings: settings.clone(), ..World::default() };
        let mut take = |change: Change| _ = world.apply(world.with_shared_namespace(change));
        self.namespaces.for_each(|key, one| take(validate::namespace(key, Some(one))));
        self.virtual_services.for_each(|key, one| take(validate::object(MeshKind::VirtualService, key, Some(&**one))));
        self.routes.for_each(|key, one| take(validate::object(MeshKind::Route, key, Some(&**one))));
        self.targets.for_each(|key, one| take(validate::object(MeshKind::Target, key, Some(&**one))));
        self.rules.for_each(|key, one| take(validate::object(MeshKind::Rule, key, Some(&**one))));
        self.services.for_each(|key, one| take(validate::service(key, Some(one))));
        self.slices.for_each(|key, one| take(validate::slice(key, Some(one))));
        self.pods.for_each(|key, one| take(validate::pod(key, Some(one))));
        let nodes = world.pods.values().flat_map(|pod| &pod.host_addresses).copied().collect();
        world.apply(Change::ClusterAddresses { api_servers: self.api_servers(settings), nodes });
        world
    }

    /// An object of the mesh as events name it.
    pub(super) fn reference(&self, (kind, name): &Owner) -> ObjectReference {
        let key = key(name);
        let seen = match kind {
            MeshKind::VirtualService => self.virtual_services.get(&key).map(|one| one.object_ref(&())),
            MeshKind::Route => self.routes.get(&key).map(|one| one.object_ref(&())),
            MeshKind::Target => self.targets.get(&key).map(|one| one.object_ref(&())),
            MeshKind::Rule => self.rules.get(&key).map(|one| one.object_ref(&())),
            MeshKind::Service => self.services.get(&key).map(|one| one.object_ref(&())),
        };
        seen.unwrap_or_else(|| owner::reference(&(*kind, name.clone()), None))
    }

    /// Addresses of the API server: those that were found at the start, and what the cluster says. A loopback address
    /// is somebody else's in every pod.
    pub(super) fn api_servers(&self, settings: &Settings) -> BTreeSet<IpAddr> {
        let mut found = settings.api_servers.clone();
        self.api_services.for_each(|_, service| {
            let addresses = service.spec.iter().flat_map(|spec| spec.cluster_ips.iter().flatten());
            found.extend(addresses.filter_map(|text| text.parse::<IpAddr>().ok()));
        });
        self.api_slices.for_each(|_, slice| {
            let addresses = slice.endpoints.iter().flatten().flat_map(|one| &one.addresses);
            found.extend(addresses.filter_map(|text| text.parse::<IpAddr>().ok()));
        });
        found.retain(|address| !address.is_loopback());
        found
    }

    /// What moved since the last call.
    pub(super) fn moved(&self) -> Moved {
        let mut changes = Vec::new();
        objects(&mut changes, MeshKind::VirtualService, &self.virtual_services);
        objects(&mut changes, MeshKind::Route, &self.routes);
        objects(&mut changes, MeshKind::Target, &self.targets);
        objects(&mut changes, MeshKind::Rule, &self.rules);
        let services = self.services.take_changes();
        changes.extend(services.iter().map(|key| validate::service(key, self.services.get(key).as_deref())));
        let slices = self.slices.take_changes();
        changes.extend(slices.iter().map(|key| validate::slice(key, self.slices.get(key).as_deref())));
        let pods = self.pods.take_changes();
        changes.extend(pods.iter().map(|key| validate::pod(key, self.pods.get(key).as_deref())));
        let namespaces = self.namespaces.take_changes();
        changes.extend(namespaces.iter().map(|key| validate::namespace(key, self.namespaces.get(key).as_deref())));
        Moved {
            changes,
            pods: pods.iter().map(|key| validate::name(key)).collect(),
            secrets: !self.secrets.take_changes().is_empty(),
            api_server: !self.api_services.take_changes().is_empty() | !self.api_slices.take_changes().is_empty(),
        }
    }
}

/// Where the API server shows itself.
pub(super) const API_NAMESPACE: &str = "default";

fn objects<K: Kind + validate::Written>(changes: &mut Vec<Change>, kind: MeshKind, store: &Store<K>) {
    let moved = store.take_changes();
    changes.extend(moved.iter().map(|key| validate::object(kind, key, store.get(key).as_deref())));
}

fn within<K>(namespace: &str) -> Selection<K> {
    Selection { namespace: namespace.to_owned(), ..Selection::default() }
}

fn trim_service(service: &mut Service) {
    service.status = None;
}

fn trim_slice(slice: &mut EndpointSlice) {
    for endpoint in slice.endpoints.iter_mut().flatten() {
        endpoint.hints = None;
        endpoint.deprecated_topology = None;
    }
}

fn trim_namespace(namespace: &mut Namespace) {
    namespace.spec = None;
    namespace.status = None;
}

/// The key of an object of the mesh.
pub(super) fn key(name: &ObjectName) -> Key {
    Key { namespace: name.namespace.to_string(), name: name.name.to_string() }
}
