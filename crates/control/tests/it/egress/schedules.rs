//! Random schedules of edits, faults and restarts on an in-process API server and a paused clock: each ends
//! where the plan of a fault-free operator would end, with nothing leaked and nothing given twice.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use portolan_api::address_claim::AddressClaim;
use portolan_api::egress::{EgressGateway, EgressPolicy};
use portolan_apiserver::ApiServer;
use portolan_control::egress;
use portolan_control::runtime::app::Process;
use portolan_simulator::agents;
use portolan_testkit::builders;
use serde_json::json;

use super::harness::{app, gone_is_fine, options, selector, wipe};
use crate::chaos::Chaos;

/// How many schedules run: a third of a second of processor time each. `PORTOLAN_SCHEDULES` says another number, for a
/// release many more; `PORTOLAN_SCHEDULE` the one seed to run.
const SCHEDULES: u64 = 400;

#[test]
fn random_schedules_end_where_the_plan_says() {
    let number = |name| -> Option<u64> { Some(std::env::var_os(name)?.to_str()?.parse().expect("it is a number")) };
    let one = number("PORTOLAN_SCHEDULE");
    let seeds = one.map_or(0..number("PORTOLAN_SCHEDULES").unwrap_or(SCHEDULES), |seed| seed..seed + 1);
    let (next, ran, failed) = (AtomicU64::new(seeds.start), AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let server = block_on(served()).expect("the server starts");
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    ran.fetch_add(1, Ordering::Relaxed);
                    if !passes(&server, seed) {
                        failed.lock().push(seed);
                    }
                }
            });
        }
    });
    println!("{} schedules ran", ran.into_inner());
    let failed = failed.into_inner();
    assert!(
        failed.is_empty(),
        "failed: {failed:?}; one alone: PORTOLAN_SCHEDULE={} cargo test -p portolan-control --test it schedules",
        failed[0]
    );
}

/// A server with our kinds: compiling them costs more than a schedule, so schedules take turns on it.
async fn served() -> anyhow::Result<ApiServer> {
    let server = ApiServer::memory().await;
    portolan_control::install::definitions(&server.client()).await?;
    Ok(server)
}

#[expect(clippy::print_stderr, reason = "the seed and what went wrong are for whoever repeats the schedule")]
fn passes(server: &ApiServer, seed: u64) -> bool {
    // Names, uids and delays are drawn from the thread's own dice.
    fastrand::seed(seed);
    match std::panic::catch_unwind(AssertUnwindSafe(|| block_on(schedule(server, seed)))) {
        Ok(Ok(())) => true,
        Ok(Err(cause)) => {
            eprintln!("seed {seed}: {cause:#}");
            false
        }
        Err(_) => {
            eprintln!("seed {seed}: panicked");
            false
        }
    }
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?.block_on(work)
}

async fn schedule(server: &ApiServer, seed: u64) -> anyhow::Result<()> {
    let client = server.client();
    wipe(&client).await?;
    let mut cluster = Cluster {
        client: client.clone(),
        rng: Rng::with_seed(seed),
        policies: BTreeSet::new(),
        nodes: BTreeMap::new(),
    };
    for name in ["n1", "n2", "n3"] {
        cluster.add_node(name).await?;
    }
    let agents = Process::start(client.clone(), options(), |ctx, _| agents::start(ctx))?;
    let mut operators: Vec<(Process, Chaos)> = Vec::new();
    let mut rivals = false;
    for step in 0..cluster.rng.u32(4..10) {
        // Now and then the leader stops, dies, or does not notice that another leads.
        if operators.is_empty() || cluster.rng.u8(..) < 50 {
            match cluster.rng.u8(0..4) {
                0 if operators.len() == 1 => rivals = true,
                1 => operators.iter().for_each(|(_, chaos)| chaos.kill()),
                _ => {}
            }
            if !rivals || operators.len() > 1 {
                for (process, _) in operators.drain(..) {
                    stop(process).await?;
                }
            }
            let chaos = Chaos::new(&client, Some(cluster.rng.u64(..)));
            operators.push((operator(&chaos)?, chaos));
        }
        cluster.edit(step).await?;
        tokio::time::sleep(Duration::from_millis(cluster.rng.u64(0..3_000))).await;
        if !rivals {
            safe(&client).await?;
        }
    }
    // Either the last operator goes on without faults, or another takes over.
    let last = if cluster.rng.bool() { operators.pop() } else { None };
    for (process, _) in operators {
        stop(process).await?;
    }
    cluster.heal().await?;
    let calm = match last {
        Some((process, chaos)) => {
            chaos.calm(true);
            process
        }
        None => operator(&Chaos::new(&client, None))?,
    };
    tokio::time::sleep(Duration::from_mins(2)).await;
    stop(calm).await?;
    safe(&client).await?;
    at_rest(&client, &cluster.policies).await?;
    let watched = Chaos::new(&client, None);
    let idle = operator(&watched)?;
    tokio::time::sleep(Duration::from_mins(1)).await;
    stop(idle).await?;
    let mut writes = watched.take_writes();
    writes.retain(|write| !write.contains("/events"));
    anyhow::ensure!(writes.is_empty(), "at rest it still wrote: {writes:?}");
    stop(agents).await
}

fn operator(chaos: &Chaos) -> anyhow::Result<Process> {
    Ok(Process::start(chaos.client(), options(), |ctx, registry| {
        egress::start(ctx, registry, egress::Options::default());
    })?)
}

/// A task that ended by itself has panicked.
async fn stop(process: Process) -> anyhow::Result<()> {
    if let Some(task) = process.broken().now_or_never() {
        anyhow::bail!("task `{task}` broke");
    }
    Ok(process.stop().await?)
}

/// What the schedule does to the cluster, and what it did so far.
struct Cluster {
    client: Client,
    rng: Rng,
    policies: BTreeSet<String>,
    /// Whether each node is ready.
    nodes: BTreeMap<String, bool>,
}

impl Cluster {
    /// One random edit.
    async fn edit(&mut self, step: u32) -> anyhow::Result<()> {
        let policies: Api<EgressPolicy> = Api::namespaced(self.client.clone(), "default");
        let gateway = format!("eg{}", self.rng.u8(1..3));
        let chosen = self.rng.choice(self.policies.iter().cloned().collect::<Vec<_>>());
        match self.rng.u8(0..16) {
            0..3 => self.apply_gateway(&gateway).await?,
            3..9 => {
                let name = format!("p{step}");
                let mode = self.rng.choice(["default", "rr", "Random", "Limit"]).unwrap_or("rr");
                let egress_ip = match self.rng.u8(0..6) {
                    0 => json!({ "useNodeIP": true }),
                    1 => json!({ "ipv4": format!("10.6.1.{}", if gateway == "eg1" { 11 } else { 41 }) }),
                    _ => json!({ "allocatorPolicy": mode }),
                };
                let object = json!({ "metadata": { "name": name }, "spec": {
                    "egressGatewayName": gateway, "egressIP": egress_ip, "appliedTo": app(&name)
                } });
                policies.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
                self.policies.insert(name);
            }
            9..11 => {
                if let Some(name) = chosen {
                    policies.delete(&name, &DeleteParams::default()).await?;
                    self.policies.remove(&name);
                }
            }
            11..13 => {
                let name = self.rng.choice(self.nodes.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
                let ready = !self.nodes[&name];
                self.set_ready(&name, ready).await?;
            }
            13 => {
                let gateways: Api<EgressGateway> = Api::all(self.client.clone());
                gone_is_fine(gateways.delete(&gateway, &DeleteParams::default()).await)?;
            }
            14 => {
                // Somebody takes a claim away under its users.
                let claims: Api<AddressClaim> = Api::all(self.client.clone());
                if let Some(claim) = self.rng.choice(claims.list(&ListParams::default()).await?.items) {
                    gone_is_fine(claims.delete(&claim.name_any(), &DeleteParams::default()).await)?;
                }
            }
            _ => {
                // A tenant writes into the status of its own policy.
                if let Some(name) = chosen {
                    let lie = json!({ "status": { "eip": { "ipv4": format!("10.6.1.{}", self.rng.u8(10..48)) }, "node": "n1" } });
                    policies.patch_status(&name, &PatchParams::default(), &Patch::Merge(lie)).await?;
                }
            }
        }
        Ok(())
    }

    async fn apply_gateway(&mut self, name: &str) -> anyhow::Result<()> {
        let first = if name == "eg1" { 10 } else { 40 };
        let object = json!({ "apiVersion": "egressgateway.spidernet.io/v1beta1", "kind": "EgressGateway",
            "metadata": { "name": name }, "spec": {
                "ippools": { "ipv4": [format!("10.6.1.{first}-10.6.1.{}", first + self.rng.u8(1..6))] },
                "nodeSelector": selector(),
            }
        });
        let gateways: Api<EgressGateway> = Api::all(self.client.clone());
        gateways.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await?;
        Ok(())
    }

    async fn add_node(&mut self, name: &str) -> anyhow::Result<()> {
        let node = builders::node(name).label("egress", "true").build();
        builders::create(&Api::all(self.client.clone()), &node).await?;
        self.nodes.insert(name.to_owned(), true);
        Ok(())
    }

    async fn set_ready(&mut self, name: &str, ready: bool) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let status = if ready { "True" } else { "False" };
        let patch = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
        nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        self.nodes.insert(name.to_owned(), ready);
        Ok(())
    }

    /// Every node is ready again.
    async fn heal(&mut self) -> anyhow::Result<()> {
        for (name, ready) in self.nodes.clone() {
            if !ready {
                self.set_ready(&name, true).await?;
            }
        }
        Ok(())
    }
}

/// What must hold at every moment while one operator leads: a slot stands for one address.
async fn safe(client: &Client) -> anyhow::Result<()> {
    let claims = Api::<AddressClaim>::all(client.clone()).list(&ListParams::default()).await?;
    let slots: Vec<u16> =
        claims.iter().filter_map(|claim| claim.spec.egress.as_ref().map(|record| record.slot)).collect();
    let distinct: BTreeSet<&u16> = slots.iter().collect();
    anyhow::ensure!(distinct.len() == slots.len(), "a slot stands for two addresses: {slots:?}");
    Ok(())
}

/// What must hold at rest: recorded = granted = shown, and everybody who can be served is.
async fn at_rest(client: &Client, policies: &BTreeSet<String>) -> anyhow::Result<()> {
    let claims = Api::<AddressClaim>::all(client.clone()).list(&ListParams::default()).await?;
    let gateways = Api::<EgressGateway>::all(client.clone()).list(&ListParams::default()).await?;
    let serving: BTreeSet<String> = gateways
        .iter()
        .filter(|gateway| gateway.metadata.deletion_timestamp.is_none())
        .map(ResourceExt::name_any)
        .collect();
    let mut recorded: BTreeMap<String, (String, String)> = BTreeMap::new();
    for claim in &claims {
        let name = claim.name_any();
        anyhow::ensure!(claim.metadata.deletion_timestamp.is_none(), "{name} is still going");
        let record = claim.spec.egress.clone().unwrap_or_default();
        let node = record.node.ok_or_else(|| anyhow::anyhow!("{name} lives nowhere"))?;
        recorded.insert(name, (record.gateway, node));
    }
    let mut used = BTreeSet::new();
    let all = Api::<EgressPolicy>::namespaced(client.clone(), "default").list(&ListParams::default()).await?;
    anyhow::ensure!(
        all.iter().map(ResourceExt::name_any).collect::<BTreeSet<_>>() == *policies,
        "policies came or went"
    );
    for policy in &all {
        let name = policy.name_any();
        let status = policy.status.clone().unwrap_or_default();
        let wanted = policy.spec.egress_gateway_name.clone().unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let ready = ready.ok_or_else(|| anyhow::anyhow!("{name} has no word"))?;
        let explicit = policy.spec.egress_ip.as_ref().is_some_and(|asked| asked.ipv4.is_some());
        anyhow::ensure!(
            ready.status == "True" || explicit || !serving.contains(&wanted),
            "{name} is not served: {ready:?}"
        );
        let Some(address) = status.eip.and_then(|eip| eip.ipv4) else { continue };
        let (gateway, node) =
            recorded.get(&address).ok_or_else(|| anyhow::anyhow!("{name}: {address} is not recorded"))?;
        anyhow::ensure!(wanted == *gateway, "{name}: {address} is of {gateway}");
        anyhow::ensure!(
            status.node.as_ref() == Some(node),
            "{name}: {address} lives on {node}, not on {:?}",
            status.node
        );
        used.insert(address);
    }
    let leaked: Vec<_> = recorded.keys().filter(|address| !used.contains(*address)).collect();
    anyhow::ensure!(leaked.is_empty(), "recorded and used by nobody: {leaked:?}");
    let mut shown: BTreeMap<String, (String, String)> = BTreeMap::new();
    for gateway in &gateways {
        for node in gateway.status.iter().flat_map(|status| &status.node_list) {
            let addresses = node.eips.iter().filter(|eip| !eip.ipv4.is_empty());
            shown.extend(addresses.map(|eip| (eip.ipv4.clone(), (gateway.name_any(), node.name.clone()))));
        }
    }
    anyhow::ensure!(shown == recorded, "gateways show {shown:?}, recorded is {recorded:?}");
    Ok(())
}
