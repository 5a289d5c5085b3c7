//! An API server, proxies and the operator, with so many calls going on.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use portolan_api::mesh::{Target, TargetSpec, VirtualService, VirtualServiceSpec};
use portolan_drivers::l7mp::{CallError, Credentials, ProxyClient};
use portolan_simulator::cluster::{self, Cluster};
use portolan_testkit::{Program, install_definition, program};
use serde_json::{Map, Value, json};

use crate::operator::{Operator, sum};

/// Proxies of a setting; a call is on one of them.
pub(crate) const PROXIES: usize = 4;
const API: u16 = 1234;
/// How often one looks at a proxy for a change when nothing else is going on.
pub(crate) const CLOSELY: Duration = Duration::from_micros(500);

pub(crate) struct Setting {
    pub(crate) operator: Operator,
    pub(crate) client: Client,
    kubeconfig: PathBuf,
    /// The operator's.
    program: PathBuf,
    proxies: Vec<(Ipv4Addr, Program)>,
    server: Cluster,
    _folder: tempfile::TempDir,
}

impl Setting {
    /// Everything stands, with so many calls.
    pub(crate) async fn new(calls: usize, program: &Path) -> anyhow::Result<Self> {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let options = cluster::Options {
            listen: ([127, 0, 0, 1], 0).into(),
            data_dir: None,
            kubeconfig: kubeconfig.clone(),
            nodes: 0,
            network: cluster::Network::number(0),
            run_elsewhere: None,
        };
        let server = Cluster::start(options).await?;
        let client = server.client();
        for definition in portolan_api::crds() {
            install_definition(client.clone(), definition).await?;
        }
        let binary = program::binary("portolan-proxy", "portolan-proxy")?;
        let mut proxies = Vec::new();
        for proxy in 0..PROXIES {
            let address = Ipv4Addr::new(127, 77, number, u8::try_from(proxy)? + 1);
            let name = format!("proxy-{proxy}");
            let own = address.to_string();
            let flags = ["--address", &own, "--workers", "1", "--api", &format!("{own}:{API}"), "--insecure-api"];
            let flags: Vec<String> = flags.map(str::to_owned).into();
            proxies.push((address, Program::start(&name, &binary, &flags, folder.path())?));
            pod(&client, &name, json!({ "proxy": proxy.to_string() }), address, true).await?;
        }
        for worker in 0..3 {
            let address = Ipv4Addr::new(127, 78, number, worker + 1);
            pod(&client, &format!("worker-{worker}"), json!({ "app": "worker" }), address, false).await?;
        }
        let all = (0..calls).map(|call| {
            let call = Call::new(&client, &format!("base-{call}"), call % PROXIES, 1_024 + call / PROXIES);
            async move { call.begin().await }
        });
        stream::iter(all).buffer_unordered(32).try_collect::<()>().await?;
        let operator = Operator::start(program, &kubeconfig)?;
        let program = program.to_owned();
        let setting = Self { operator, client, kubeconfig, program, proxies, server, _folder: folder };
        setting.rest()?;
        let listeners = setting.proxy(0).get("/api/v1/listeners").await?;
        let held = listeners.as_array().map(Vec::len);
        ensure!(held == Some(calls / PROXIES), "proxy 0 has {held:?} listeners of {calls} calls");
        Ok(setting)
    }

    /// Starts the operator again.
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        self.operator = Operator::start(&self.program, &self.kubeconfig)?;
        Ok(())
    }

    /// Waits until all proxies have answered.
    pub(crate) fn met_all(&self) -> anyhow::Result<()> {
        let answering = |text: &str| sum(text, "portolan_mesh_proxies{flavour=\"portolan\",state=\"answers\"}");
        self.operator.until("met all proxies", |text| answering(text) > PROXIES as f64 - 0.5)
    }

    /// Waits until all proxies answer and nothing is written or called any more.
    pub(crate) fn rest(&self) -> anyhow::Result<()> {
        self.met_all()?;
        let limit = Instant::now() + Duration::from_mins(3);
        let mut last = (0.0, 0.0);
        loop {
            std::thread::sleep(Duration::from_millis(1_500));
            let now = (self.operator.calls()?, self.operator.writes()?);
            if now.0 - last.0 < 0.5 && now.1 - last.1 < 0.5 {
                return Ok(());
            }
            ensure!(Instant::now() < limit, "the operator does not come to rest: {now:?} calls and writes");
            last = now;
        }
    }

    pub(crate) fn proxy(&self, number: usize) -> ProxyClient {
        ProxyClient::new(SocketAddr::from((self.proxies[number].0, API)), Credentials::default())
    }

    /// Changes that proxies have taken so far.
    pub(crate) async fn generations(&self) -> anyhow::Result<u64> {
        let mut all = 0;
        for number in 0..PROXIES {
            let admin = self.proxy(number).get("/api/v1/admin").await?;
            all += admin["portolan"]["generation"].as_u64().context("a proxy of ours counts its changes")?;
        }
        Ok(all)
    }

    pub(crate) async fn stop(self) {
        drop((self.operator, self.proxies));
        self.server.stop().await;
    }
}

async fn pod(client: &Client, name: &str, labels: Value, at: Ipv4Addr, is_proxy: bool) -> anyhow::Result<()> {
    let container = if is_proxy {
        json!({ "name": "l7mp", "image": "portolan", "ports": [{ "name": "l7mp-api", "containerPort": API }] })
    } else {
        json!({ "name": "app", "image": "app" })
    };
    let pod = json!({ "metadata": { "name": name, "labels": labels },
        "spec": { "containers": [container], "automountServiceAccountToken": false } });
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let status = json!({ "status": { "phase": "Running", "podIP": at, "podIPs": [{ "ip": at }],
        "conditions": [{ "type": "Ready", "status": "True" }] } });
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// A phone call: a Target and a VirtualService of its own.
pub(crate) struct Call {
    name: String,
    proxy: usize,
    port: usize,
    targets: Api<Target>,
    services: Api<VirtualService>,
}

/// Changes that a call consists of.
pub(crate) const CHANGES: u64 = 5;

impl Call {
    pub(crate) fn new(client: &Client, name: &str, proxy: usize, port: usize) -> Self {
        let (targets, services) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
        Self { name: name.to_owned(), proxy, port, targets, services }
    }

    pub(crate) async fn begin(&self) -> anyhow::Result<()> {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let spec = map(json!({
            "selector": { "matchLabels": { "proxy": self.proxy.to_string() } },
            "cluster": {
                "spec": { "protocol": "UDP", "port": 19_000 },
                "endpoints": [{ "selector": { "matchLabels": { "app": "worker" } } }],
                "loadbalancer": { "policy": "ConsistentHash", "key": "/labels/session_id" },
            },
        }));
        let target = Target { metadata: metadata.clone(), spec: TargetSpec(spec), status: None };
        self.targets.create(&PostParams::default(), &target).await?;
        let spec = map(json!({
            "selector": { "matchLabels": { "proxy": self.proxy.to_string() } },
            "listener": { "protocol": "UDP", "port": self.port },
            "rules": self.rules(1),
        }));
        let service = VirtualService { metadata, spec: VirtualServiceSpec(spec), status: None };
        self.services.create(&PostParams::default(), &service).await?;
        Ok(())
    }

    pub(crate) async fn edit(&self) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "spec": { "rules": self.rules(2) } }));
        self.services.patch(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn end(&self) -> anyhow::Result<()> {
        self.services.delete(&self.name, &DeleteParams::default()).await?;
        self.targets.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Whatever the proxy has for its rules: none without the call.
    async fn on(&self, proxy: &ProxyClient) -> Result<Option<Value>, CallError> {
        let path = format!("/api/v1/rulelists/{}.default.virtualservice.cluster.local", self.name);
        match proxy.get(&path).await {
            Ok(list) => Ok(Some(list["rules"].clone())),
            Err(CallError::Rejected { .. }) => Ok(None),
            Err(failed) => Err(failed),
        }
    }

    /// Waits until the proxy shows something else than it did; says what, and how long that took.
    pub(crate) async fn until_other_than(
        &self,
        proxy: &ProxyClient,
        was: Option<&Value>,
        look: Duration,
    ) -> anyhow::Result<(Option<Value>, Duration)> {
        let began = Instant::now();
        loop {
            match self.on(proxy).await {
                Ok(is) if is.as_ref() != was => return Ok((is, began.elapsed())),
                Ok(_) | Err(CallError::TimedOut) => {}
                Err(failed) => return Err(failed.into()),
            }
            ensure!(began.elapsed() < Duration::from_mins(1), "a change of {} does not arrive", self.name);
            tokio::time::sleep(look).await;
        }
    }

    /// From beginning to end, each step waited for; gives the three times from an answer to its effect.
    pub(crate) async fn whole(&self, proxy: &ProxyClient, look: Duration) -> anyhow::Result<[Duration; 3]> {
        self.begin().await?;
        let (rules, up) = self.until_other_than(proxy, None, look).await?;
        self.edit().await?;
        let (rules, edited) = self.until_other_than(proxy, rules.as_ref(), look).await?;
        self.end().await?;
        let (rules, down) = self.until_other_than(proxy, rules.as_ref(), look).await?;
        ensure!(rules.is_none(), "call {} was edited when it should have ended", self.name);
        Ok([up, edited, down])
    }

    pub(crate) fn proxy(&self) -> usize {
        self.proxy
    }

    fn rules(&self, session: u64) -> Value {
        json!([{ "action": {
            "rewrite": [{ "path": "/labels/session_id", "value": session }],
            "route": { "destination": self.name, "retry": { "retry_on": "always" } },
        } }])
    }
}

fn map(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value { map } else { Map::new() }
}
