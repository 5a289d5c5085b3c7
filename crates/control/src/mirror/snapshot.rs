//! Both sides, read once for a query: the local cluster, and each remote with the credentials of its Secret.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Endpoints, Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use portolan_api::mirror::{RemoteCluster, ServiceExport, ServiceImport};
use portolan_core::mirror::mcs::RemoteMember;
use portolan_core::mirror::{Planner, Remote, RemoteName, SourceSlices, Sync};
use portolan_drivers::gke::Gke;
use serde_json::Value;
use tokio::time::Instant;

use super::declared::{Declared, declared};
use super::mcs::{Clusterset, Exported, LocalStores, cluster_id, has_imports, shares};
use super::model::Model;
use super::names::{IMPORT_NAME, MANAGED_BY, SERVICE_NAME, SOURCE_CLUSTER};
use super::observe::{Cache, plain_name, service_name};
use super::remote::{Google, RemoteObjects};
use super::settings::Options;
use super::slim::Slice;
use super::validate::{Problem, node, source, source_slice};
use crate::runtime::overlay::{list_all, put_object};
use crate::runtime::query::QueryError;
use crate::runtime::store::{Key, Store};
use portolan_api::well_known::mirror::{MANAGED_BY as MIRROR, REMOTE};

/// All objects that decisions are based on.
#[derive(Clone)]
pub(super) struct Objects {
    services: Vec<Service>,
    slices: Vec<EndpointSlice>,
    namespaces: Vec<Namespace>,
    nodes: Vec<Node>,
    service_cidrs: Vec<ServiceCIDR>,
    pub(super) remotes: Vec<RemoteCluster>,
    secrets: Vec<Secret>,
    exports: Vec<ServiceExport>,
    imports: Vec<ServiceImport>,
    operator_namespace: String,
    /// What each remote has, by the name of its RemoteCluster.
    seen: BTreeMap<RemoteName, Result<RemoteObjects, Problem>>,
}

impl Objects {
    /// Reads both sides. A remote that cannot be read is a problem of that remote alone.
    pub(super) async fn read(client: &Client) -> Result<Self, QueryError> {
        let operator_namespace = operator_namespace(client).await?;
        let secrets = Api::<Secret>::namespaced(client.clone(), &operator_namespace).list(&ListParams::default()).await;
        let unreachable = |cause| QueryError::Unreachable { what: "secrets", cause: Box::new(cause) };
        let mut objects = Self {
            services: list_all(client, "services").await?,
            slices: list_all(client, "endpointslices").await?,
            namespaces: list_all(client, "namespaces").await?,
            nodes: list_all(client, "nodes").await?,
            service_cidrs: list_all(client, "servicecidrs").await?,
            remotes: list_all(client, "remoteclusters").await?,
            secrets: secrets.map_err(unreachable)?.items,
            exports: list_all(client, "serviceexports").await?,
            imports: list_all(client, "serviceimports").await?,
            operator_namespace,
            seen: BTreeMap::new(),
        };
        objects.look().await;
        Ok(objects)
    }

    /// Reads the remotes that are not read yet.
    async fn look(&mut self) {
        let (cache, options) = (self.cache(), self.options());
        let google = Google {
            api: Gke::new(options.gke.clone()),
            key_file: options.google_key_file.clone(),
            metadata_host: options.google_metadata_host.clone(),
            lookup_interval: options.google_lookup_interval,
        };
        for (name, declared) in declared(&cache, &options).remotes {
            let Entry::Vacant(unseen) = self.seen.entry(name) else { continue };
            let read = match declared.target {
                Ok(target) => RemoteObjects::read(&target, &google, options.allow_loopback).await,
                Err(problem) => Err(problem),
            };
            unseen.insert(read);
        }
    }

    /// Puts objects in place of those of the local cluster, and reads remotes that are new by it.
    pub(super) async fn overlay(&mut self, changes: Vec<Value>) -> Result<(), QueryError> {
        for change in changes {
            match change["kind"].as_str().unwrap_or_default() {
                "RemoteCluster" => {
                    put_object(&mut self.remotes, &change)?;
                    // Its credentials may be others.
                    self.seen.remove(change["metadata"]["name"].as_str().unwrap_or_default());
                }
                "Service" => put_object(&mut self.services, &change)?,
                other => {
                    return Err(QueryError::Invalid {
                        what: format!("the mirror does not plan changes to {other}"),
                        hint: "give RemoteClusters or Services".to_owned(),
                    });
                }
            }
        }
        self.look().await;
        Ok(())
    }

    /// Loopback is allowed: it is the user's own machine that asks.
    fn options(&self) -> Options {
        Options { operator_namespace: self.operator_namespace.clone(), allow_loopback: true, ..Options::default() }
    }

    fn cache(&self) -> Cache {
        let labelled = |key: &str, value: &str| {
            let fits = |slice: &&EndpointSlice| slice.labels().get(key).is_some_and(|found| found == value);
            Store::of(self.slices.iter().filter(fits).cloned().map(Slice::from).collect::<Vec<_>>())
        };
        Cache {
            services: Store::of(self.services.clone()),
            slices: labelled(MANAGED_BY, MIRROR),
            api_server: labelled(SERVICE_NAME, "kubernetes"),
            namespaces: Store::of(self.namespaces.clone()),
            nodes: Store::of(self.nodes.clone()),
            service_cidrs: Store::of(self.service_cidrs.clone()),
            remotes: Store::of(self.remotes.clone()),
            secrets: Store::of(self.secrets.clone()),
            endpoints: Store::of(Vec::<Endpoints>::new()),
            imports: Store::of(self.imports.clone()),
        }
    }

    /// What a controller would decide, and why remotes are not part of it.
    pub(super) fn planner(&self) -> (Planner, BTreeMap<RemoteName, Problem>) {
        let (cache, options) = (self.cache(), self.options());
        let (Model { mut planner, .. }, _) = Model::new(&cache, &options, Instant::now());
        let all = declared(&cache, &options);
        let mut problems = all.refused;
        for (name, declared) in all.remotes {
            match self.seen.get(&name) {
                Some(Ok(seen)) => {
                    let remote = remote(&declared, seen);
                    planner.change_remote(&name, |known| *known = Some(remote));
                }
                Some(Err(problem)) => drop(problems.insert(name, problem.clone())),
                None => {}
            }
        }
        (planner, problems)
    }
}

impl Objects {
    /// What clusters share; none if they share nothing.
    pub(super) fn clusterset(&self, planner: &Planner) -> Option<Clusterset> {
        let (cache, options) = (self.cache(), self.options());
        if !shares(&cache) && !has_imports(&cache) {
            return None;
        }
        let (of_imports, others): (Vec<EndpointSlice>, Vec<EndpointSlice>) = self
            .slices
            .iter()
            .filter(|slice| slice.labels().contains_key(IMPORT_NAME) || !is_ours(slice))
            .cloned()
            .partition(|slice| slice.labels().contains_key(IMPORT_NAME));
        // The operator's id is on what it wrote.
        let is_own = |slice: &&EndpointSlice| !slice.labels().contains_key(REMOTE);
        let written = of_imports.iter().find(is_own).and_then(|slice| slice.labels().get(SOURCE_CLUSTER));
        let id = written.map(|id| id.as_str().into()).or_else(|| cluster_id(&cache, &options))?;
        let slices = |slices: Vec<EndpointSlice>| Store::of(slices.into_iter().map(Slice::from).collect::<Vec<_>>());
        let own = Exported::of(Store::of(self.exports.clone()), Store::of(self.services.clone()), slices(others));
        let mut stores = LocalStores::of(own, slices(of_imports));
        let mut clusterset = Clusterset::default();
        clusterset.named(&id);
        clusterset.follow_local(&mut stores, &cache.imports, shares(&cache));
        for (name, declared) in declared(&cache, &options).remotes {
            let Some(Ok(seen)) = self.seen.get(&name) else { continue };
            let mut exported = declared.shares.then(|| {
                Exported::of(
                    Store::of(seen.exports.clone().unwrap_or_default()),
                    Store::of(seen.services.clone()),
                    Store::of(seen.slices.clone().unwrap_or_default()),
                )
            });
            let member = RemoteMember {
                rules: declared.checked.rules,
                uid: declared.uid,
                // Nothing is taken away because exports may not be read.
                sync: if seen.exports.is_some() { Sync::Complete } else { Sync::Listing },
                ..RemoteMember::default()
            };
            clusterset.follow_remote(&name, member, exported.as_mut());
        }
        clusterset.decide(&planner.world().local, &stores, &cache.imports);
        Some(clusterset)
    }
}

fn is_ours(slice: &EndpointSlice) -> bool {
    slice.labels().get(MANAGED_BY).is_some_and(|manager| manager == MIRROR)
}

/// A remote as the planner knows it.
fn remote(declared: &Declared, seen: &RemoteObjects) -> Remote {
    let rules = &declared.checked.rules;
    let services = seen.services.iter().map(|one| (service_name(&Key::of(one)), source(one, rules)));
    let nodes = seen.nodes.iter().map(|one| (plain_name(&Key::of(one)), node(one, rules)));
    let slices = match &seen.slices {
        None => SourceSlices::Forbidden,
        Some(slices) => {
            let mut read: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
            for slice in slices {
                if let Some((service, content)) = source_slice(slice) {
                    read.entry(service).or_default().insert(plain_name(&Key::of(slice)), content);
                }
            }
            SourceSlices::Read(read)
        }
    };
    Remote {
        rules: rules.clone(),
        uid: declared.uid.clone(),
        sync: Sync::Complete,
        stale: false,
        // What it would do is asked for.
        paused: false,
        services: services.collect(),
        nodes: nodes.collect(),
        slices,
    }
}

/// Where the operator runs: there its Lease is.
async fn operator_namespace(client: &Client) -> Result<String, QueryError> {
    let leases = Api::<Lease>::all(client.clone());
    let named = ListParams::default().fields("metadata.name=portolan-operator");
    let unreachable = |cause| QueryError::Unreachable { what: "leases", cause: Box::new(cause) };
    let found = leases.list(&named).await.map_err(unreachable)?;
    Ok(found.items.first().and_then(kube::ResourceExt::namespace).unwrap_or_else(|| "portolan".to_owned()))
}
