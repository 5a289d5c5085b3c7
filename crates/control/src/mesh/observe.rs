//! Watches -> the resolver's world, and what changed since the last turn. Synchronous, no client.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, ObjectReference, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Resource as _, ResourceExt as _};
use parking_lot::Mutex;
use portolan_api::mesh::{Route, Rule, Target, VirtualService};
use portolan_core::mesh::control::types::{MeshKind, ObjectName};
use portolan_core::mesh::control::{Change, Settings, World};

use super::intern::Interner;
use super::owner::{self, Owner};
use super::pod::{PHRASES, Pod};
use super::{Options, validate};
use crate::runtime::pack::Packing;
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::{Kind, Selection, Watches};

/// All objects that decisions are based on. Clones share the stores.
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
    /// The tokens of proxies, one Secret per namespace that has proxies.
    pub secrets: Store<Secret>,
    /// The Service and EndpointSlices of the API server, where `services` and `slices` do not include them.
    pub(super) api_server: Option<ApiServer>,
    pub(super) strings: Arc<Mutex<Interner>>,
}

/// The Service `kubernetes` and its EndpointSlices.
#[derive(Clone)]
pub(super) struct ApiServer {
    services: Store<Service>,
    slices: Store<EndpointSlice>,
}

/// What changed since the last turn.
#[derive(Default)]
pub(super) struct Moved {
    pub(super) changes: Vec<Change>,
    pub(super) pods: Vec<ObjectName>,
    pub(super) secrets: bool,
    pub(super) api_server: bool,
}

impl Cache {
    /// Subscribes to all kinds.
    pub(super) fn watched(watches: &mut Watches, options: &Options) -> Self {
        let fields = Some(format!("metadata.name={}", options.token_secret));
        let namespace = &options.namespace;
        let is_elsewhere = !namespace.is_empty() && namespace != API_NAMESPACE;
        let api_server = is_elsewhere.then(|| ApiServer {
            services: watches
                .add(Selection { fields: Some(format!("metadata.name={API_SERVICE}")), ..within(API_NAMESPACE) }),
            slices: watches
                .add(Selection { labels: Some(format!("{SERVICE_NAME}={API_SERVICE}")), ..within(API_NAMESPACE) }),
        });
        Self {
            virtual_services: watches.add(within(namespace)),
            routes: watches.add(within(namespace)),
            targets: watches.add(within(namespace)),
            rules: watches.add(within(namespace)),
            services: watches.add(Selection { trim: trim_service, ..within(namespace) }),
            slices: watches.add(Selection { trim: trim_slice, ..within(namespace) }),
            pods: watches.add(Selection {
                trim: Pod::trim,
                packing: Some(Packing::with(PHRASES)),
                ..within(namespace)
            }),
            namespaces: watches.add(Selection { trim: trim_namespace, ..Selection::default() }),
            secrets: watches.add(Selection { fields, ..within(namespace) }),
            api_server,
            strings: Arc::default(),
        }
    }

    /// The resolver's world, from all objects.
    pub(super) fn world(&self, settings: &Settings) -> World {
        self.forget_changes();
        let mut world = World { settings: settings.clone(), ..World::default() };
        let mut take = |change: Change| _ = world.apply(world.with_shared_namespace(change));
        self.namespaces.for_each(|key, one| take(validate::namespace(key, Some(one))));
        self.virtual_services.for_each(|key, one| take(validate::object(MeshKind::VirtualService, key, Some(&**one))));
        self.routes.for_each(|key, one| take(validate::object(MeshKind::Route, key, Some(&**one))));
        self.targets.for_each(|key, one| take(validate::object(MeshKind::Target, key, Some(&**one))));
        self.rules.for_each(|key, one| take(validate::object(MeshKind::Rule, key, Some(&**one))));
        self.services.for_each(|key, one| take(validate::service(key, Some(one))));
        self.slices.for_each(|key, one| take(validate::slice(key, Some(one))));
        let (mut pods, mut strings) = (Vec::new(), self.strings.lock());
        self.pods.for_each(|key, pod| {
            pods.push((ObjectName::new(strings.get(&key.namespace), key.name.as_str()), pod.plain(&mut strings)));
        });
        // Built at once its nodes are full; built by insertion in order they would be half empty.
        world.pods = pods.into_iter().collect();
        let nodes = world.pods.values().flat_map(|pod| &pod.host_addresses).copied().collect();
        world.apply(Change::ClusterAddresses { api_servers: self.api_servers(settings), nodes });
        world
    }

    /// The reference to a mesh object in an event.
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

    /// Addresses of the API server: those found at the start, and those of its Service and EndpointSlices. A loopback
    /// address would mean the pod itself.
    pub(super) fn api_servers(&self, settings: &Settings) -> BTreeSet<IpAddr> {
        let mut found = settings.api_servers.clone();
        let (services, slices) = self.of_api_server();
        let service = services.get(&Key { namespace: API_NAMESPACE.to_owned(), name: API_SERVICE.to_owned() });
        let spec = service.as_ref().and_then(|service| service.spec.as_ref());
        let addresses = spec.into_iter().flat_map(|spec| spec.cluster_ips.iter().flatten());
        found.extend(addresses.filter_map(|text| text.parse::<IpAddr>().ok()));
        slices.in_namespace(API_NAMESPACE, |_, slice| {
            let endpoints = slice.endpoints.iter().flatten().filter(|_| is_of_api_server(slice));
            let addresses = endpoints.flat_map(|endpoint| &endpoint.addresses);
            found.extend(addresses.filter_map(|text| text.parse::<IpAddr>().ok()));
        });
        found.retain(|address| !address.is_loopback());
        found
    }

    /// What changed since the last call.
    pub(super) fn moved(&self) -> Moved {
        let mut changes = Vec::new();
        objects(&mut changes, MeshKind::VirtualService, &self.virtual_services);
        objects(&mut changes, MeshKind::Route, &self.routes);
        objects(&mut changes, MeshKind::Target, &self.targets);
        objects(&mut changes, MeshKind::Rule, &self.rules);
        let mut strings = self.strings.lock();
        let services = self.services.take_changes();
        changes.extend(services.iter().map(|key| validate::service(key, self.services.get(key).as_deref())));
        let slices = self.slices.take_changes();
        changes.extend(slices.iter().map(|key| validate::slice(key, self.slices.get(key).as_deref())));
        let pods = self.pods.take_changes();
        changes.extend(pods.iter().map(|key| validate::pod(key, self.pods.get(key).as_deref(), &mut strings)));
        let namespaces = self.namespaces.take_changes();
        changes.extend(namespaces.iter().map(|key| validate::namespace(key, self.namespaces.get(key).as_deref())));
        let (api_services, api_slices) = match &self.api_server {
            Some(ApiServer { services, slices }) => (services.take_changes(), slices.take_changes()),
            None => (services, slices),
        };
        Moved {
            changes,
            pods: pods.iter().map(|key| validate::name(key)).collect(),
            secrets: !self.secrets.take_changes().is_empty(),
            api_server: self.shows_api_server(&api_services, &api_slices),
        }
    }

    fn of_api_server(&self) -> (&Store<Service>, &Store<EndpointSlice>) {
        let separate = self.api_server.as_ref().map(|ApiServer { services, slices }| (services, slices));
        separate.unwrap_or((&self.services, &self.slices))
    }

    /// Whether a changed object may hold addresses of the API server. A deleted slice may have held some.
    fn shows_api_server(&self, services: &BTreeSet<Arc<Key>>, slices: &BTreeSet<Arc<Key>>) -> bool {
        let is_there = |key: &&Arc<Key>| key.namespace == API_NAMESPACE;
        let (_, store) = self.of_api_server();
        services.iter().filter(is_there).any(|key| key.name == API_SERVICE)
            || slices.iter().filter(is_there).any(|key| store.get(key).is_none_or(|slice| is_of_api_server(&slice)))
    }

    /// Drops recorded changes: all objects are about to be read.
    fn forget_changes(&self) {
        drop(self.virtual_services.take_changes());
        drop(self.routes.take_changes());
        drop(self.targets.take_changes());
        drop(self.rules.take_changes());
        drop(self.services.take_changes());
        drop(self.slices.take_changes());
        drop(self.pods.take_changes());
        drop(self.namespaces.take_changes());
        drop(self.secrets.take_changes());
        if let Some(ApiServer { services, slices }) = &self.api_server {
            drop(services.take_changes());
            drop(slices.take_changes());
        }
    }
}

/// Where the Service of the API server is, and its name.
const API_NAMESPACE: &str = "default";
const API_SERVICE: &str = "kubernetes";
/// The label of an EndpointSlice that names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

fn is_of_api_server(slice: &EndpointSlice) -> bool {
    slice.labels().get(SERVICE_NAME).is_some_and(|service| service == API_SERVICE)
}

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

/// The key of a mesh object.
pub(super) fn key(name: &ObjectName) -> Key {
    Key { namespace: name.namespace.to_string(), name: name.name.to_string() }
}
