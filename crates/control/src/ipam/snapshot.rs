//! The objects of ipam, read once for a query, and the planner's world from them.
//!
//! Queries have no credentials for the cloud, so what it has is assumed: every instance runs, every recorded address is
//! where its claim says, and there is room. Addresses that would be chosen are therefore not known, only their nodes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use kube::api::ObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use portolan_api::address_claim::AddressClaim;
use portolan_api::ipam as api;
use portolan_core::ipam::ovn::{self, Ovn};
use portolan_core::ipam::{
    Calls, Claim, Cloud, CloudInterface, CloudNode, CloudSubnet, InstanceState, Journal, NodeName, Plan, Seen,
    SubnetId, World, plan,
};
use serde_json::Value;

use super::backend::{Network, detected};
use super::model::seed;
use super::names::{CONTROLLER_LOCK, CONTROLLER_NAMESPACE};
use super::observe::CLUSTER;
use super::settings::workers;
use super::validate;
use crate::runtime::clock::Clock;
use crate::runtime::overlay::{list_all, list_served, put_object};
use crate::runtime::query::QueryError;

/// Said where nothing could use an address.
pub(super) const IDLE: &str = "the cluster has neither NetNamespaces and HostSubnets of OpenShift SDN nor EgressIPs of OVN-Kubernetes: ipam does nothing";

/// All objects that decisions are based on.
#[derive(Clone)]
pub(super) struct Objects {
    network: Network,
    pub(super) namespaces: Vec<core::Namespace>,
    nodes: Vec<core::Node>,
    claims: Vec<AddressClaim>,
    pub(super) net_namespaces: Vec<api::NetNamespace>,
    pub(super) host_subnets: Vec<api::HostSubnet>,
    egress_ips: Vec<api::EgressIp>,
    private_ips: Vec<api::CloudPrivateIpConfig>,
    /// The Lease of cloud-network-config-controller.
    controller_lock: Option<Lease>,
}

/// What the planner is given, besides the cloud.
pub(super) struct Known {
    pub(super) network: Network,
    pub(super) world: World,
    pub(super) journal: Journal,
    pub(super) ovn: Ovn,
}

impl Objects {
    pub(super) async fn read(client: &Client) -> Result<Self, QueryError> {
        let net_namespaces = list_served(client, "netnamespaces").await?;
        let host_subnets = list_served(client, "hostsubnets").await?;
        let egress_ips = list_served(client, "egressips").await?;
        let networks: Vec<api::NetworkConfig> = list_all(client, "networks").await?;
        let configured = networks.iter().find(|network| network.name_any() == CLUSTER);
        let named = configured.and_then(|config| config.status.as_ref()).map(|status| &*status.network_type);
        let network = detected(named, net_namespaces.is_some() && host_subnets.is_some(), egress_ips.is_some());
        let (net_namespaces, host_subnets) = (net_namespaces.unwrap_or_default(), host_subnets.unwrap_or_default());
        let network = match network {
            // the operator has a flag for that; here, objects tell: OpenShift SDN has one for each node
            Network::Ambiguous if host_subnets.is_empty() => Network::Ovn,
            Network::Ambiguous => Network::Sdn,
            Network::Sdn | Network::Ovn | Network::Absent => network,
        };
        let locks = Api::<Lease>::namespaced(client.clone(), CONTROLLER_NAMESPACE);
        Ok(Self {
            network,
            namespaces: list_all(client, "namespaces").await?,
            nodes: list_all(client, "nodes").await?,
            claims: list_all(client, "addressclaims").await?,
            net_namespaces,
            host_subnets,
            egress_ips: egress_ips.unwrap_or_default(),
            private_ips: list_all(client, "cloudprivateipconfigs").await?,
            controller_lock: locks
                .get_opt(CONTROLLER_LOCK)
                .await
                .map_err(|cause| QueryError::Unreachable { what: "leases", cause: Box::new(cause) })?,
        })
    }

    /// Puts namespaces in place of those of the cluster. New ones get the NetNamespace that OpenShift SDN would make.
    pub(super) fn overlay(&mut self, changes: &[Value]) -> Result<(), QueryError> {
        for change in changes {
            let before = self.namespaces.len();
            put_object(&mut self.namespaces, change)?;
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

    /// What the planner is given.
    pub(super) fn known(&self) -> Known {
        let now = Clock::start().now();
        let selector = workers();
        let system = self.namespaces.iter().find(|namespace| namespace.name_any() == "kube-system");
        let private_ips = named(&self.private_ips, validate::private_ip).into_iter();
        let private_ips: BTreeMap<Ipv4Addr, _> =
            private_ips.filter_map(|(name, ip)| Some((name.parse().ok()?, ip))).collect();
        let until = self.controller_lock.as_ref().and_then(validate::held_until);
        let is_controlled = until.is_some_and(|until| until > now);
        let world = World {
            seed: seed(system),
            now,
            namespaces: named(&self.namespaces, validate::namespace),
            nodes: named(&self.nodes, |node| validate::node(node, &selector, None, now)),
            net_namespaces: named(&self.net_namespaces, validate::net_namespace),
            host_subnets: named(&self.host_subnets, validate::host_subnet),
            cloud_controller: is_controlled.then(|| private_ips.clone()),
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
        let serves = self.network == Network::Ovn && !is_controlled;
        let mut ovn = Ovn { private_ips, serves, ..Ovn::default() };
        self.egress_ips.iter().for_each(|object| validate::note_egress_ip(&mut ovn, object));
        Known { network: self.network, world, journal, ovn }
    }
}

impl Known {
    /// False if the cluster has no network plugin that could use addresses.
    pub(super) fn is_served(&self) -> bool {
        self.network.is_served(&self.world)
    }

    /// What would be done next.
    pub(super) fn planned(&self) -> Plan {
        let Self { world, journal, .. } = self;
        let world = World { cloud: Some(assumed_cloud(world, journal)), ..world.clone() };
        match self.network {
            Network::Sdn | Network::Absent | Network::Ambiguous => plan(&world, journal, &Calls::default()),
            Network::Ovn => ovn::plan(&world, &self.ovn, journal, &Calls::default()),
        }
    }
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
