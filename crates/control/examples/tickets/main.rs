//! The smallest complete capability on the runtime: read `capability/` before you write one. The tests of the runtime
//! run this program as two replicas that are killed. `portolan-tickets`, an example of the crate `portolan`, has all
//! commands of `portolan` with this capability as one more line in the table.

mod capability;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use portolan_control::runtime::app::{self, Options};
use portolan_control::runtime::capability::Platform;
use portolan_control::runtime::lease;

use capability::CAPABILITY;

fn main() -> anyhow::Result<()> {
    let [kubeconfig, namespace, identity] = arguments()?;
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::DEBUG).init();
    tokio::runtime::Runtime::new()?.block_on(operate(&kubeconfig, namespace, identity))
}

fn arguments() -> anyhow::Result<[String; 3]> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    arguments.try_into().ok().context("usage: tickets KUBECONFIG NAMESPACE IDENTITY")
}

async fn operate(kubeconfig: &str, namespace: String, identity: String) -> anyhow::Result<()> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    let flags = (CAPABILITY.options)(clap::Command::new("tickets"));
    let flags = flags.try_get_matches_from(["tickets", "--tickets-namespace", &namespace])?;
    let starter = (CAPABILITY.configure)(&flags, &Platform::default())?;
    let election = lease::Options {
        namespace,
        name: "tickets".into(),
        identity: identity.clone(),
        duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(300),
    };
    let options = Options {
        election: Some(election),
        admin_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        drain: Duration::from_secs(5),
        instance: identity,
    };
    let client = kube::Client::try_from(config)?;
    let mut started = Ok(None);
    let start = |ctx: &app::Ctx, registry: &mut prometheus_client::registry::Registry| {
        started = portolan_control::start(vec![starter], None, ctx, registry);
    };
    let process = app::Process::start(client, options, start)?;
    started?;
    Ok(process.run().await?)
}
