//! What these tests share: a cluster with nodes on EC2, namespaces that ask for addresses, and an operator.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Namespace, Node, NodeSpec};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use portolan_api::address_claim::AddressClaim;
use portolan_api::ipam::{CloudAttachment, CloudState, HostSubnet, NetNamespace};
use portolan_control::ipam;
use portolan_control::runtime::app::Process;
use portolan_drivers::cloud::aws::{AwsOptions, AwsSettings, LazyAws, Rate};
use portolan_testkit::aws::{Ec2Call, FakeEc2, REGION, Ran};
use portolan_testkit::{Exchange, FaultProxy, Faults, builders, install_definition};
use serde_json::{Value, json};

use crate::egress::harness::{self as cluster, options};
use crate::harness::{Backend, eventually};

pub(super) const PREFIX: &str = "egressip-ipam-operator.redhat-cop.io/";
pub(super) const STATUS: &str = "portolan.dev/egressip-status";
const ZONES: [&str; 3] = ["eu-central-1a", "eu-central-1b", "eu-central-1c"];

/// A cluster of its own, with nodes on EC2.
pub(super) struct World {
    pub(super) client: Client,
    pub(super) ec2: FakeEc2,
    /// Subnets by zone, in order.
    pub(super) subnets: Vec<String>,
    /// Instances by node.
    pub(super) instances: BTreeMap<String, Ran>,
    cluster: cluster::World,
}

/// The operator, behind a recorder of its writes.
pub(super) struct Operator {
    pub(super) process: Process,
    pub(super) seen: FaultProxy,
}

impl World {
    /// A cluster with so many nodes in each zone; the first zone has the subnet 10.77.0.0/24, and so on.
    pub(super) async fn new(backend: Backend, nodes: &[usize]) -> anyhow::Result<Self> {
        let world = Self::without_sdn(backend, nodes).await?;
        world.install_sdn().await?;
        Ok(world)
    }

    /// The same without the kinds of OpenShift; the server must be a new one.
    pub(super) async fn without_sdn(backend: Backend, nodes: &[usize]) -> anyhow::Result<Self> {
        let cluster = cluster::World::new(backend).await?;
        let client = cluster.client.clone();
        let ec2 = FakeEc2::start().await?;
        let mut world = Self { client, ec2, subnets: Vec::new(), instances: BTreeMap::new(), cluster };
        world.wipe_namespaces().await?;
        portolan_testkit::openshift::wipe(&world.client).await?;
        for (number, (zone, count)) in ZONES.iter().zip(nodes).enumerate() {
            let subnet = world.ec2.add_subnet(zone, format!("10.77.{number}.0/24").parse()?);
            let letter = zone.chars().last().context("zones have names")?;
            for (node, ran) in (1..).zip(world.ec2.run(&subnet, "m5.large", *count)) {
                world.ec2.boot(&ran.instance);
                world.node(&format!("{letter}{node}"), zone, &ran).await?;
                world.instances.insert(format!("{letter}{node}"), ran);
            }
            world.subnets.push(subnet);
        }
        Ok(world)
    }

    /// The kinds of OpenShift, and a HostSubnet for every node.
    pub(super) async fn install_sdn(&self) -> anyhow::Result<()> {
        for definition in portolan_api::openshift_crds() {
            install_definition(self.client.clone(), definition).await?;
        }
        self.wipe_sdn().await?;
        for (node, ran) in &self.instances {
            let subnet = json!({ "apiVersion": "network.openshift.io/v1", "kind": "HostSubnet", "metadata": { "name": node },
                "host": node, "hostIP": ran.primary, "subnet": "10.128.0.0/23" });
            self.host_subnets().create(&PostParams::default(), &serde_json::from_value(subnet)?).await?;
        }
        Ok(())
    }

    /// Objects of OpenShift SDN that earlier tests left.
    pub(super) async fn wipe_sdn(&self) -> anyhow::Result<()> {
        let all = ListParams::default();
        for left in self.net_namespaces().list(&all).await? {
            self.net_namespaces().delete(&left.name_any(), &DeleteParams::default()).await?;
        }
        for left in self.host_subnets().list(&all).await? {
            self.host_subnets().delete(&left.name_any(), &DeleteParams::default()).await?;
        }
        Ok(())
    }

    async fn node(&self, name: &str, zone: &str, ran: &Ran) -> anyhow::Result<()> {
        let node = builders::node(name).label("node-role.kubernetes.io/worker", "").zone(zone);
        let mut node = node.address(&ran.primary.to_string()).build();
        let provider_id = Some(format!("aws:///{zone}/{}", ran.instance));
        node.spec = Some(NodeSpec { provider_id, ..NodeSpec::default() });
        builders::create(&Api::<Node>::all(self.client.clone()), &node).await?;
        Ok(())
    }

    /// Namespaces of earlier tests ask for nothing any more.
    async fn wipe_namespaces(&self) -> anyhow::Result<()> {
        for left in self.namespaces().list(&ListParams::default()).await? {
            if left.annotations().keys().any(|key| key.starts_with(PREFIX) || key == STATUS) {
                let keys = ["egressipam", "egressips", "modified"].map(|key| format!("{PREFIX}{key}"));
                let none: BTreeMap<String, Value> =
                    keys.into_iter().chain([STATUS.to_owned()]).map(|key| (key, Value::Null)).collect();
                self.annotate(&left.name_any(), json!(none)).await?;
            }
        }
        Ok(())
    }

    pub(super) fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    pub(super) fn net_namespaces(&self) -> Api<NetNamespace> {
        Api::all(self.client.clone())
    }

    pub(super) fn host_subnets(&self) -> Api<HostSubnet> {
        Api::all(self.client.clone())
    }

    pub(super) fn claims(&self) -> Api<AddressClaim> {
        Api::all(self.client.clone())
    }

    /// A namespace with its NetNamespace that asks for nothing yet.
    pub(super) async fn namespace(&self) -> anyhow::Result<String> {
        let metadata = ObjectMeta { generate_name: Some("shop-".to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let name = self.namespaces().create(&PostParams::default(), &namespace).await?.name_any();
        if self.has_sdn().await? {
            self.net_namespace(&name).await?;
        }
        Ok(name)
    }

    async fn has_sdn(&self) -> anyhow::Result<bool> {
        match self.net_namespaces().list(&ListParams::default()).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(problem) => Err(problem.into()),
        }
    }

    pub(super) async fn net_namespace(&self, name: &str) -> anyhow::Result<()> {
        let object = json!({ "apiVersion": "network.openshift.io/v1", "kind": "NetNamespace", "metadata": { "name": name },
            "netname": name, "netid": fastrand::u32(1..16_777_215) });
        self.net_namespaces().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    /// A namespace that asks for addresses, for these if there are any.
    pub(super) async fn asking(&self, list: Option<&str>) -> anyhow::Result<String> {
        let name = self.namespace().await?;
        let mut annotations = json!({ format!("{PREFIX}egressipam"): "aws" });
        if let Some(list) = list {
            annotations[format!("{PREFIX}egressips")] = list.into();
        }
        self.annotate(&name, annotations).await?;
        Ok(name)
    }

    pub(super) async fn annotate(&self, namespace: &str, annotations: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        self.namespaces().patch(namespace, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(super) async fn annotation(&self, namespace: &str, key: &str) -> anyhow::Result<Option<String>> {
        Ok(self.namespaces().get(namespace).await?.annotations().get(key).cloned())
    }

    pub(super) fn cloud(&self) -> Arc<LazyAws> {
        let keys = self.ec2.own_keys();
        let settings = AwsSettings {
            region: Some(REGION.to_owned()),
            access_key_id: Some(keys.access_key_id.clone()),
            secret_access_key: Some(keys.secret_access_key.clone().into()),
            ec2_endpoint: Some(self.ec2.endpoint()),
            metadata_disabled: true,
            ..AwsSettings::default()
        };
        let plenty = Rate { burst: 90.0, per_second: 19.0 };
        let options = AwsOptions { reads: plenty, ..AwsOptions::default() };
        Arc::new(LazyAws::new(settings, options))
    }

    /// Settings with short times.
    pub(super) fn options(&self) -> ipam::Options {
        ipam::Options {
            backend: ipam::Backend::Sdn,
            node_grace: Duration::from_millis(500),
            verify_interval: Duration::from_millis(800),
            cooling: Duration::from_secs(2),
            ..ipam::Options::on(self.cloud())
        }
    }

    pub(super) async fn operator(&self) -> anyhow::Result<Operator> {
        self.operator_with(self.options()).await
    }

    pub(super) async fn operator_with(&self, ipam: ipam::Options) -> anyhow::Result<Operator> {
        let seen = FaultProxy::start(self.client.clone(), Faults::default()).await?;
        let process = Process::start(seen.client(), options(), |ctx, registry| drop(ipam::start(ctx, registry, ipam)))?;
        Ok(Operator { process, seen })
    }

    /// Claims of a namespace, by address.
    pub(super) async fn claims_of(&self, namespace: &str) -> anyhow::Result<BTreeMap<Ipv4Addr, AddressClaim>> {
        let mut found = BTreeMap::new();
        for claim in self.claims().list(&ListParams::default()).await? {
            if claim.spec.cloud.as_ref().is_some_and(|cloud| cloud.owner.name == namespace) {
                found.insert(claim.name_any().parse()?, claim);
            }
        }
        Ok(found)
    }

    /// The node of each address of a namespace, if all of them are in service everywhere.
    pub(super) async fn service(&self, namespace: &str) -> anyhow::Result<Option<BTreeMap<Ipv4Addr, String>>> {
        let object = self.namespaces().get(namespace).await?;
        let list = object.annotations().get(&format!("{PREFIX}egressips")).cloned().unwrap_or_default();
        let is_dated = object.annotations().contains_key(&format!("{PREFIX}modified"));
        let claims = self.claims_of(namespace).await?;
        let mut nodes = BTreeMap::new();
        for (address, claim) in &claims {
            let cloud = claim.status.as_ref().and_then(|status| status.cloud.as_ref());
            if cloud.is_some_and(|cloud| cloud.gone) {
                continue;
            }
            let node = claim.spec.cloud.clone().unwrap_or_default().node;
            // The spec is written first, so it may be ahead of the status.
            let is_there =
                |cloud: &CloudAttachment| cloud.state == CloudState::Published && cloud.node.as_ref() == Some(&node);
            if !cloud.is_some_and(is_there) {
                return Ok(None);
            }
            nodes.insert(*address, node);
        }
        let addresses: Vec<String> = nodes.keys().map(Ipv4Addr::to_string).collect();
        let net_namespace = self.net_namespaces().get(namespace).await?;
        let is_listed = net_namespace.egress_ips == addresses && list == addresses.join(",");
        Ok((is_dated && is_listed && !nodes.is_empty()).then_some(nodes))
    }

    /// Waits until a namespace is served; gives the node of each address, as all places agree.
    pub(super) async fn served(&self, namespace: &str) -> anyhow::Result<BTreeMap<Ipv4Addr, String>> {
        let mut nodes = None;
        let what = format!("{namespace} is served");
        let waited = eventually(&what, async || {
            nodes = self.service(namespace).await?;
            Ok(nodes.is_some())
        });
        if let Err(problem) = waited.await {
            let claims = self.claims_of(namespace).await?;
            let annotations = self.namespaces().get(namespace).await?.metadata.annotations;
            return Err(problem.context(format!("{annotations:?} {claims:#?}")));
        }
        let nodes = nodes.context("it was served")?;
        self.verify(namespace, &nodes).await?;
        Ok(nodes)
    }

    /// Fails unless EC2 and HostSubnets have these addresses at these nodes, and nowhere else.
    pub(super) async fn verify(&self, namespace: &str, nodes: &BTreeMap<Ipv4Addr, String>) -> anyhow::Result<()> {
        for subnet in self.host_subnets().list(&ListParams::default()).await? {
            let node = subnet.name_any();
            for (address, host) in nodes {
                let hosts = *host == node;
                let is_listed = subnet.egress_ips.contains(&address.to_string());
                ensure!(is_listed == hosts, "HostSubnet {node}: {address} should be at {host}: {subnet:?}");
                let noted = subnet.annotations().get(&format!("{PREFIX}{address}")).map(String::as_str);
                ensure!(noted == hosts.then_some(namespace), "HostSubnet {node}: {address} is noted for {noted:?}");
                let is_there = self.secondary(&node).contains(address);
                ensure!(is_there == hosts, "{address} should be at {host}, {node} has {:?}", self.secondary(&node));
            }
        }
        ensure!(self.ec2.violations().is_empty(), "{:?}", self.ec2.violations());
        Ok(())
    }

    /// Secondary addresses of a node in truth.
    pub(super) fn secondary(&self, node: &str) -> BTreeSet<Ipv4Addr> {
        self.ec2.secondary(&self.instances[node].interface)
    }

    /// Calls to EC2 that change something.
    pub(super) fn ec2_writes(&self) -> Vec<Ec2Call> {
        self.ec2.calls().into_iter().filter(Ec2Call::is_write).collect()
    }

    /// Sets whether a node says it is ready.
    pub(super) async fn set_ready(&self, node: &str, ready: bool) -> anyhow::Result<()> {
        self.cluster.set_ready(node, ready).await
    }

    /// Notes of events with this reason about an object of this name.
    pub(super) async fn events(&self, reason: &str, about: &str) -> anyhow::Result<Vec<String>> {
        let events = Api::<Event>::all(self.client.clone()).list(&ListParams::default()).await?;
        let ours = events.items.into_iter().filter(|event| {
            let name = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            name == Some(about) && event.reason.as_deref() == Some(reason)
        });
        Ok(ours.filter_map(|event| event.note).collect())
    }
}

impl Operator {
    /// Writes to the API server, besides events.
    pub(super) fn writes(&self) -> Vec<Exchange> {
        let writes = self.seen.writes_but_leases();
        writes.into_iter().filter(|write| write.resource() != Some("events")).collect()
    }

    /// The value of a series.
    pub(super) async fn metric(&self, series: &str) -> anyhow::Result<String> {
        let text = crate::chart::metrics(self.process.admin_at()).await?;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        Ok(value.with_context(|| format!("there is no {series} in {text}"))?.to_owned())
    }

    /// The gauge of a namespace under both of its names; none if there is no such series.
    pub(super) async fn failures(&self, namespace: &str) -> anyhow::Result<Option<i64>> {
        let text = crate::chart::metrics(self.process.admin_at()).await?;
        let value = |name: &str| {
            let line = format!("{name}{{namespace=\"{namespace}\"}} ");
            text.lines().find_map(|found| found.strip_prefix(&line)?.trim().parse::<i64>().ok())
        };
        let both = (value("egress_handle_failure"), value("egressip_handling_failures"));
        ensure!(both.0 == both.1, "{both:?}");
        Ok(both.0)
    }

    /// Fails unless nothing is written for a while, here or to EC2, while the cloud is looked at.
    pub(super) async fn rests(&self, world: &World) -> anyhow::Result<()> {
        let reads = world.ec2.calls().len();
        let (before, calls) = (self.writes().len(), world.ec2_writes().len());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let writes = self.writes();
        ensure!(writes.len() == before, "written while at rest: {:#?}", &writes[before..]);
        ensure!(world.ec2_writes().len() == calls, "{:#?}", &world.ec2_writes()[calls..]);
        ensure!(world.ec2.calls().len() > reads, "the cloud is looked at again and again");
        Ok(())
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.process.stop().await?;
        Ok(())
    }
}
