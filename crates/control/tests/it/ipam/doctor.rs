//! `portolan doctor ipam`: each fault of the checklist is found alone, repaired, and not found again.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use portolan_control::ipam;
use portolan_control::runtime::doctor::{Check, Examination, Verdict};
use portolan_drivers::cloud::Cloud as _;
use portolan_testkit::builders;
use serde_json::{Value, json};

use super::harness::{PREFIX, World};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    what_contradicts_the_journal_is_written_from_it,
    what_is_not_ours_is_reported_and_left,
    what_the_cloud_lost_is_the_operators_work,
}

/// A namespace with an address on a node, and no operator that would put anything right.
struct Served {
    world: World,
    name: String,
    address: Ipv4Addr,
    node: String,
    /// The node without an address.
    other: String,
}

impl Served {
    async fn new(backend: Backend) -> anyhow::Result<Self> {
        let world = World::new(backend, &[2]).await?;
        let operator = world.operator().await?;
        let name = world.asking(None).await?;
        let (address, node) = world.served(&name).await?.into_iter().next().context("it has one")?;
        operator.stop().await?;
        let other = if node == "a1" { "a2" } else { "a1" }.to_owned();
        Ok(Self { world, name, address, node, other })
    }

    /// Checks that are not well.
    async fn wrong(&self) -> anyhow::Result<Vec<Check>> {
        let examination = Examination { name: None, cloud: Some(self.world.cloud()) };
        let mut checks = (ipam::CAPABILITY.queries.doctor)(self.world.client.clone(), examination).await?;
        checks.retain(|check| check.verdict != Verdict::Ok);
        Ok(checks)
    }

    /// The only check that is not well.
    async fn only(&self, name: &str, object: &str) -> anyhow::Result<Check> {
        let mut found = self.wrong().await?;
        let is_it = found.len() == 1 && found[0].name == name && found[0].object == object;
        ensure!(is_it, "only {name} of {object} should be wrong: {found:#?}");
        found.pop().context("there is one")
    }

    /// Finds one fault, repairs it, and finds nothing more.
    async fn is_repaired(&self, name: &str, object: &str) -> anyhow::Result<()> {
        let repair = self.only(name, object).await?.repair.context("it can be repaired")?;
        repair.run().await?;
        let left = self.wrong().await?;
        ensure!(left.is_empty(), "{name} is left: {left:#?}");
        Ok(())
    }

    async fn patch_net_namespace(&self, patch: Value) -> anyhow::Result<()> {
        self.world.net_namespaces().patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn patch_host(&self, node: &str, patch: Value) -> anyhow::Result<()> {
        self.world.host_subnets().patch(node, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }
}

async fn what_contradicts_the_journal_is_written_from_it(backend: Backend) -> anyhow::Result<()> {
    let served = Served::new(backend).await?;
    let Served { world, name, address, node, other } = &served;
    let left = served.wrong().await?;
    ensure!(left.is_empty(), "{left:#?}");
    let (namespace, net_namespace) = (format!("Namespace/{name}"), format!("NetNamespace/{name}"));
    let host = format!("HostSubnet/{node}");

    for (key, value) in [("egressips", Value::Null), ("egressips", json!("10.77.0.200")), ("modified", Value::Null)] {
        world.annotate(name, json!({ format!("{PREFIX}{key}"): value })).await?;
        served.is_repaired("namespace-annotations", &namespace).await?;
    }
    served
        .patch_net_namespace(json!({ "metadata": { "annotations": { format!("{PREFIX}egressips"): null } } }))
        .await?;
    served.is_repaired("netnamespace-annotation", &net_namespace).await?;
    served.patch_net_namespace(json!({ "egressIPs": [] })).await?;
    served.is_repaired("netnamespace-addresses", &net_namespace).await?;

    served.patch_host(node, json!({ "egressIPs": [] })).await?;
    served.is_repaired("hostsubnet-addresses", &host).await?;
    served.patch_host(other, json!({ "egressIPs": [address] })).await?;
    served.is_repaired("hostsubnet-addresses", &host).await?;
    served.patch_host(node, json!({ "metadata": { "annotations": { format!("{PREFIX}{address}"): null } } })).await?;
    served.is_repaired("hostsubnet-addresses", &host).await?;

    let finalized = |handler: &str| json!({ "metadata": { "finalizers": [format!("{PREFIX}{handler}-handler")] } });
    let patch = Patch::Merge(finalized("namespace"));
    world.namespaces().patch(name, &PatchParams::default(), &patch).await?;
    served.is_repaired("finalizers", &namespace).await?;
    served.patch_net_namespace(finalized("netnamespace")).await?;
    served.is_repaired("finalizers", &net_namespace).await?;
    served.patch_host(node, finalized("hostsubnet")).await?;
    served.is_repaired("finalizers", &host).await?;

    // the operator would have written the same
    world.served(name).await?;
    let operator = world.operator().await?;
    operator.rests(world).await?;
    ensure!(operator.writes().is_empty(), "{:#?}", operator.writes());
    operator.stop().await
}

async fn what_is_not_ours_is_reported_and_left(backend: Backend) -> anyhow::Result<()> {
    let served = Served::new(backend).await?;
    let Served { world, name, address, node, other } = &served;
    let host = format!("HostSubnet/{other}");
    served.patch_host(other, json!({ "egressCIDRs": ["10.77.0.0/24"] })).await?;
    let found = served.only("egress-cidrs", &host).await?;
    ensure!(found.repair.is_none() && found.verdict == Verdict::Warn, "{found:?}");
    served.patch_host(node, json!({ "egressCIDRs": ["10.77.0.0/24"] })).await?;
    ensure!(served.wrong().await?.iter().any(|check| check.verdict == Verdict::Fail), "its addresses are in danger");
    served.patch_host(node, json!({ "egressCIDRs": null })).await?;
    served.patch_host(other, json!({ "egressCIDRs": null })).await?;

    served.patch_host(other, json!({ "egressIPs": ["10.77.0.99"] })).await?;
    let found = served.only("foreign-addresses", &host).await?;
    ensure!(found.repair.is_none() && found.seen.starts_with("10.77.0.99 "), "{found:?}");
    served.patch_host(other, json!({ "egressIPs": null })).await?;

    // a node without an instance hosts nothing
    let nodes: Api<Node> = Api::all(world.client.clone());
    let ran = world.ec2.run(&world.subnets[0], "m5.large", 1).pop().context("it runs")?;
    world.ec2.boot(&ran.instance);
    let labelled = builders::node("a9").label("node-role.kubernetes.io/worker", "");
    builders::create(&nodes, &labelled.zone("eu-central-1a").address(&ran.primary.to_string()).build()).await?;
    let subnet = json!({ "apiVersion": "network.openshift.io/v1", "kind": "HostSubnet", "metadata": { "name": "a9" },
        "host": "a9", "hostIP": ran.primary, "subnet": "10.128.2.0/23" });
    world.host_subnets().create(&PostParams::default(), &serde_json::from_value(subnet)?).await?;
    let found = served.only("nodes", "Node/a9").await?;
    ensure!(found.repair.is_none() && found.seen.contains("providerID"), "{found:?}");
    let provider = json!({ "spec": { "providerID": format!("aws:///eu-central-1a/{}", ran.instance) } });
    nodes.patch("a9", &PatchParams::default(), &Patch::Merge(provider)).await?;
    let left = served.wrong().await?;
    ensure!(left.is_empty(), "{left:#?}");

    // what is not allowed is named, with the policy to add
    world.ec2.deny("AssignPrivateIpAddresses", true);
    let found = served.only("permissions", "").await?;
    ensure!(found.advice.contains(r#""Action":["ec2:AssignPrivateIpAddresses"]"#), "{found:?}");
    world.ec2.deny("AssignPrivateIpAddresses", false);

    // only one namespace, and without a cloud
    world.annotate(name, json!({ format!("{PREFIX}egressips"): null })).await?;
    let idle = world.namespace().await?;
    for (name, wrong) in [(name, &["namespace-annotations", "credentials"][..]), (&idle, &["credentials"][..])] {
        let examination = Examination { name: Some(name.clone()), cloud: None };
        let checks = (ipam::CAPABILITY.queries.doctor)(world.client.clone(), examination).await?;
        let found: Vec<&str> =
            checks.iter().filter(|check| check.verdict != Verdict::Ok).map(|check| check.name).collect();
        ensure!(found == wrong, "{name}: {checks:#?}");
    }
    let unknown = Examination { name: Some("nobody".to_owned()), cloud: None };
    ensure!((ipam::CAPABILITY.queries.doctor)(world.client.clone(), unknown).await.is_err());
    ensure!(world.secondary(node).contains(address), "nothing was taken from the cloud");
    Ok(())
}

async fn what_the_cloud_lost_is_the_operators_work(backend: Backend) -> anyhow::Result<()> {
    let served = Served::new(backend).await?;
    let Served { world, name, address, node, .. } = &served;
    let settings = ipam::Options { verify_interval: Duration::from_hours(1), ..world.options() };
    world.ec2.clear_calls();
    let operator = world.operator_with(settings).await?;
    // it reads subnets after instances
    let has_looked = async || Ok(world.ec2.calls().iter().any(|call| call.action == "DescribeSubnets"));
    eventually("the operator has looked, and will not look again soon", has_looked).await?;
    let interface = world.instances[node].interface.as_str().into();
    world.cloud().release(&interface, &[*address]).await;
    let found = served.only("cloud-addresses", &format!("AddressClaim/{address}")).await?;
    let repair = found.repair.context("the operator can be asked")?;
    ensure!(repair.asks_operator, "{repair:?}");
    let writes = world.ec2_writes().len();
    repair.run().await?;
    eventually("nothing is wrong", async || Ok(served.wrong().await?.is_empty())).await?;
    ensure!(world.secondary(node).contains(address) && world.ec2_writes().len() > writes);
    world.served(name).await?;
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_namespace_is_gone_is_released_by_the_operator() -> anyhow::Result<()> {
    let served = Served::new(Backend::Embedded).await?;
    let Served { world, name, address, node, .. } = &served;
    world.namespaces().delete(name, &DeleteParams::default()).await?;
    world.net_namespaces().delete(name, &DeleteParams::default()).await?;
    eventually("the namespace is gone", async || Ok(world.namespaces().get_opt(name).await?.is_none())).await?;
    let found = served.only("journal", &format!("AddressClaim/{address}")).await?;
    ensure!(found.verdict == Verdict::Fail && found.seen.ends_with("is gone"), "{found:?}");
    found.repair.context("the operator can be asked")?.run().await?;
    ensure!(world.secondary(node).contains(address), "nothing happens behind the journal");
    let operator = world.operator().await?;
    // a claim that is being released is not wrong, so this comes first
    eventually("the address is released", async || Ok(!world.secondary(node).contains(address))).await?;
    eventually("nothing is wrong", async || Ok(served.wrong().await?.is_empty())).await?;
    operator.stop().await
}
