//! All objects of a cluster, read once: for queries, and with changed objects in their place to plan what they would change.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::Client;
use portolan_api::address_claim::AddressClaim;
use portolan_api::egress::{
    EgressClusterEndpointSlice, EgressClusterInfo, EgressClusterPolicy, EgressEndpointSlice, EgressGateway,
    EgressPolicy, EgressTunnel,
};
use serde_json::Value;
use tokio::time::Instant;

use super::model::Model;
use super::observe::{Cache, FlapDamping};
use super::slim::{CalicoPool, Node, Pod};
use super::validate::Families;
use crate::runtime::overlay::{list_all, put_object};
use crate::runtime::query::QueryError;
use crate::runtime::store::Store;

/// All objects that decisions are based on.
#[derive(Debug, Clone, Default)]
pub(super) struct Objects {
    gateways: Vec<EgressGateway>,
    policies: Vec<EgressPolicy>,
    cluster_policies: Vec<EgressClusterPolicy>,
    claims: Vec<AddressClaim>,
    tunnels: Vec<EgressTunnel>,
    infos: Vec<EgressClusterInfo>,
    nodes: Vec<Node>,
    namespaces: Vec<Namespace>,
    pods: Vec<Pod>,
    service_cidrs: Vec<ServiceCIDR>,
    calico_pools: Vec<CalicoPool>,
}

impl Objects {
    /// Reads the cluster. Kinds that are not installed have no objects.
    pub(super) async fn read(client: &Client) -> Result<Self, QueryError> {
        Ok(Self {
            gateways: list_all(client, "egressgateways").await?,
            policies: list_all(client, "egresspolicies").await?,
            cluster_policies: list_all(client, "egressclusterpolicies").await?,
            claims: list_all(client, "addressclaims").await?,
            tunnels: list_all(client, "egresstunnels").await?,
            infos: list_all(client, "egressclusterinfos").await?,
            nodes: list_all(client, "nodes").await?,
            namespaces: list_all(client, "namespaces").await?,
            pods: list_all(client, "pods").await?,
            service_cidrs: list_all(client, "servicecidrs").await?,
            calico_pools: list_all(client, "ippools").await?,
        })
    }

    /// Puts objects in place of those of the cluster.
    pub(super) fn overlay(&mut self, changes: Vec<Value>) -> Result<(), QueryError> {
        for change in changes {
            let kind = change["kind"].as_str().unwrap_or_default().to_owned();
            match kind.as_str() {
                "EgressGateway" => put_object(&mut self.gateways, &change)?,
                "EgressPolicy" => put_object(&mut self.policies, &change)?,
                "EgressClusterPolicy" => put_object(&mut self.cluster_policies, &change)?,
                "EgressTunnel" => put_object(&mut self.tunnels, &change)?,
                "EgressClusterInfo" => put_object(&mut self.infos, &change)?,
                "AddressClaim" => put_object(&mut self.claims, &change)?,
                "Node" => put_object(&mut self.nodes, &change)?,
                "Namespace" => put_object(&mut self.namespaces, &change)?,
                "Pod" => put_object(&mut self.pods, &change)?,
                other => {
                    return Err(QueryError::Invalid {
                        what: format!("egress does not plan changes to {other}"),
                        hint: "give objects of the kinds of egress, Nodes, Namespaces or Pods".to_owned(),
                    });
                }
            }
        }
        Ok(())
    }

    /// The model that a controller that starts now would build.
    pub(super) fn model(self, families: Families) -> (Cache, Model) {
        let Self { pods, .. } = &self;
        let trimmed = pods.iter().cloned().map(|mut pod| {
            pod.trim();
            pod
        });
        let cache = Cache {
            pods: Store::of(trimmed.collect::<Vec<_>>()),
            gateways: Store::of(self.gateways),
            policies: Store::of(self.policies),
            cluster_policies: Store::of(self.cluster_policies),
            claims: Store::of(self.claims),
            tunnels: Store::of(self.tunnels),
            infos: Store::of(self.infos),
            slices: Store::of(Vec::<EgressEndpointSlice>::new()),
            cluster_slices: Store::of(Vec::<EgressClusterEndpointSlice>::new()),
            nodes: Store::of(self.nodes),
            namespaces: Store::of(self.namespaces),
            service_cidrs: Store::of(self.service_cidrs),
            calico_pools: Store::of(self.calico_pools),
        };
        let (mut model, _) = Model::whole(&cache, families, &mut FlapDamping::default(), Instant::now());
        model.selected.update_shadowed();
        (cache, model)
    }
}
