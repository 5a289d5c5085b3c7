//! `portolan operator`: the control plane against a cluster.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use clap::ArgMatches;
use clap::builder::{PossibleValue, PossibleValuesParser};
use portolan_control::runtime::app::{Options, Process};
use portolan_control::runtime::capability::{Capability, CloudSource, OptionsError, Platform, Starter, default_names};
use portolan_control::runtime::{lease, webhook};

use crate::aws;
use crate::cluster::ClusterArgs;
use crate::help::change_arg;
use crate::logs;
use crate::outcome::{Exit, Failure};
use crate::program::Program;
use crate::programs::programs;

/// Run the control plane against a cluster
///
/// Each capability watches its objects, plans, and writes what differs. Of several replicas only the leader writes. The
/// custom resource definitions must be installed: portolan crds | kubectl apply --server-side -f -
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  portolan operator
  portolan operator --capabilities mesh --mesh-deny-endpoint 10.0.0.0/24
  portolan operator --lease-namespace portolan --admin-listen 0.0.0.0:9090")]
pub(crate) struct Args {
    #[command(flatten)]
    installation: InstallationArgs,

    /// Name of this replica in the Lease and in events; the host name by default
    #[arg(long, env = "PORTOLAN_IDENTITY", value_name = "NAME", help_heading = "Process")]
    identity: Option<String>,

    /// Address of /livez, /healthz, /readyz and /metrics
    #[arg(
        long,
        env = "PORTOLAN_ADMIN_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9090",
        help_heading = "Process"
    )]
    admin_listen: SocketAddr,

    /// What is logged, unless RUST_LOG says otherwise
    #[arg(long, env = "PORTOLAN_LOG_LEVEL", value_name = "LEVEL", default_value = "info", help_heading = "Process")]
    log_level: LogLevel,

    #[command(flatten)]
    webhook: WebhookArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What is logged.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum LogLevel {
    /// What happens
    Info,
    /// Also why
    Debug,
    /// Everything
    Trace,
}

impl From<LogLevel> for tracing::Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// Which operator is meant: the one to run, or one that is gone.
#[derive(Debug, clap::Args)]
pub(crate) struct InstallationArgs {
    /// Only these capabilities
    #[arg(
        long,
        env = "PORTOLAN_CAPABILITIES",
        hide_env_values = true,
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "Capabilities"
    )]
    pub(crate) capabilities: Vec<String>,

    /// Namespace of the Lease for leader election
    #[arg(
        long,
        env = "PORTOLAN_LEASE_NAMESPACE",
        value_name = "NAME",
        default_value = "portolan",
        help_heading = "Process"
    )]
    pub(crate) lease_namespace: String,

    /// Name of the Secret, in the Lease's namespace, with the webhook's CA; the operator creates it if missing
    #[arg(
        long,
        env = "PORTOLAN_WEBHOOK_SECRET",
        value_name = "NAME",
        default_value = "portolan-webhook",
        help_heading = "Webhook"
    )]
    pub(crate) webhook_secret: String,
}

/// How API servers reach the admission webhook.
#[derive(Debug, clap::Args)]
struct WebhookArgs {
    /// Address of the admission webhook; without it there is none, and objects are validated by the controllers only
    #[arg(long = "webhook-listen", env = "PORTOLAN_WEBHOOK_LISTEN", value_name = "ADDRESS", help_heading = "Webhook")]
    listen: Option<SocketAddr>,

    /// DNS names of the webhook, for its certificate
    #[arg(
        long = "webhook-names",
        env = "PORTOLAN_WEBHOOK_NAMES",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "portolan-webhook.portolan.svc",
        help_heading = "Webhook"
    )]
    names: Vec<String>,
}

impl WebhookArgs {
    fn config(self, namespace: &str, secret: String, capabilities: &[&Capability]) -> Option<webhook::Config> {
        let Self { listen, names } = self;
        let admissions = || capabilities.iter().filter_map(|capability| capability.admission);
        let validating = admissions().filter(|one| !one.validating.is_empty());
        let mutating = admissions().filter(|one| !one.mutating.is_empty());
        Some(webhook::Config {
            listen: listen?,
            names,
            client_ca: None,
            secret_namespace: namespace.to_owned(),
            secret_name: secret,
            validating: validating.map(|one| one.name.to_owned()).collect(),
            mutating: mutating.map(|one| one.name.to_owned()).collect(),
            schedule: webhook::Schedule::default(),
            linger: LINGER,
        })
    }
}

/// How long the webhook still answers after SIGTERM, while API servers learn that it is going away.
const LINGER: Duration = Duration::from_secs(3);

/// Adds the names of the capabilities, and their flags.
pub(crate) fn with_capabilities(command: clap::Command, table: &[&Capability]) -> clap::Command {
    let command = with_names(command, table, &default_names(table));
    table.iter().fold(command, |command, capability| (capability.options)(command))
}

/// Adds the names of the capabilities, some of which are the default.
pub(crate) fn with_names(command: clap::Command, table: &[&Capability], default: &[&str]) -> clap::Command {
    let values = table.iter().map(|one| PossibleValue::new(one.name).help(one.description));
    let values = PossibleValuesParser::new(values);
    let default = default.join(",");
    change_arg(command, "capabilities", |arg| arg.value_parser(values.clone()).default_value(default.clone()))
}

/// `flags` are those of the capabilities, as parsed.
pub(crate) fn run(args: Args, flags: &ArgMatches, table: &[&Capability], program: Program) -> Result<Exit, Failure> {
    let Args { installation, identity, admin_listen, log_level, webhook, cluster } = args;
    let InstallationArgs { capabilities, lease_namespace, webhook_secret } = installation;
    let chosen = chosen(table, &capabilities);
    let hint = || format!("see its usage: {} operator --help", program.command());
    let failed = |what: String| Failure::new(Exit::No, what, hint());
    // flags first: what is wrong with them does not need a cluster to be found
    configured(&chosen, flags, &Platform::default()).map_err(|cause| unusable(&cause, hint()))?;
    let identity = identity.unwrap_or_else(hostname);
    let webhook = webhook.config(&lease_namespace, webhook_secret, &chosen);
    let options = Options {
        election: Some(lease::Options::of_operator(
            lease_namespace.clone(),
            format!("{identity}-{}", std::process::id()),
        )),
        admin_listen,
        drain: Duration::from_secs(10),
        instance: identity,
    };
    logs::start(log_level.into());
    let runtime = tokio::runtime::Runtime::new().map_err(|cause| failed(cause.to_string()))?;
    runtime.block_on(async {
        let (client, api_server) = cluster.client_and_address().await?;
        let cloud = CloudSource::Aws(Box::new(aws::settings()));
        let folder = tempfile::Builder::new().prefix("portolan-").tempdir().ok();
        let programs = programs(None, folder.as_ref().map_or(Path::new("portolan"), |folder| folder.path()));
        let platform = Platform { api_server, loopback_pods: None, namespace: lease_namespace, cloud, programs };
        let starters = configured(&chosen, flags, &platform).map_err(|cause| unusable(&cause, hint()))?;
        let mut started = Ok(None);
        let process = Process::start(client, options, |ctx, registry| {
            started = portolan_control::start(starters, webhook, ctx, registry);
        });
        let process = process.map_err(|cause| failed(cause.to_string()))?;
        started.map_err(|cause| failed(cause.to_string()))?;
        process.run().await.map_err(|cause| failed(cause.to_string()))?;
        Ok(Exit::Yes)
    })
}

/// The capabilities of these names.
pub(crate) fn chosen<'a>(table: &[&'a Capability], names: &[String]) -> Vec<&'a Capability> {
    table.iter().copied().filter(|one| names.iter().any(|name| name == one.name)).collect()
}

fn configured(chosen: &[&Capability], flags: &ArgMatches, platform: &Platform) -> Result<Vec<Starter>, OptionsError> {
    chosen.iter().map(|capability| (capability.configure)(flags, platform)).collect()
}

fn unusable(cause: &OptionsError, hint: String) -> Failure {
    Failure::new(Exit::Usage, cause.to_string(), hint)
}

/// In a pod, its name. The process id makes it unique elsewhere.
pub(crate) fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "operator".to_owned(), |name| name.trim().to_owned())
}
