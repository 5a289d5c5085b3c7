//! A real Kubernetes control plane on loopback: etcd, kube-apiserver and kube-controller-manager.
//!
//! [`ControlPlane::shared`] is the one that the tests of a binary share; a test that breaks things starts its
//! own. Any number run side by side: each has its own folder, ports and certificates. The programs end when
//! the value drops, and when the test process dies in whatever way.
//!
//! No scheduler and no kubelet run: a Pod goes where its `nodeName` says, its status is what the test writes,
//! and it must be deleted with grace period 0; [`crate::FakeKubelet`] does all three. Install custom kinds early: the garbage collector takes up to
//! half a minute to notice a kind made after its start.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::Context;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, Config, ResourceExt, api::PostParams};

use self::{
    certificates::{Certificates, LOOPBACK_NAMES},
    folder::DataFolder,
    programs::{API_SERVER, ETCD, Layout},
    ready::Stage,
};
use crate::{
    Binaries, ReservedAddress,
    kubeconfig::kubeconfig,
    program::{Program, Signal},
};

pub(crate) mod certificates;
mod compaction;
pub(crate) mod folder;
mod programs;
mod ready;

type Shared = OnceLock<Result<ControlPlane, String>>;

fn started(shared: &'static Shared) -> &'static ControlPlane {
    let plane = shared.get_or_init(|| ControlPlane::start().map_err(|error| format!("{error:#}")));
    plane.as_ref().expect("a shared control plane starts")
}

/// What a control plane of one's own may have that the shared ones do not need.
#[derive(Debug, Default, Clone)]
pub struct Options {
    /// Whether Services get addresses of both families.
    pub dual_stack: bool,
    /// URL that is asked about bearer tokens, by TokenReview.
    pub token_webhook: Option<String>,
}

/// A running control plane; it ends when dropped.
pub struct ControlPlane {
    /// Dropped before the folder that they write to.
    programs: Vec<Program>,
    folder: DataFolder,
    certificates: Certificates,
    binaries: Binaries,
    config: Config,
    kubeconfig: PathBuf,
    ready_after: Duration,
    /// Of the API server and the controller manager.
    addresses: [ReservedAddress; 2],
    options: Options,
}

impl ControlPlane {
    /// Starts a control plane and waits until it is at work. Blocks, from any thread, with or without a runtime.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(Options::default())
    }

    /// [`ControlPlane::start`] with options.
    pub fn start_with(options: Options) -> anyhow::Result<Self> {
        Self::launch(&Binaries::locate()?, options).context("starting a Kubernetes control plane failed")
    }

    /// The control plane that the tests of this binary share, started by whoever asks first.
    ///
    /// # Panics
    /// When it does not start: there is nothing a test could do about it.
    pub fn shared() -> &'static Self {
        static SHARED: Shared = OnceLock::new();
        started(&SHARED)
    }

    /// Another one that tests of this binary share: for tests that need a cluster to themselves, so that two of them
    /// can run at a time.
    ///
    /// # Panics
    /// When it does not start.
    pub fn second_shared() -> &'static Self {
        static SHARED: Shared = OnceLock::new();
        started(&SHARED)
    }

    fn launch(binaries: &Binaries, options: Options) -> anyhow::Result<Self> {
        let addresses = [ReservedAddress::new()?, ReservedAddress::new()?];
        let [api_port, controller_port] = [addresses[0].port(), addresses[1].port()];
        let started = Instant::now();
        let deadline = started + ready::LIMIT;
        let (folder, certificates) = (DataFolder::new()?, Certificates::new(&LOOPBACK_NAMES.map(String::from))?);
        let server = format!("https://127.0.0.1:{api_port}");
        let config = certificates.admin_config(&server, &folder)?;
        let admin = kubeconfig(&server, Some(&certificates.ca), Some(&certificates.admin));
        let kubeconfig = folder.write("kubeconfig", &admin.to_string())?.into();

        let layout = Layout {
            binaries,
            folder: &folder,
            certificates: &certificates,
            api_port,
            controller_port,
            options: &options,
        };
        let mut programs = vec![layout.etcd()?, layout.api_server()?];
        ready::wait(Stage::ApiServer, &config, &mut programs, deadline)?;
        programs.push(layout.controller_manager()?);
        ready::wait(Stage::ControllerManager { port: controller_port }, &config, &mut programs, deadline)?;

        let (binaries, ready_after) = (binaries.clone(), started.elapsed());
        Ok(Self { programs, folder, certificates, binaries, config, kubeconfig, ready_after, addresses, options })
    }

    /// Kills etcd and the API server. The controller manager stays, and finds them when they are there again.
    pub fn kill_api_server(&mut self) {
        // The API server first: one without its store takes a minute to give up.
        self.programs.sort_by_key(|program| program.name() != API_SERVER);
        self.programs.retain(|program| ![API_SERVER, ETCD].contains(&program.name()));
    }

    /// Starts etcd and the API server after [`ControlPlane::kill_api_server`], on the same port and data, and waits until
    /// they are ready. Blocks.
    pub fn start_api_server(&mut self) -> anyhow::Result<()> {
        let [api_port, controller_port] = [self.addresses[0].port(), self.addresses[1].port()];
        let (binaries, folder, certificates) = (&self.binaries, &self.folder, &self.certificates);
        let layout = Layout { binaries, folder, certificates, api_port, controller_port, options: &self.options };
        self.programs.extend([layout.etcd()?, layout.api_server()?]);
        ready::wait(Stage::ApiServer, &self.config, &mut self.programs, Instant::now() + ready::LIMIT)
    }

    /// Stops the API server without ending it: connections stay, and nothing is answered. False lets it go on.
    pub fn freeze_api_server(&self, freeze: bool) -> anyhow::Result<()> {
        let server = self.programs.iter().find(|program| program.name() == API_SERVER);
        let signal = if freeze { Signal::STOP } else { Signal::CONT };
        server.context("the API server was killed")?.signal(signal)
    }

    /// Forgets all history of the store, so that an API server started after it has no old versions to show.
    pub fn compact(&self) -> anyhow::Result<()> {
        compaction::compact(&self.folder.path().join(programs::ETCD_SOCKET)).context("compacting etcd failed")
    }

    /// How long it took from nothing to a control plane at work.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// A kubeconfig file with an administrator's rights; it holds its certificates and can be copied.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client configuration with an administrator's rights, which retries nothing by itself.
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// A client with an administrator's rights; call it within a tokio runtime, and once in each.
    pub fn client(&self) -> Client {
        Client::try_from(self.config()).expect("the configuration worked when the control plane started")
    }

    /// kubectl with an administrator's rights.
    pub fn kubectl(&self) -> Command {
        self.binaries.kubectl(&self.kubeconfig)
    }

    /// Makes a fresh namespace whose name begins with `prefix`, and returns the name.
    pub async fn namespace(&self, prefix: &str) -> anyhow::Result<String> {
        let metadata = ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let made = Api::all(self.client()).create(&PostParams::default(), &namespace).await;
        Ok(made.context("making a namespace failed")?.name_any())
    }

    /// The CA of the API server and of its clients, PEM.
    pub fn ca_pem(&self) -> &str {
        &self.certificates.ca
    }

    /// The CA of the client certificate that the API server shows to webhooks, PEM.
    pub fn webhook_client_ca_pem(&self) -> &str {
        &self.certificates.webhook_ca
    }

    /// The folder with the logs and the data, for looking at while it runs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process ids of etcd, kube-apiserver and kube-controller-manager.
    pub fn process_ids(&self) -> Vec<u32> {
        self.programs.iter().map(Program::id).collect()
    }
}
