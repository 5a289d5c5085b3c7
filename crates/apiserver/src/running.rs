//! A running server: it listens, has a kubeconfig, and runs the controllers of a kube-controller-manager.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ApiServer;
use crate::auth::kubeconfig;
use crate::controllers::Controllers;
use crate::{auth, serve, store};

/// Options of a running server.
#[derive(Debug, Clone)]
pub struct Options {
    pub listen: SocketAddr,
    /// Keeps objects and certificates across restarts; without it everything is lost when the server stops.
    pub data_dir: Option<PathBuf>,
    /// The administrator's kubeconfig is written to this file.
    pub kubeconfig: PathBuf,
    /// Whether workloads create pods.
    pub workloads: bool,
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Serve(#[from] serve::Error),
    #[error(transparent)]
    Certificate(#[from] auth::authority::Error),
    #[error("writing the kubeconfig {} failed: {cause}", path.display())]
    Kubeconfig { path: PathBuf, cause: std::io::Error },
    #[error("{} is not a kubeconfig of this program, and is left as it is: name another file", path.display())]
    ForeignKubeconfig { path: PathBuf },
    #[error("starting a thread failed: {0}")]
    Thread(std::io::Error),
}

/// Its name in kubeconfigs.
const NAME: &str = "portolan";

/// A running server; [`Running::stop`] shuts it down gracefully.
pub struct Running {
    server: ApiServer,
    address: SocketAddr,
    url: String,
    stop: CancellationToken,
    tasks: TaskTracker,
    controllers: Option<JoinHandle<()>>,
}

impl Running {
    /// Opens the store, listens, writes the kubeconfig and starts the controllers; ready when it returns.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let Options { listen, data_dir, kubeconfig, workloads } = options;
        let server = match &data_dir {
            Some(folder) => ApiServer::open(folder).await?,
            None => ApiServer::memory().await,
        };
        let listener = serve::Server::bind(serve::Options { data_dir, ..serve::Options::new(listen) }).await?;
        let (address, reachable, url) = (listener.address(), listener.reachable(), listener.url());
        let authority = listener.authority().certificate().to_owned();
        let admin = listener.authority().client("portolan-admin", "system:masters", Timestamp::now())?;
        write(&kubeconfig, &kubeconfig::render(NAME, &url, &authority, &admin, server.token()))?;

        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(listener.run(server.clone(), stop.clone()));
        let controllers = Controllers { workloads, certificate: Some(authority), address: Some(reachable) };
        let controllers = start_controllers(&server, controllers, stop.clone())?;
        Ok(Self { server, address, url, stop, tasks, controllers: Some(controllers) })
    }

    /// The server itself.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// A client in this process, with all rights.
    pub fn client(&self) -> Client {
        self.server.client()
    }

    /// Where it listens; the port is the one it got if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL in its kubeconfig.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends watches, waits for other requests, stops the controllers and closes the store: everything acknowledged is
    /// kept, and the data folder is unlocked when this returns, even while clients are held.
    pub async fn stop(mut self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        while self.controllers.as_ref().is_some_and(|controllers| !controllers.is_finished()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.controllers = None;
        self.server.close().await;
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    let failed = |cause| Error::Kubeconfig { path: path.to_owned(), cause };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    if kubeconfig::write(path, NAME, text).map_err(failed)? {
        Ok(())
    } else {
        Err(Error::ForeignKubeconfig { path: path.to_owned() })
    }
}

/// The controllers have a thread of their own, so that they never delay a request.
fn start_controllers(
    server: &ApiServer,
    controllers: Controllers,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, Error> {
    let server = server.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Thread)?;
    let run = move || runtime.block_on(async { Box::pin(controllers.run(server.client(), stop)).await });
    std::thread::Builder::new().name("apiserver-controllers".to_owned()).spawn(run).map_err(Error::Thread)
}
