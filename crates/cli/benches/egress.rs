//! What egress costs: the planner at three sizes, 800 policies at once on a real API server, and the operator's memory.
//!
//! The planner runs in this process. The operator is the `portolan` binary against kube-apiserver and etcd, or against
//! the embedded API server where only its memory counts; the agents are simulated here, so that the operator's own CPU
//! time, writes and memory are counted.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use portolan_api::egress::{EgressGateway, EgressPolicy};
use portolan_control::install;
use portolan_control::runtime::app::{Options, Process};
use portolan_core::egress::{
    AddressRequest, AllocationMode, Change, Eip, Gateway, Ledger, Node, NodeMode, Planner, Policy, PolicyName, World,
    plan,
};
use portolan_core::net::Pool;
use portolan_core::select::{Labels, Selector};
use portolan_simulator::agents;
use portolan_simulator::cluster::{self, Cluster};
use portolan_testkit::bench::{Bench, Goal, Side};
use portolan_testkit::{ControlPlane, Program, ReservedAddress, builders};
use serde_json::json;
use tokio::runtime::Runtime;

const NODES: u32 = 1_000;
const ADDRESSES: u32 = 5_000;
const SIZES: [u64; 3] = [1_000, 10_000, 100_000];
const BURST: usize = 800;
const MIB: f64 = 1024.0 * 1024.0;
const BURST_CPU: &str = "800 policies at once: CPU time of the operator";
const BURST_READY: &str = "800 policies at once: until all are ready";
const BURST_WRITES: &str = "800 policies at once: writes made for one needed";
const MEMORY_OF_EGRESS: &str = "operator memory with 10,000 policies and 20,000 pods, egress alone";
const MEMORY_OF_ALL: &str = "operator memory with 10,000 policies and 20,000 pods, all capabilities";

fn main() -> anyhow::Result<ExitCode> {
    let mut bench = Bench::from_arguments("egress")?;
    planner(&mut bench)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let _guard = runtime.enter();
    if [BURST_CPU, BURST_READY, BURST_WRITES].into_iter().any(|row| bench.wants(row)) {
        let plane = ControlPlane::start()?;
        runtime.block_on(install::definitions(&plane.client()))?;
        burst(&mut bench, &runtime, &plane)?;
    }
    for (row, flags, most) in [(MEMORY_OF_EGRESS, &["--capabilities=egress"][..], 64.0), (MEMORY_OF_ALL, &[], 96.0)] {
        if bench.wants(row) {
            let resident = memory(&runtime, flags)?;
            bench.count(row, "MiB", Goal::value(most), resident / MIB)?;
        }
    }
    bench.finish()
}

/// A full plan, and one change, at three sizes.
fn planner(bench: &mut Bench) -> anyhow::Result<()> {
    bench.growth("full plan", &SIZES, Goal::exponent(1.2), |size| {
        std::hint::black_box(plan(&world(size), &Ledger::default()));
        Ok(())
    })?;
    let (added, lost) = ("one policy added or removed", "one node lost");
    if !bench.wants(added) && !bench.wants(lost) {
        return Ok(());
    }
    let planners: Vec<Planner> = SIZES.iter().map(|size| Planner::new(world(*size), Ledger::default())).collect();
    let [small, .., large] = &planners[..] else { unreachable!("three sizes") };
    let add = |planner: &Planner| {
        let mut planner = planner.clone();
        let mut number = 0;
        move || {
            for _ in 0..200 {
                number += 1;
                let namespace = format!("ns{}", number % 100);
                let name = PolicyName { namespace: Some(namespace.into()), name: format!("new{number}").into() };
                std::hint::black_box(planner.change(Change::Policy(name.clone(), Some(policy(1_000_000 + number)))));
                std::hint::black_box(planner.change(Change::Policy(name, None)));
            }
            Ok(400)
        }
    };
    bench.compare(
        added,
        "change",
        Goal::ratio(1.3),
        Side::new("with 100,000 policies", add(large)),
        Side::new("with 1,000 policies", add(small)),
    )?;
    let lose = |planner: &Planner| {
        let mut planner = planner.clone();
        let mut number = 0;
        move || {
            let mut moved = 0;
            for _ in 0..20 {
                number = (number + 1) % NODES;
                let name = node_name(number);
                let touched = planner.change(Change::Node(name.clone(), Some(Node { ready: false, ..node() })));
                moved += touched.moves.len() as u64;
                planner.change(Change::Node(name, Some(node())));
            }
            Ok(moved.max(1))
        }
    };
    bench.compare(
        lost,
        "address moved",
        Goal::ratio(1.3),
        Side::new("with 100,000 policies", lose(large)),
        Side::new("with 1,000 policies", lose(small)),
    )
}

fn world(policies: u64) -> World {
    let first = Ipv4Addr::new(10, 0, 0, 0).to_bits();
    let range = format!("{}-{}", Ipv4Addr::from_bits(first), Ipv4Addr::from_bits(first + ADDRESSES - 1));
    let gateway = Gateway {
        uid: "gateway".into(),
        pool: Pool::parse(&[range.as_str()], &[]).expect("a range"),
        default: Eip { v4: Some(Ipv4Addr::from_bits(first)), v6: None },
        selector: Selector { labels: labels(), expressions: Vec::new() },
        mode: NodeMode::Average,
        exclusive: false,
    };
    let name = |number: u64| PolicyName {
        namespace: Some(format!("ns{}", number % 100).into()),
        name: format!("p{number}").into(),
    };
    World {
        seed: 7,
        gateways: [("eg1".into(), gateway)].into(),
        policies: (0..policies).map(|number| (name(number), policy(number))).collect(),
        nodes: (0..NODES).map(|number| (node_name(number), node())).collect(),
        ..World::default()
    }
}

fn policy(number: u64) -> Policy {
    Policy {
        uid: format!("uid{number}").into(),
        gateway: "eg1".into(),
        created: i64::try_from(number).unwrap_or(i64::MAX),
        request: AddressRequest::FromPool(AllocationMode::PreferUnallocated),
        refused: false,
    }
}

fn node_name(number: u32) -> std::sync::Arc<str> {
    format!("n{number}").into()
}

fn node() -> Node {
    Node { labels: labels(), ready: true, capacity: None }
}

fn labels() -> Labels {
    [("egress", "true")].into_iter().collect()
}

/// 800 policies, each with an address of its own, created at once.
fn burst(bench: &mut Bench, runtime: &Runtime, plane: &ControlPlane) -> anyhow::Result<()> {
    let client = plane.client();
    runtime.block_on(cluster(&client, 3))?;
    let agents = Process::start(client.clone(), process_options(), |ctx, _| agents::start(ctx))?;
    let operator = Operator::start(plane.kubeconfig_path(), &[])?;
    let before = operator.writes()?;
    let began = (Instant::now(), operator.cpu_seconds()?);
    runtime.block_on(async {
        let policies: Api<EgressPolicy> = Api::namespaced(client.clone(), "default");
        create_policies(&client, "default", BURST).await?;
        let limit = Instant::now() + Duration::from_mins(3);
        loop {
            let all = policies.list(&ListParams::default()).await?;
            let ready = all.iter().filter(|policy| is_ready(policy)).count();
            if ready == BURST {
                return anyhow::Ok(());
            }
            ensure!(Instant::now() < limit, "only {ready} of {BURST} policies are ready");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })?;
    let (wall, cpu) = (began.0.elapsed().as_secs_f64(), operator.cpu_seconds()? - began.1);
    // What is still to be shown of it comes within a second or two.
    std::thread::sleep(Duration::from_secs(3));
    let made = operator.writes()? - before;
    // A claim and a status for each, and the gateway shown once.
    let needed = f64::from(u32::try_from(2 * BURST + 1)?);
    ensure!(operator.leads()?, "the lease was lost");
    bench.count(BURST_CPU, "s", Goal::value(8.0), cpu)?;
    bench.count(BURST_READY, "s", Goal::value(60.0), wall)?;
    bench.count(BURST_WRITES, "", Goal::value(1.1), made / needed)?;
    runtime.block_on(agents.stop())?;
    Ok(())
}

/// Resident bytes of an operator with these flags after it has written every status of many objects.
fn memory(runtime: &Runtime, flags: &[&str]) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    let options = cluster::Options {
        run_elsewhere: None,
        listen: ([127, 0, 0, 1], 0).into(),
        data_dir: None,
        kubeconfig: kubeconfig.clone(),
        nodes: 0,
        network: cluster::Network::number(0),
    };
    let server = runtime.block_on(Cluster::start(options))?;
    let client = server.client();
    runtime.block_on(install::definitions(&client))?;
    runtime.block_on(cluster(&client, 3))?;
    let agents = Process::start(client.clone(), process_options(), |ctx, _| agents::start(ctx))?;
    runtime.block_on(policies_and_pods(&client))?;
    let operator = Operator::start(&kubeconfig, flags)?;
    let limit = Instant::now() + Duration::from_mins(10);
    let mut before = 0.0;
    loop {
        std::thread::sleep(Duration::from_secs(5));
        let writes = operator.writes()?;
        if writes > 20_000.0 && writes - before < 1.0 {
            break;
        }
        ensure!(Instant::now() < limit, "the operator did not come to rest: {writes} writes");
        before = writes;
    }
    let resident = operator.resident()?;
    drop(operator);
    runtime.block_on(agents.stop())?;
    runtime.block_on(server.stop());
    Ok(resident)
}

/// 100 namespaces with 100 policies and 200 pods each.
async fn policies_and_pods(client: &Client) -> anyhow::Result<()> {
    for number in 0..100 {
        let namespace = builders::namespace(&format!("ns{number}")).build();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        create_policies(client, &format!("ns{number}"), 100).await?;
    }
    let pods = (0..20_000).map(|number| {
        let (namespace, client) = (format!("ns{}", number % 100), client.clone());
        async move {
            let pod = builders::pod(&namespace, &format!("pod{number}"))
                .label("app", &format!("p{}", number / 200))
                .on("n1")
                .ip(&format!("10.244.{}.{}", number / 250, number % 250))
                .build();
            builders::create(&Api::<Pod>::namespaced(client, &namespace), &pod).await.map(drop)
        }
    });
    stream::iter(pods).buffer_unordered(32).try_collect::<()>().await
}

/// Gateway nodes, and a gateway with 1,000 addresses.
async fn cluster(client: &Client, nodes: u32) -> anyhow::Result<()> {
    for number in 1..=nodes {
        let address = IpAddr::V4(Ipv4Addr::new(172, 20, 0, u8::try_from(number)?));
        let node = builders::node(&format!("n{number}")).label("egress", "true").address(&address.to_string()).build();
        builders::create(&Api::all(client.clone()), &node).await?;
    }
    let namespace = builders::namespace("portolan").build();
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let gateway = json!({ "metadata": { "name": "eg1" }, "spec": {
        "ippools": { "ipv4": ["10.6.0.0-10.6.3.231"] },
        "nodeSelector": { "selector": { "matchLabels": { "egress": "true" } } }
    } });
    let gateway: EgressGateway = serde_json::from_value(gateway)?;
    Api::all(client.clone()).create(&PostParams::default(), &gateway).await?;
    Ok(())
}

async fn create_policies(client: &Client, namespace: &str, count: usize) -> anyhow::Result<()> {
    let policies: Api<EgressPolicy> = Api::namespaced(client.clone(), namespace);
    let all = (0..count).map(|number| {
        let policies = policies.clone();
        async move {
            let object = json!({ "metadata": { "name": format!("p{number}") }, "spec": {
                "egressGatewayName": "eg1", "egressIP": { "allocatorPolicy": "rr" },
                "appliedTo": { "podSelector": { "matchLabels": { "app": format!("p{number}") } } }
            } });
            let policy: EgressPolicy = serde_json::from_value(object)?;
            policies.create(&PostParams::default(), &policy).await?;
            anyhow::Ok(())
        }
    });
    stream::iter(all).buffer_unordered(32).try_collect::<()>().await
}

fn is_ready(policy: &EgressPolicy) -> bool {
    let conditions = policy.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn process_options() -> Options {
    Options {
        election: None,
        admin_listen: ([127, 0, 0, 1], 0).into(),
        drain: Duration::from_secs(5),
        instance: "bench".to_owned(),
    }
}

/// The operator as users run it.
struct Operator {
    program: Program,
    admin: ReservedAddress,
    _folder: tempfile::TempDir,
}

impl Operator {
    fn start(kubeconfig: &Path, flags: &[&str]) -> anyhow::Result<Self> {
        let admin = ReservedAddress::new()?;
        let folder = tempfile::tempdir()?;
        let kubeconfig = kubeconfig.display().to_string();
        let arguments = ["operator", "--kubeconfig", &kubeconfig, "--admin-listen", &admin.address().to_string()];
        let arguments: Vec<String> = arguments.iter().chain(flags).map(|word| (*word).to_owned()).collect();
        let portolan = Path::new(env!("CARGO_BIN_EXE_portolan"));
        let operator =
            Self { program: Program::start("portolan", portolan, &arguments, folder.path())?, admin, _folder: folder };
        let limit = Instant::now() + Duration::from_mins(2);
        while !operator.leads().unwrap_or(false) {
            ensure!(Instant::now() < limit, "the operator does not lead: {}", operator.program.log_tail());
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(operator)
    }

    fn leads(&self) -> anyhow::Result<bool> {
        Ok(self.metric("portolan_runtime_leads")? > 0.5)
    }

    /// A metric without labels.
    fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let text = self.metrics()?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.with_context(|| format!("the operator has no metric {name}"))
    }

    /// Writes that went through, events aside.
    fn writes(&self) -> anyhow::Result<f64> {
        let text = self.metrics()?;
        let lines = text
            .lines()
            .filter(|line| line.starts_with("portolan_runtime_writes_total{") && line.contains("outcome=\"ok\""));
        Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    fn metrics(&self) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(self.admin.address())?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.program.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().context("a stat line")?.split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        Ok(ticks / 100.0)
    }

    fn resident(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.program.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("a resident size")?;
        let kib: f64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
        Ok(kib * 1024.0)
    }
}
