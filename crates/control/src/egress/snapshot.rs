//! All objects of a cluster, read once: for queries, and with changed objects merged in to plan what they would change.

use k8s_openapi::api::core::v1::{Namespace, Node};
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
use super::slim::{CalicoPool, Pod};
use super::validate::Families;
use crate::answers::Unanswered;
use crate::overlay::{all, lay};
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
    pub(super) async fn read(client: &Client) -> Result<Self, Unanswered> {
        Ok(Self {
            gateways: all(client, "egressgateways").await?,
            policies: all(client, "egresspolicies").await?,
            cluster_policies: all(client, "egressclusterpolicies").await?,
            claims: all(client, "addressclaims").await?,
            tunnels: all(client, "egresstunnels").await?,
            infos: all(client, "egressclusterinfos").await?,
            nodes: all(client, "nodes").await?,
            namespaces: all(client, "namespaces").await?,
            pods: all(client, "pods").await?,
            service_cidrs: all(client, "servicecidrs").await?,
            calico_pools: all(client, "ippools").await?,
        })
    }

    /// Merges objects in, as applying them would: fields that they omit are kept.
    pub(super) fn overlay(&mut self, changes: Vec<Value>) -> Result<(), Unanswered> {
        for change in changes {
            let kind = change["kind"].as_str().unwrap_or_default().to_owned();
            match kind.as_str() {
                "EgressGateway" => lay(&mut self.gateways, change)?,
                "EgressPolicy" => lay(&mut self.policies, change)?,
                "EgressClusterPolicy" => lay(&mut self.cluster_policies, change)?,
                "EgressTunnel" => lay(&mut self.tunnels, change)?,
                "EgressClusterInfo" => lay(&mut self.infos, change)?,
                "AddressClaim" => lay(&mut self.claims, change)?,
                "Node" => lay(&mut self.nodes, change)?,
                "Namespace" => lay(&mut self.namespaces, change)?,
                "Pod" => lay(&mut self.pods, change)?,
                other => {
                    return Err(Unanswered::Unclear {
                        what: format!("objects of kind `{other}` change nothing that is planned here"),
                        hint: "give objects of egress or of the mesh, Services, Nodes, Namespaces or Pods".to_owned(),
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
