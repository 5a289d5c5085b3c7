//! Further clusters in this process, joined to the main one as RemoteClusters: what the mirror reads in `portolan up`.
//!
//! A remote is out of reach while its RemoteCluster carries the annotation [`STOPPED`]: its API server ends, and returns
//! on the same port and with the same objects.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use kube::api::DynamicObject;
use kube::{Client, ResourceExt as _};
use portolan_api::mirror::RemoteCluster;
use portolan_control::install;
use portolan_control::runtime::app::Ctx;
use portolan_control::runtime::reconcile::{Next, Reconciler};
use portolan_control::runtime::store::{Key, Store};
use portolan_control::runtime::watch::Selection;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::cluster::{self, Cluster, Network};
use crate::seeds;

/// On a RemoteCluster, with value `true`: its API server is stopped.
pub const STOPPED: &str = "simulator.portolan.dev/stopped";

/// Before a remote that did not start is tried again, as when its port was taken meanwhile.
const RETRY: Duration = Duration::from_secs(1);

/// How remotes run.
#[derive(Debug, Clone)]
pub struct Options {
    /// At most 5: so many networks there are besides that of the main cluster.
    pub count: u8,
    /// Simulated nodes of each.
    pub nodes: usize,
    /// The objects of each are kept in a folder below.
    pub folder: PathBuf,
    /// The main cluster's kubeconfig: theirs are written beside it.
    pub kubeconfig: PathBuf,
    /// Applied to each when it starts for the first time.
    pub objects: Vec<DynamicObject>,
}

/// Why the remotes did not start, or were not joined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("starting `{remote}` failed: {cause}")]
    Start { remote: String, cause: cluster::Error },
    #[error("`{remote}`: {cause}")]
    Install { remote: String, cause: install::Error },
    #[error("reading {} failed: {cause}", path.display())]
    Kubeconfig { path: PathBuf, cause: std::io::Error },
    #[error(transparent)]
    Seeds(#[from] seeds::Error),
}

/// Running remotes; [`Remotes::stop`] shuts them down gracefully.
pub struct Remotes {
    all: Arc<Mutex<Vec<Remote>>>,
}

struct Remote {
    name: String,
    options: cluster::Options,
    /// None while it is stopped.
    running: Option<Cluster>,
}

impl Remotes {
    /// Starts `remote-1`, `remote-2` and so on, each with nodes and objects.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let mut all = Vec::new();
        for number in 1..=options.count {
            all.push(Remote::start(number, &options).await?);
        }
        Ok(Self { all: Arc::new(Mutex::new(all)) })
    }

    /// Declares them in the main cluster when they start for the first time; Secrets in this namespace, the operator's,
    /// have their credentials.
    pub async fn join(&self, client: &Client, namespace: &str) -> Result<(), Error> {
        for remote in self.all.lock().await.iter() {
            let path = &remote.options.kubeconfig;
            let kubeconfig = std::fs::read(path);
            let kubeconfig = kubeconfig.map_err(|cause| Error::Kubeconfig { path: path.clone(), cause })?;
            let folder = remote.options.data_dir.as_deref();
            let mut objects = remote.credentials(namespace, kubeconfig);
            if seeds::are_due(folder) {
                objects.push(remote.declared());
            }
            let failed = |cause| Error::Install { remote: remote.name.clone(), cause };
            install::objects(client, objects).await.map_err(failed)?;
            seeds::done(folder)?;
        }
        Ok(())
    }

    /// Starts one loop that stops and starts them as the main cluster's RemoteClusters say.
    pub fn follow(&self, ctx: &Ctx) {
        let mut watches = ctx.watches();
        let follower = Follower { declared: watches.add(Selection::default()), all: self.all.clone() };
        ctx.tasks.spawn("simulated remotes", ctx.reconciles("remotes").run(watches, follower));
    }

    /// The files with their kubeconfigs, in order.
    pub async fn kubeconfigs(&self) -> Vec<PathBuf> {
        self.all.lock().await.iter().map(|remote| remote.options.kubeconfig.clone()).collect()
    }

    /// Stops all of them.
    pub async fn stop(self) {
        for remote in self.all.lock().await.iter_mut() {
            remote.stop().await;
        }
    }
}

impl Remote {
    async fn start(number: u8, options: &Options) -> Result<Self, Error> {
        let name = format!("remote-{number}");
        let mut cluster_options = cluster::Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            data_dir: Some(options.folder.join(&name)),
            kubeconfig: beside(&options.kubeconfig, &name),
            nodes: options.nodes,
            network: Network::number(number),
            run_elsewhere: None,
        };
        let cluster = Cluster::start(cluster_options.clone()).await;
        let cluster = cluster.map_err(|cause| Error::Start { remote: name.clone(), cause })?;
        cluster_options.listen = cluster.address();
        if seeds::are_due(cluster_options.data_dir.as_deref()) {
            let installed = install::objects(&cluster.client(), options.objects.clone()).await;
            installed.map_err(|cause| Error::Install { remote: name.clone(), cause })?;
        }
        Ok(Self { name, options: cluster_options, running: Some(cluster) })
    }

    /// What the main cluster connects with: another port after each start.
    fn credentials(&self, namespace: &str, kubeconfig: Vec<u8>) -> Vec<DynamicObject> {
        let objects = [
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": { "name": self.name, "namespace": namespace },
                "data": { "kubeconfig": ByteString(kubeconfig) },
            }),
        ];
        objects.map(object).into()
    }

    /// What makes it a remote of the main cluster.
    fn declared(&self) -> DynamicObject {
        let name = &self.name;
        // All remotes have the same Services, and one name has one mirror.
        let naming = if name == "remote-1" { "Same" } else { "Suffix" };
        object(json!({
            "apiVersion": "portolan.dev/v1alpha1", "kind": "RemoteCluster", "metadata": { "name": name },
            "spec": {
                "credentials": { "kubeconfigSecret": { "name": name } },
                "addresses": { "allowedCIDRs": [self.options.network.nodes] },
                "naming": naming,
            },
        }))
    }

    async fn stop(&mut self) {
        if let Some(cluster) = self.running.take() {
            cluster.stop().await;
        }
    }

    async fn set_running(&mut self, wanted: bool) -> Result<(), cluster::Error> {
        if wanted && self.running.is_none() {
            self.running = Some(Cluster::start(self.options.clone()).await?);
            tracing::info!(remote = self.name, "started again");
        } else if !wanted && self.running.is_some() {
            self.stop().await;
            tracing::info!(remote = self.name, "stopped, as annotation {STOPPED} says");
        }
        Ok(())
    }
}

fn object(object: Value) -> DynamicObject {
    serde_json::from_value(object).expect("it has a kind and a name")
}

/// `portolan-remote-1.kubeconfig` beside `portolan.kubeconfig`.
fn beside(kubeconfig: &Path, remote: &str) -> PathBuf {
    let part = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let stem = part(kubeconfig.file_stem()).unwrap_or_default();
    let extension = part(kubeconfig.extension()).map(|extension| format!(".{extension}")).unwrap_or_default();
    kubeconfig.with_file_name(format!("{stem}-{remote}{extension}"))
}

struct Follower {
    declared: Store<RemoteCluster>,
    all: Arc<Mutex<Vec<Remote>>>,
}

impl Reconciler for Follower {
    async fn reconcile(&mut self) -> Next {
        drop(self.declared.take_changes());
        let mut next = Next::OnChange;
        for remote in self.all.lock().await.iter_mut() {
            let declared = self.declared.get(&Key::of_cluster(&remote.name));
            let is_stopped = declared.is_some_and(|one| one.annotations().get(STOPPED).is_some_and(|it| it == "true"));
            if let Err(problem) = remote.set_running(!is_stopped).await {
                tracing::warn!(remote = remote.name, %problem, "it did not start and is tried again");
                next = Next::After(RETRY);
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeconfigs_are_beside_that_of_the_main_cluster() {
        for (main, remote) in
            [("portolan.kubeconfig", "portolan-remote-1.kubeconfig"), ("/tmp/a.b/config", "/tmp/a.b/config-remote-1")]
        {
            assert_eq!(beside(Path::new(main), "remote-1"), Path::new(remote));
        }
    }
}
