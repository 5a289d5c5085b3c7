//! The loop on an embedded API server: calls to the cloud that it makes against those that are needed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use portolan_api::address_claim::AddressClaim;
use portolan_api::ipam::{CloudState, HostSubnet, NetNamespace};
use portolan_apiserver::ApiServer;
use portolan_control::runtime::app::{Options, Process};
use portolan_control::{install, ipam};
use portolan_testkit::bench::{Bench, Goal};
use portolan_testkit::builders;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::counted::Counted;
use crate::{INSTANCE_TYPE, NAMESPACES, NODES, ZONES, subnet, zone};

const ASSIGN: &str = "calls that assign 15,000 addresses, for each of 1,000 interfaces";
const LOSS: &str = "calls that move the addresses of a lost node, for each interface that gets some";
const REST_CALLS: &str = "calls of a converged cluster that change something";
const REST_READS: &str = "descriptions of a converged cluster in each verify interval";
const REST_WRITES: &str = "objects of a converged cluster that are written";
/// Requests of ours that are under way at a time.
const AT_ONCE: usize = 32;
/// How often everything is compared with the cloud here.
const VERIFY: Duration = Duration::from_secs(10);
const ANNOTATION: &str = "egressip-ipam-operator.redhat-cop.io/egressipam";

pub(crate) fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    if ![ASSIGN, LOSS, REST_CALLS, REST_READS, REST_WRITES].iter().any(|row| bench.wants(row)) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measured(bench))
}

async fn measured(bench: &mut Bench) -> anyhow::Result<()> {
    let server = ApiServer::memory().await;
    let client = server.client();
    install::definitions(&client).await?;
    let cloud = Arc::new(Counted::default());
    nodes(&client, &cloud).await?;
    namespaces(&client).await?;
    let options = ipam::Options { verify_interval: VERIFY, ..ipam::Options::on(cloud.clone()) };
    let process = Process::start(client.clone(), alone(), |ctx, registry| drop(ipam::start(ctx, registry, options)))?;
    published(&client, 3 * NAMESPACES).await?;
    let writes = || cloud.writes.load(Ordering::Relaxed);
    bench.count(ASSIGN, "calls", Goal::value(2.0), writes() as f64 / NODES as f64)?;

    // nothing is left to do
    tokio::time::sleep(VERIFY).await;
    let (calls, reads, version) = (writes(), cloud.reads.load(Ordering::Relaxed), newest(&client).await?);
    let intervals = 3;
    tokio::time::sleep(VERIFY * intervals).await;
    bench.count(REST_CALLS, "calls", Goal::value(0.0), (writes() - calls) as f64)?;
    let described = cloud.reads.load(Ordering::Relaxed) - reads;
    // one of instances, one of subnets
    bench.count(REST_READS, "descriptions", Goal::value(2.7), described as f64 / f64::from(intervals))?;
    bench.count(REST_WRITES, "objects", Goal::value(0.0), if newest(&client).await? == version { 0.0 } else { 1.0 })?;

    let lost = "n0";
    let claims: Api<AddressClaim> = Api::all(client.clone());
    let on_it: Vec<String> = on(&claims, lost).await?;
    let before = writes();
    Api::<Node>::all(client.clone()).delete(lost, &DeleteParams::default()).await?;
    let began = Instant::now();
    while !on(&claims, lost).await?.is_empty() {
        ensure!(began.elapsed() < Duration::from_mins(5), "the addresses of {lost} never moved");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    published(&client, 3 * NAMESPACES).await?;
    let mut receivers: Vec<String> = Vec::new();
    for address in &on_it {
        receivers.extend(claims.get(address).await?.spec.cloud.map(|cloud| cloud.node));
    }
    receivers.sort();
    receivers.dedup();
    bench.count(LOSS, "calls", Goal::value(1.0), (writes() - before) as f64 / receivers.len() as f64)?;
    process.stop().await?;
    Ok(())
}

fn alone() -> Options {
    Options {
        election: None,
        admin_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        drain: Duration::from_secs(1),
        instance: "bench".to_owned(),
    }
}

/// Addresses that a node should have, or has.
async fn on(claims: &Api<AddressClaim>, node: &str) -> anyhow::Result<Vec<String>> {
    let all = claims.list(&ListParams::default()).await?;
    let there = all.into_iter().filter(|claim| {
        let wanted = claim.spec.cloud.as_ref().map(|cloud| cloud.node.as_str());
        let shown = claim.status.as_ref().and_then(|status| status.cloud.as_ref()?.node.as_deref());
        wanted == Some(node) || shown == Some(node)
    });
    Ok(there.map(|claim| claim.name_any()).collect())
}

/// Waits until so many addresses are in service.
async fn published(client: &Client, count: usize) -> anyhow::Result<()> {
    let claims: Api<AddressClaim> = Api::all(client.clone());
    let began = Instant::now();
    loop {
        let all = claims.list(&ListParams::default()).await?;
        let state = |claim: &AddressClaim| claim.status.as_ref()?.cloud.as_ref().map(|cloud| cloud.state);
        let done = all.iter().filter(|claim| state(claim) == Some(CloudState::Published)).count();
        if done == count && all.items.len() == count {
            return Ok(());
        }
        ensure!(began.elapsed() < Duration::from_mins(10), "{done} of {count} are in service");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The version of the newest object that ipam writes.
async fn newest(client: &Client) -> anyhow::Result<u64> {
    async fn of<K>(client: &Client) -> anyhow::Result<u64>
    where
        K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let all = Api::<K>::all(client.clone()).list(&ListParams::default()).await?;
        let versions = all.iter().filter_map(|object| object.resource_version()?.parse::<u64>().ok());
        Ok(versions.max().unwrap_or_default())
    }
    let versions = [
        of::<AddressClaim>(client).await?,
        of::<HostSubnet>(client).await?,
        of::<NetNamespace>(client).await?,
        of::<Namespace>(client).await?,
    ];
    Ok(versions.into_iter().max().unwrap_or_default())
}

async fn nodes(client: &Client, cloud: &Counted) -> anyhow::Result<()> {
    for (number, zone) in ZONES.into_iter().enumerate() {
        let (id, cidr) = subnet(number);
        cloud.cloud.add_subnet(&id, zone, cidr);
    }
    let mut objects = Vec::new();
    for number in 0..NODES {
        let (name, instance) = (format!("n{number}"), format!("i-{number}"));
        let (subnet, _) = subnet(number % ZONES.len());
        cloud.cloud.run_instance(&instance, INSTANCE_TYPE, &subnet)?;
        let node = builders::node(&name).label("node-role.kubernetes.io/worker", "").zone(zone(number)).build();
        let mut node = serde_json::to_value(node)?;
        node["spec"]["providerID"] = json!(format!("aws:///{}/{instance}", zone(number)));
        objects.push(node);
        let host_subnet = json!({
            "apiVersion": "network.openshift.io/v1", "kind": "HostSubnet", "metadata": { "name": name },
            "host": name, "hostIP": "10.0.0.1", "subnet": "10.128.0.0/23",
        });
        create::<HostSubnet>(client, host_subnet).await?;
    }
    let api = Api::<Node>::all(client.clone());
    let all = objects.into_iter().map(|object| {
        let api = api.clone();
        async move { builders::create(&api, &serde_json::from_value(object)?).await.map(drop) }
    });
    stream::iter(all).buffer_unordered(AT_ONCE).try_collect().await
}

async fn namespaces(client: &Client) -> anyhow::Result<()> {
    let all = (0..NAMESPACES).map(|number| async move {
        let name = format!("ns{number}");
        create::<Namespace>(client, json!({ "metadata": { "name": name } })).await?;
        let net_namespace = json!({
            "apiVersion": "network.openshift.io/v1", "kind": "NetNamespace", "metadata": { "name": name },
            "netname": name, "netid": number + 1,
        });
        create::<NetNamespace>(client, net_namespace).await?;
        let asks = Patch::Merge(json!({ "metadata": { "annotations": { ANNOTATION: "yes" } } }));
        Api::<Namespace>::all(client.clone()).patch(&name, &PatchParams::default(), &asks).await?;
        anyhow::Ok(())
    });
    stream::iter(all).buffer_unordered(AT_ONCE).try_collect().await
}

async fn create<K>(client: &Client, object: Value) -> anyhow::Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    Api::<K>::all(client.clone()).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}
