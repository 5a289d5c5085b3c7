//! A cluster with OVN-Kubernetes, and what is in service there.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context as _, ensure};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use portolan_api::ipam::{CloudPrivateIpConfig, CloudState, EgressIp};
use portolan_control::ipam::{self, Backend as Plugin};
use portolan_testkit::ovn::Ovn;
use portolan_testkit::{install_definition, ovn};

use super::super::harness::{Operator, PREFIX, World};
use crate::harness::{Backend, eventually};

/// A cluster of its own with OVN-Kubernetes.
pub(in crate::ipam) struct OvnWorld {
    pub(in crate::ipam) world: World,
    _ovn: Ovn,
}

impl OvnWorld {
    pub(in crate::ipam) async fn new(backend: Backend, nodes: &[usize]) -> anyhow::Result<Self> {
        let world = World::without_sdn(backend, nodes).await?;
        for definition in portolan_api::openshift_crds().into_iter().chain(portolan_api::ovn_crds()) {
            install_definition(world.client.clone(), definition).await?;
        }
        world.wipe_sdn().await?;
        ovn::wipe(&world.client).await?;
        Ok(Self { _ovn: Ovn::start(&world.client), world })
    }

    pub(in crate::ipam) fn egress_ips(&self) -> Api<EgressIp> {
        Api::all(self.world.client.clone())
    }

    pub(in crate::ipam) fn private_ips(&self) -> Api<CloudPrivateIpConfig> {
        Api::all(self.world.client.clone())
    }

    pub(in crate::ipam) fn options(&self) -> ipam::Options {
        ipam::Options { backend: Plugin::Ovn, ..self.world.options() }
    }

    pub(in crate::ipam) async fn operator(&self) -> anyhow::Result<Operator> {
        self.world.operator_with(self.options()).await
    }

    /// The EgressIP of a namespace.
    pub(in crate::ipam) async fn egress_ip(&self, namespace: &str) -> anyhow::Result<Option<EgressIp>> {
        let objects = self.egress_ips().list(&ListParams::default()).await?;
        let is_ours = |object: &EgressIp| {
            object.annotations().get("portolan.dev/namespace").is_some_and(|found| found == namespace)
        };
        Ok(objects.into_iter().find(is_ours))
    }

    /// The node of each address of a namespace, if all of them are in service everywhere.
    pub(in crate::ipam) async fn service(&self, namespace: &str) -> anyhow::Result<Option<BTreeMap<Ipv4Addr, String>>> {
        let Some(egress_ip) = self.egress_ip(namespace).await? else { return Ok(None) };
        let mut nodes = BTreeMap::new();
        for item in egress_ip.status.unwrap_or_default().items {
            nodes.insert(item.egress_ip.parse()?, item.node);
        }
        let mut recorded = BTreeMap::new();
        for (address, claim) in self.world.claims_of(namespace).await? {
            let cloud = claim.status.and_then(|status| status.cloud).unwrap_or_default();
            if cloud.state == CloudState::Releasing {
                continue;
            }
            if cloud.state == CloudState::Published && cloud.node == claim.spec.cloud.map(|spec| spec.node) {
                recorded.extend(cloud.node.map(|node| (address, node)));
            }
        }
        let list: Vec<String> = nodes.keys().map(Ipv4Addr::to_string).collect();
        let annotation = self.world.annotation(namespace, &format!("{PREFIX}egressips")).await?;
        let dated = self.world.annotation(namespace, &format!("{PREFIX}modified")).await?;
        let is_whole = egress_ip.spec.egress_ips == list && annotation == Some(list.join(",")) && dated.is_some();
        Ok((is_whole && !nodes.is_empty() && nodes == recorded).then_some(nodes))
    }

    /// Waits until a namespace is served; EC2 has its addresses where all objects say.
    pub(in crate::ipam) async fn served(&self, namespace: &str) -> anyhow::Result<BTreeMap<Ipv4Addr, String>> {
        let mut nodes = None;
        let what = format!("{namespace} is served");
        let waited = eventually(&what, async || {
            nodes = self.service(namespace).await?;
            Ok(nodes.is_some())
        });
        if let Err(problem) = waited.await {
            let claims = self.world.claims_of(namespace).await?;
            let private_ips = self.private_ips().list(&ListParams::default()).await?.items;
            let egress_ip = self.egress_ip(namespace).await?;
            return Err(problem.context(format!("{egress_ip:#?} {private_ips:#?} {claims:#?}")));
        }
        let nodes = nodes.context("it was served")?;
        for (address, host) in &nodes {
            for node in self.world.instances.keys() {
                let has_it = self.world.secondary(node).contains(address);
                ensure!(has_it == (host == node), "{address} is at {host}: {node} {:?}", self.world.secondary(node));
            }
        }
        ensure!(self.world.ec2.violations().is_empty(), "{:?}", self.world.ec2.violations());
        Ok(nodes)
    }

    /// Waits until nothing of a namespace is left.
    pub(in crate::ipam) async fn released(&self, namespace: &str) -> anyhow::Result<()> {
        eventually("its claims are gone", async || Ok(self.world.claims_of(namespace).await?.is_empty())).await?;
        ensure!(self.egress_ip(namespace).await?.is_none());
        let left: Vec<_> = self.world.instances.keys().flat_map(|node| self.world.secondary(node)).collect();
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    }
}
