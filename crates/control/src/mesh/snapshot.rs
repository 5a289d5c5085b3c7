//! The objects of a cluster, read once for a query; a plan puts changed ones in their place.

use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use portolan_api::mesh::{Route, Rule, Target, VirtualService};
use portolan_core::mesh::control::Settings;
use serde_json::Value;

use super::observe::Cache;
use super::pod::Pod;
use crate::runtime::overlay::{list_all, put_object};
use crate::runtime::query::QueryError;
use crate::runtime::store::Store;

/// All objects that decisions are based on.
#[derive(Debug, Clone, Default)]
pub(super) struct Objects {
    virtual_services: Vec<VirtualService>,
    routes: Vec<Route>,
    targets: Vec<Target>,
    rules: Vec<Rule>,
    services: Vec<Service>,
    slices: Vec<EndpointSlice>,
    pods: Vec<Pod>,
    namespaces: Vec<Namespace>,
}

impl Objects {
    /// Reads the cluster. Kinds that are not installed have no objects.
    pub(super) async fn read(client: &Client) -> Result<Self, QueryError> {
        Ok(Self {
            virtual_services: list_all(client, "virtualservices").await?,
            routes: list_all(client, "routes").await?,
            targets: list_all(client, "targets").await?,
            rules: list_all(client, "rules").await?,
            services: list_all(client, "services").await?,
            slices: list_all(client, "endpointslices").await?,
            pods: list_all(client, "pods").await?,
            namespaces: list_all(client, "namespaces").await?,
        })
    }

    /// Puts objects in place of those of the cluster.
    pub(super) fn overlay(&mut self, changes: Vec<Value>) -> Result<(), QueryError> {
        for change in changes {
            match change["kind"].as_str().unwrap_or_default() {
                "VirtualService" => put_object(&mut self.virtual_services, &change)?,
                "Route" => put_object(&mut self.routes, &change)?,
                "Target" => put_object(&mut self.targets, &change)?,
                "Rule" => put_object(&mut self.rules, &change)?,
                "Service" => put_object(&mut self.services, &change)?,
                "EndpointSlice" => put_object(&mut self.slices, &change)?,
                "Pod" => put_object(&mut self.pods, &change)?,
                "Namespace" => put_object(&mut self.namespaces, &change)?,
                other => {
                    return Err(QueryError::Invalid {
                        what: format!("the mesh does not plan changes to {other}"),
                        hint: "give VirtualServices, Routes, Targets, Rules, Services, Pods or Namespaces".to_owned(),
                    });
                }
            }
        }
        Ok(())
    }

    /// The operator's default settings. Pods with loopback addresses mean that everything runs on one machine.
    pub(super) fn settings(&self) -> Settings {
        let addresses = self.pods.iter().flat_map(|pod| &pod.status.pod_ips);
        let mut addresses = addresses.filter_map(|address| address.ip.parse::<Ipv4Addr>().ok());
        let local = addresses.find(Ipv4Addr::is_loopback);
        let range = local.and_then(|address| IpNet::new(address.into(), 16).ok());
        Settings { loopback_pods: range.map(|range| range.trunc()), ..Settings::default() }
    }

    /// The stores that a controller would have.
    pub(super) fn cache(self) -> Cache {
        Cache {
            virtual_services: Store::of(self.virtual_services),
            routes: Store::of(self.routes),
            targets: Store::of(self.targets),
            rules: Store::of(self.rules),
            services: Store::of(self.services),
            slices: Store::of(self.slices),
            pods: Store::of(self.pods),
            namespaces: Store::of(self.namespaces),
            secrets: Store::of(Vec::<Secret>::new()),
            api_server: None,
            strings: Arc::default(),
        }
    }
}
