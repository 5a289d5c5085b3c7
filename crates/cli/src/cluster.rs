//! Which cluster a command uses.

use std::net::IpAddr;
use std::path::PathBuf;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use portolan_control::runtime::reachability;

use crate::outcome::{Exit, Failure};

/// The flags that choose a cluster, as kubectl has them.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Path of the kubeconfig; by default KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig to use
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    context: Option<String>,
}

impl ClusterArgs {
    /// A client for the cluster; it does not retry by itself.
    pub(crate) async fn client(self) -> Result<Client, Failure> {
        self.client_and_address().await.map(|(client, _)| client)
    }

    /// The same, with the API server's address if its URL has one.
    pub(crate) async fn client_and_address(self) -> Result<(Client, Option<IpAddr>), Failure> {
        let Self { kubeconfig, context } = self;
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let config = match kubeconfig {
            Some(file) => {
                let read = Kubeconfig::read_from(&file).map_err(|cause| unreadable(&cause))?;
                Config::from_custom_kubeconfig(read, &options).await
            }
            None if options.context.is_some() => Config::from_kubeconfig(&options).await,
            None => return connect(Config::infer().await.map_err(|cause| nowhere(&cause))?),
        };
        connect(config.map_err(|cause| unreadable(&cause))?)
    }
}

fn connect(mut config: Config) -> Result<(Client, Option<IpAddr>), Failure> {
    config.default_retry = false;
    let host = config.cluster_url.host().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse().ok();
    Ok((reachability::client(config).map_err(|cause| unreadable(&cause))?, address))
}

/// There is neither a kubeconfig nor a pod's service account.
fn nowhere(cause: &impl std::fmt::Display) -> Failure {
    Failure::new(
        Exit::Usage,
        format!("neither a kubeconfig nor the credentials of a pod were found: {cause}"),
        "name a kubeconfig with --kubeconfig FILE, or start a local API server: portolan up",
    )
}

fn unreadable(cause: &impl std::fmt::Display) -> Failure {
    Failure::new(
        Exit::Unreachable,
        format!("no cluster configured: {cause}"),
        "name a kubeconfig with --kubeconfig FILE, or start a local API server: portolan up",
    )
}
