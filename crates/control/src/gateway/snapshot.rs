//! The objects of a cluster, read once for a query; a plan merges changes into them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use portolan_api::address_claim::AddressClaim;
use portolan_api::gateway::{Account, Egw, Endpoint, LoadBalancer, NodeConfig, ServiceGroup, ServicePrefix};
use portolan_core::gateway::Problem::ImageNotAllowed;
use portolan_core::net::Range;
use portolan_drivers::envoy::UnavailableProxies;
use serde_json::Value;

use super::model::Model;
use super::observe::Cache;
use super::settings::Options;
use crate::runtime::overlay::{list_all, put_object};
use crate::runtime::query::QueryError;
use crate::runtime::store::Store;

/// All objects that decisions are based on.
#[derive(Debug, Clone, Default)]
pub(super) struct Objects {
    pub(super) namespaces: Vec<Namespace>,
    pub(super) egws: Vec<Egw>,
    pub(super) accounts: Vec<Account>,
    pub(super) node_configs: Vec<NodeConfig>,
    pub(super) prefixes: Vec<ServicePrefix>,
    pub(super) groups: Vec<ServiceGroup>,
    pub(super) load_balancers: Vec<LoadBalancer>,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) claims: Vec<AddressClaim>,
}

impl Objects {
    /// Reads the cluster. Kinds that are not installed have no objects.
    pub(super) async fn read(client: &Client) -> Result<Self, QueryError> {
        Ok(Self {
            namespaces: list_all(client, "namespaces").await?,
            egws: list_all(client, "egws").await?,
            accounts: list_all(client, "accounts").await?,
            node_configs: list_all(client, "nodeconfigs").await?,
            prefixes: list_all(client, "serviceprefixes").await?,
            groups: list_all(client, "servicegroups").await?,
            load_balancers: list_all(client, "loadbalancers").await?,
            endpoints: list_all(client, "endpoints").await?,
            claims: list_all(client, "addressclaims").await?,
        })
    }

    /// Puts objects in place of those of the cluster.
    pub(super) fn overlay(&mut self, changes: &[Value]) -> Result<(), QueryError> {
        for change in changes {
            match change["kind"].as_str().unwrap_or_default() {
                "Account" => put_object(&mut self.accounts, change)?,
                "NodeConfig" => put_object(&mut self.node_configs, change)?,
                "ServicePrefix" => put_object(&mut self.prefixes, change)?,
                "ServiceGroup" => put_object(&mut self.groups, change)?,
                "LoadBalancer" => put_object(&mut self.load_balancers, change)?,
                "Endpoint" => put_object(&mut self.endpoints, change)?,
                other => {
                    return Err(QueryError::Invalid {
                        what: format!("gateway does not plan changes to {other}"),
                        hint: "give Accounts, NodeConfigs, ServicePrefixes, ServiceGroups, LoadBalancers or Endpoints"
                            .to_owned(),
                    });
                }
            }
        }
        Ok(())
    }

    /// What the planner is given, with the operator's default settings where the cluster does not show others. A pool of
    /// loopback addresses means that everything runs on one machine.
    pub(super) fn model(self) -> Model {
        let mut options = Options::with(Arc::new(UnavailableProxies::new("")));
        options.images = self.images();
        let loopback: Vec<Range> = "127.0.0.0/8".parse().into_iter().collect();
        let is_local = |prefix: &ServicePrefix| prefix.spec.subnet.starts_with("127.");
        if self.prefixes.iter().any(is_local) {
            options.allow = loopback.into_iter().collect();
        }
        Model::whole(&self.cache(), &options)
    }

    /// The images that groups name, but for those that the operator refuses.
    fn images(&self) -> Vec<String> {
        let refused = ImageNotAllowed { image: "".into() }.reason();
        let is_refused = |condition: &Condition| condition.status == "False" && condition.reason == refused;
        let groups = self
            .groups
            .iter()
            .filter(|group| !group.status.as_ref().is_some_and(|status| status.conditions.iter().any(is_refused)));
        groups.filter_map(|group| group.spec.envoy_image.clone()).collect()
    }

    /// The stores that a controller would have.
    fn cache(self) -> Cache {
        Cache {
            namespaces: Store::of(self.namespaces),
            egws: Store::of(self.egws),
            accounts: Store::of(self.accounts),
            node_configs: Store::of(self.node_configs),
            prefixes: Store::of(self.prefixes),
            groups: Store::of(self.groups),
            load_balancers: Store::of(self.load_balancers),
            endpoints: Store::of(self.endpoints),
            claims: Store::of(self.claims),
        }
    }
}
