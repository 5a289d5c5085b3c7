//! The objects of ipam, read once for a query, and the planner's world from them.
//!
//! Queries have no credentials for the cloud, so what it has is assumed: every instance runs, every recorded address is
//! where its claim says, and there is room. Addresses that would be chosen are therefore not known, only their nodes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1 as core;
use kube::api::ObjectMeta;
use kube::{Client, ResourceExt as _};
use portolan_api::address_claim::AddressClaim;
use portolan_api::ipam as api;
use portolan_core::ipam::{
    Calls, Claim, Cloud, CloudInterface, CloudNode, CloudSubnet, InstanceState, Journal, NodeName, Plan, Seen,
    SubnetId, World, plan,
};
use serde_json::Value;

use super::clock::Clock;
use super::model::seed;
use super::settings::workers;
use super::validate;
use crate::runtime::overlay::{list_all, merge_object};
use crate::runtime::query::QueryError;

/// All objects that decisions are based on.
#[derive(Clone)]
pub(super) struct Objects {
    pub(super) namespaces: Vec<core::Namespace>,
    nodes: Vec<core::Node>,
    claims: Vec<AddressClaim>,
    pub(super) net_namespaces: Vec<api::NetNamespace>,
    pub(super) host_subnets: Vec<api::HostSubnet>,
}

impl Objects {
    pub(super) async fn read(client: &Client) -> Result<Self, QueryError> {
        Ok(Self {
            namespaces: list_all(client, "namespaces").await?,
            nodes: list_all(client, "nodes").await?,
            claims: list_all(client, "addressclaims").await?,
            net_namespaces: list_all(client, "netnamespaces").await?,
            host_subnets: list_all(client, "hostsubnets").await?,
        })
    }

    /// Merges namespaces as applying them would. New ones get the NetNamespace that OpenShift SDN would make.
    pub(super) fn overlay(&mut self, changes: &[Value]) -> Result<(), QueryError> {
        for change in changes {
            let before = self.namespaces.len();
            merge_object(&mut self.namespaces, change)?;
            for namespace in &self.namespaces[before..] {
                let netid = self.net_namespaces.iter().map(|one| one.netid).max().map_or(1, |most| most + 1);
                let metadata = ObjectMeta { name: namespace.metadata.name.clone(), ..ObjectMeta::default() };
                self.net_namespaces.push(api::NetNamespace { metadata, netid, ..api::NetNamespace::default() });
            }
        }
        Ok(())
    }

    /// Takes a node away, with its HostSubnet.
    pub(super) fn lose(&mut self, node: &str) -> Result<(), QueryError> {
        let before = self.nodes.len();
        self.nodes.retain(|object| object.name_any() != node);
        self.host_subnets.retain(|object| object.name_any() != node);
        if self.nodes.len() < before {
            return Ok(());
        }
        Err(QueryError::NotFound {
            what: format!("there is no node `{node}`"),
            hint: "list them: kubectl get nodes".to_owned(),
        })
    }

    /// False if the cluster has no OpenShift SDN.
    pub(super) fn is_served(&self) -> bool {
        !self.net_namespaces.is_empty() || !self.host_subnets.is_empty()
    }

    /// What the planner is given, besides the cloud.
    pub(super) fn world(&self) -> (World, Journal) {
        let now = Clock::start().now();
        let selector = workers();
        let system = self.namespaces.iter().find(|namespace| namespace.name_any() == "kube-system");
        let world = World {
            seed: seed(system),
            now,
            namespaces: named(&self.namespaces, validate::namespace),
            nodes: named(&self.nodes, |node| validate::node(node, &selector, None, now)),
            net_namespaces: named(&self.net_namespaces, validate::net_namespace),
            host_subnets: named(&self.host_subnets, validate::host_subnet),
            ..World::default()
        };
        let mut journal = Journal::default();
        for object in &self.claims {
            let Some(address) = validate::address_of(&object.name_any()) else { continue };
            match validate::claim(object) {
                Some(claim) => drop(journal.claims.insert(address, claim)),
                None => drop(journal.other_use.insert(address)),
            }
        }
        (world, journal)
    }
}

/// What would be done next.
pub(super) fn planned(world: &World, journal: &Journal) -> Plan {
    let world = World { cloud: Some(assumed_cloud(world, journal)), ..world.clone() };
    plan(&world, journal, &Calls::default())
}

fn named<K: kube::Resource, V>(objects: &[K], read: impl Fn(&K) -> V) -> BTreeMap<Arc<str>, V> {
    objects.iter().map(|object| (object.name_any().into(), read(object))).collect()
}

fn assumed_cloud(world: &World, journal: &Journal) -> Cloud {
    let mut cloud = Cloud::default();
    for (name, node) in &world.nodes {
        let Some(instance) = &node.instance else { continue };
        let zone = node.zone.clone().unwrap_or_default();
        let subnet = subnet(name, &zone, journal);
        if !cloud.subnets.contains_key(&subnet) {
            let what = CloudSubnet {
                id: subnet.clone(),
                zone: zone.clone(),
                cidr: placeholder(cloud.subnets.len()),
                used: <_>::default(),
            };
            cloud.subnets.insert(subnet.clone(), Seen { what, began: world.now });
        }
        let shown = |claim: &Claim| claim.status.node.as_ref() == Some(name);
        let secondary = journal.claims.iter().filter(|(_, claim)| shown(claim)).map(|(address, _)| *address);
        let interface = CloudInterface {
            id: format!("interface of {instance}").into(),
            primary: Ipv4Addr::UNSPECIFIED,
            secondary: secondary.collect(),
            prefixes: 0,
        };
        let what = CloudNode {
            instance: instance.clone(),
            state: InstanceState::Running,
            instance_type: "assumed".into(),
            zone,
            subnet,
            interface: Some(interface),
            address_limit: u16::MAX,
        };
        cloud.nodes.insert(instance.clone(), Seen { what, began: world.now });
    }
    cloud
}

/// The subnet of a node: that of its addresses, or else of others in its zone.
fn subnet(node: &NodeName, zone: &str, journal: &Journal) -> SubnetId {
    let claims = || journal.claims.values();
    let of_node = claims().find(|claim| claim.spec.node == *node);
    let known = of_node.or_else(|| claims().find(|claim| &*claim.spec.zone == zone));
    known.map_or_else(|| format!("subnet of zone {zone}").into(), |claim| claim.spec.subnet.clone())
}

/// A range that no real address is of.
fn placeholder(number: usize) -> Ipv4Net {
    let number = u8::try_from(number).unwrap_or(u8::MAX);
    Ipv4Net::new_assert(Ipv4Addr::new(240, number, 0, 0), 16)
}
