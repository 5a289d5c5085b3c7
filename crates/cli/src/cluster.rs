//! Which cluster a command speaks to.

use std::net::IpAddr;
use std::path::PathBuf;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::outcome::{Exit, Failure};

/// The flags that choose a cluster, as kubectl has them.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Read this kubeconfig; without it KUBECONFIG, ~/.kube/config, or the pod's own service account
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    kubeconfig: Option<PathBuf>,

    /// Use this context of the kubeconfig
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    context: Option<String>,
}

impl ClusterArgs {
    /// A client for the cluster; requests are not repeated behind our back.
    pub(crate) async fn client(self) -> Result<Client, Failure> {
        self.client_and_address().await.map(|(client, _)| client)
    }

    /// The same, with the API server's address if it is known by one.
    pub(crate) async fn client_and_address(self) -> Result<(Client, Option<IpAddr>), Failure> {
        let Self { kubeconfig, context } = self;
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let config = match kubeconfig {
            Some(file) => {
                let read = Kubeconfig::read_from(&file).map_err(|cause| unreadable(&cause))?;
                Config::from_custom_kubeconfig(read, &options).await
            }
            None if options.context.is_some() => Config::from_kubeconfig(&options).await,
            None => return connect(Config::infer().await.map_err(|cause| unreadable(&cause))?),
        };
        connect(config.map_err(|cause| unreadable(&cause))?)
    }
}

fn connect(mut config: Config) -> Result<(Client, Option<IpAddr>), Failure> {
    config.default_retry = false;
    let host = config.cluster_url.host().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse().ok();
    Ok((Client::try_from(config).map_err(|cause| unreadable(&cause))?, address))
}

fn unreadable(cause: &impl std::fmt::Display) -> Failure {
    Failure::new(
        Exit::Unreachable,
        format!("no cluster to speak to: {cause}"),
        "name a kubeconfig with --kubeconfig FILE, or start a cluster of your own: portolan up",
    )
}
