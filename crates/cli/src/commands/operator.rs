//! `portolan operator`: the control plane against a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use portolan_control::runtime::app::{self, Options, Process};
use portolan_control::runtime::{lease, webhook};
use portolan_control::{egress, mesh};
use prometheus_client::registry::Registry;

use crate::cli::Program;
use crate::cluster::ClusterArgs;
use crate::logs;
use crate::outcome::{Exit, Failure};

/// Run the control plane against a cluster
///
/// Each capability watches its objects, plans, and writes what differs; of several replicas one leads and
/// writes. The kinds must be installed: portolan crds | kubectl apply --server-side -f -
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan operator
  portolan operator --capabilities mesh --mesh-deny-endpoint 10.0.0.0/24
  portolan operator --lease-namespace portolan --admin-listen 0.0.0.0:9090")]
pub(crate) struct Args {
    /// Run only these capabilities; egress and mesh are built in
    #[arg(
        long,
        env = "PORTOLAN_CAPABILITIES",
        hide_env_values = true,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "egress,mesh",
        help_heading = "Capabilities"
    )]
    capabilities: Vec<Capability>,

    /// The namespace of the Lease that replicas elect their leader on
    #[arg(
        long,
        env = "PORTOLAN_LEASE_NAMESPACE",
        value_name = "NAME",
        default_value = "portolan",
        help_heading = "Process"
    )]
    lease_namespace: String,

    /// Who this replica is in the Lease and in events; without it the host's name
    #[arg(long, env = "PORTOLAN_IDENTITY", value_name = "NAME", help_heading = "Process")]
    identity: Option<String>,

    /// Serve /livez, /readyz and /metrics here
    #[arg(
        long,
        env = "PORTOLAN_ADMIN_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9090",
        help_heading = "Process"
    )]
    admin_listen: SocketAddr,

    #[command(flatten)]
    webhook: WebhookArgs,
    #[command(flatten)]
    egress: EgressArgs,
    #[command(flatten)]
    mesh: MeshArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Where API servers reach the admission webhook.
#[derive(Debug, clap::Args)]
struct WebhookArgs {
    /// Serve the admission webhook here; without it there is none, and controllers validate alone
    #[arg(long = "webhook-listen", env = "PORTOLAN_WEBHOOK_LISTEN", value_name = "ADDRESS", help_heading = "Webhook")]
    listen: Option<SocketAddr>,

    /// The names under which API servers call the webhook
    #[arg(
        long = "webhook-names",
        env = "PORTOLAN_WEBHOOK_NAMES",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "portolan-webhook.portolan.svc",
        help_heading = "Webhook"
    )]
    names: Vec<String>,

    /// The Secret, in the Lease's namespace, that holds the webhook's certificate authority; made if missing
    #[arg(
        long = "webhook-secret",
        env = "PORTOLAN_WEBHOOK_SECRET",
        value_name = "NAME",
        default_value = "portolan-webhook",
        help_heading = "Webhook"
    )]
    secret: String,
}

impl WebhookArgs {
    fn config(self, namespace: &str, capabilities: &[Capability]) -> Option<webhook::Config> {
        let Self { listen, names, secret } = self;
        let configured = |capability, name: &str| capabilities.contains(&capability).then(|| name.to_owned());
        let egress = configured(Capability::Egress, egress::webhooks::NAME);
        let mesh = configured(Capability::Mesh, mesh::webhooks::NAME);
        Some(webhook::Config {
            listen: listen?,
            names,
            client_ca: None,
            secret_namespace: namespace.to_owned(),
            secret_name: secret,
            validating: egress.iter().cloned().chain(mesh).collect(),
            mutating: egress.into_iter().collect(),
            schedule: webhook::Schedule::default(),
            linger: LINGER,
        })
    }
}

/// How egress runs.
#[derive(Debug, clap::Args)]
struct EgressArgs {
    /// Refuse IPv4 pools
    #[arg(long, env = "PORTOLAN_EGRESS_NO_IPV4", help_heading = "Egress")]
    egress_no_ipv4: bool,

    /// Refuse IPv6 pools
    #[arg(long, env = "PORTOLAN_EGRESS_NO_IPV6", help_heading = "Egress")]
    egress_no_ipv6: bool,
}

/// How the mesh runs.
#[derive(Debug, clap::Args)]
struct MeshArgs {
    /// The suffix of full names in the cluster
    #[arg(
        long,
        env = "PORTOLAN_CLUSTER_DOMAIN",
        value_name = "DOMAIN",
        default_value = "cluster.local",
        help_heading = "Mesh"
    )]
    cluster_domain: String,

    /// Whether names and placement may cross namespaces
    #[arg(
        long,
        env = "PORTOLAN_MESH_CROSS_NAMESPACE",
        value_name = "WHEN",
        default_value = "grant",
        help_heading = "Mesh"
    )]
    mesh_cross_namespace: CrossNamespace,

    /// Refuse endpoints in this range; link-local addresses and the API server's are refused anyway
    #[arg(
        long,
        env = "PORTOLAN_MESH_DENY_ENDPOINT",
        value_name = "CIDR",
        value_delimiter = ',',
        help_heading = "Mesh"
    )]
    mesh_deny_endpoint: Vec<mesh::IpNet>,

    /// Take over what the shipped operator of l7mp left on proxies
    #[arg(
        long,
        env = "PORTOLAN_MESH_ADOPT_LEGACY",
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set,
        help_heading = "Mesh"
    )]
    mesh_adopt_legacy: bool,

    /// The Secret, in each namespace with proxies, whose `token` is sent to them
    #[arg(
        long,
        env = "PORTOLAN_MESH_PROXY_TOKEN_SECRET",
        value_name = "NAME",
        default_value = "portolan-proxy",
        help_heading = "Mesh"
    )]
    mesh_proxy_token_secret: String,

    /// Speak TLS to proxies; this authority signs their certificates, each for POD.NAMESPACE.pod
    #[arg(long, env = "PORTOLAN_MESH_PROXY_CA", value_name = "FILE", help_heading = "Mesh")]
    mesh_proxy_ca: Option<PathBuf>,

    /// Bring this certificate to proxies that ask for one
    #[arg(
        long,
        env = "PORTOLAN_MESH_PROXY_CERT",
        value_name = "FILE",
        requires = "mesh_proxy_ca",
        requires = "mesh_proxy_key",
        help_heading = "Mesh"
    )]
    mesh_proxy_cert: Option<PathBuf>,

    /// The certificate's key
    #[arg(
        long,
        env = "PORTOLAN_MESH_PROXY_KEY",
        value_name = "FILE",
        requires = "mesh_proxy_cert",
        help_heading = "Mesh"
    )]
    mesh_proxy_key: Option<PathBuf>,
}

/// Whether names may cross namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CrossNamespace {
    /// With the other side's consent
    Grant,
    /// Never
    Deny,
    /// Always, as with the shipped operator
    Open,
}

impl MeshArgs {
    fn options(self) -> Result<mesh::Options, mesh::TlsFileError> {
        let Self {
            cluster_domain,
            mesh_cross_namespace,
            mesh_deny_endpoint,
            mesh_adopt_legacy,
            mesh_proxy_token_secret,
            mesh_proxy_ca,
            mesh_proxy_cert,
            mesh_proxy_key,
        } = self;
        let client =
            mesh_proxy_cert.zip(mesh_proxy_key).map(|(certificate, key)| mesh::ClientCertificate { certificate, key });
        let proxy_tls = mesh_proxy_ca.map(|ca| mesh::TlsFiles { ca, client }.read()).transpose()?;
        let cross_namespace = match mesh_cross_namespace {
            CrossNamespace::Grant => mesh::CrossNamespace::Grant,
            CrossNamespace::Deny => mesh::CrossNamespace::Deny,
            CrossNamespace::Open => mesh::CrossNamespace::Open,
        };
        Ok(mesh::Options {
            settings: mesh::Settings {
                domain: mesh::ClusterDomain::new(&cluster_domain),
                cross_namespace,
                denied_endpoints: mesh_deny_endpoint,
                ..mesh::Settings::default()
            },
            adopt_legacy: mesh_adopt_legacy,
            token_secret: mesh_proxy_token_secret,
            proxy_tls,
            ..mesh::Options::default()
        })
    }
}

/// API servers learn within this time that a replica goes.
const LINGER: Duration = Duration::from_secs(3);

/// A way through the edge that the operator can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Capability {
    /// In: public addresses for services behind an Envoy edge
    Gateway,
    /// Out: fixed source addresses for pods
    Egress,
    /// Out, on a cloud: source addresses attached to machines
    Ipam,
    /// Across: services of one cluster seen from another
    Mirror,
    /// Through: routes between protocols inside the cluster
    Mesh,
}

pub(crate) fn run(args: Args, program: Program) -> Result<Exit, Failure> {
    let Args { capabilities, lease_namespace, identity, admin_listen, webhook, egress, mesh, cluster } = args;
    built_in(&capabilities, program)?;
    let EgressArgs { egress_no_ipv4, egress_no_ipv6 } = egress;
    if egress_no_ipv4 && egress_no_ipv6 {
        let what = "--egress-no-ipv4 and --egress-no-ipv6 together leave no family";
        return Err(Failure::new(Exit::Usage, what, format!("see its flags: {} operator --help", program.spoken())));
    }
    let families = egress::Families { ipv4: !egress_no_ipv4, ipv6: !egress_no_ipv6 };
    let identity = identity.unwrap_or_else(hostname);
    let webhook = webhook.config(&lease_namespace, &capabilities);
    let options = Options {
        election: Some(lease::Options {
            namespace: lease_namespace,
            name: "portolan-operator".to_owned(),
            identity: format!("{identity}-{}", std::process::id()),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }),
        admin_listen,
        drain: Duration::from_secs(10),
        instance: identity,
    };
    logs::start();
    let failed =
        |what: String| Failure::new(Exit::No, what, format!("see its flags: {} operator --help", program.spoken()));
    let runtime = tokio::runtime::Runtime::new().map_err(|cause| failed(cause.to_string()))?;
    runtime.block_on(async {
        let (client, address) = cluster.client_and_address().await?;
        let runs = |capability| capabilities.contains(&capability);
        let egress = egress::Options { families, ..egress::Options::default() };
        let mut mesh = mesh.options().map_err(|cause| failed(cause.to_string()))?;
        mesh.settings.api_servers.extend(address);
        let parts = Parts {
            egress: runs(Capability::Egress).then_some(egress),
            mesh: runs(Capability::Mesh).then_some(mesh),
            webhook,
        };
        let mut refused = None;
        let start = |ctx: &app::Ctx, registry: &mut Registry| refused = parts.start(ctx, registry).err();
        let process = Process::start(client, options, start).map_err(|cause| failed(cause.to_string()))?;
        if let Some(cause) = refused {
            return Err(failed(cause.to_string()));
        }
        process.run().await.map_err(|cause| failed(cause.to_string()))?;
        Ok(Exit::Yes)
    })
}

/// What is asked for.
struct Parts {
    egress: Option<egress::Options>,
    mesh: Option<mesh::Options>,
    webhook: Option<webhook::Config>,
}

impl Parts {
    /// Starts the capabilities, and the webhook with what they have to say there.
    fn start(self, ctx: &app::Ctx, registry: &mut Registry) -> Result<(), webhook::Error> {
        let Self { egress, mesh, webhook } = self;
        let mut handlers = webhook::Webhooks::new();
        if let Some(options) = egress {
            let cache = egress::start(ctx, registry, options);
            handlers = egress::webhooks::handlers(handlers, &cache, options);
        }
        if let Some(options) = mesh {
            let cache = mesh::start(ctx, registry, options.clone());
            handlers = mesh::webhooks::handlers(handlers, &cache, &options);
        }
        let Some(config) = webhook else { return Ok(()) };
        let host = webhook::Host { tasks: &ctx.tasks, readiness: &ctx.readiness, registry };
        webhook::run(&ctx.unfenced, config, handlers, host).map(drop)
    }
}

fn built_in(capabilities: &[Capability], program: Program) -> Result<(), Failure> {
    let is_built_in = |capability: Capability| matches!(capability, Capability::Egress | Capability::Mesh);
    let absent = |capability: &&Capability| !is_built_in(**capability) && capabilities.contains(capability);
    let asked: Vec<String> = Capability::value_variants()
        .iter()
        .filter(absent)
        .map(|capability| format!("`{}`", name(*capability)))
        .collect();
    let what = match &asked[..] {
        [] => return Ok(()),
        [one] => format!("capability {one} is"),
        several => format!("capabilities {} are", several.join(", ")),
    };
    Err(Failure::not_built_in(&what, program))
}

fn name(capability: Capability) -> String {
    capability.to_possible_value().map(|value| value.get_name().to_owned()).expect("no capability is hidden")
}

/// Pods are named after themselves; elsewhere any name will do, as the process id stands beside it.
fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "operator".to_owned(), |name| name.trim().to_owned())
}
