//! Changes of sources at a steady rate, and the time until their mirrors show them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

use crate::clusters::RemotePlane;

/// One change in this time.
const INTERVAL: Duration = Duration::from_millis(20);
/// How long a single change may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// When each port number of each mirror was first seen here.
type Seen = Arc<Mutex<BTreeMap<(String, i32), Instant>>>;

/// Changes sources, and watches their mirrors.
pub(crate) struct Changes {
    seen: Seen,
    _watching: JoinSet<anyhow::Result<()>>,
    /// The port of the next change: every change has its own.
    port: i32,
}

impl Changes {
    pub(crate) async fn start(local: &Client) -> anyhow::Result<Self> {
        let seen = Seen::default();
        let (ready, listed) = tokio::sync::oneshot::channel();
        let mut watching = JoinSet::new();
        watching.spawn(watch(local.clone(), seen.clone(), ready));
        listed.await.context("the watch of mirrors ended")?;
        Ok(Self { seen, _watching: watching, port: 1_000 })
    }

    /// Makes so many changes, of all these remotes in turn; gives how long each took.
    pub(crate) async fn make(&mut self, remotes: &[&RemotePlane], count: usize) -> anyhow::Result<Vec<Duration>> {
        let mut clock = tokio::time::interval(INTERVAL);
        let mut requests = JoinSet::new();
        for number in 0..count {
            clock.tick().await;
            self.port += 1;
            let (remote, port) = (remotes[number % remotes.len()], self.port);
            let (sources, name) = (remote.sources(), format!("s{}", port % 2_000));
            let key = (format!("{}/{name}", remote.name), port);
            requests.spawn(async move {
                let change = serde_json::from_value(json!([
                    { "op": "replace", "path": "/spec/ports/0/port", "value": port },
                ]))?;
                let sent = Instant::now();
                sources.patch(&name, &PatchParams::default(), &Patch::Json::<()>(change)).await?;
                anyhow::Ok((key, sent))
            });
        }
        let mut took = Vec::new();
        while let Some(made) = requests.join_next().await {
            let (key, sent) = made??;
            let limit = sent + PATIENCE;
            let seen = loop {
                if let Some(seen) = self.seen.lock().remove(&key) {
                    break seen;
                }
                ensure!(Instant::now() < limit, "{} was not changed within {PATIENCE:?}", key.0);
                tokio::time::sleep(Duration::from_millis(5)).await;
            };
            took.push(seen.saturating_duration_since(sent));
        }
        took.sort_unstable();
        Ok(took)
    }
}

async fn watch(local: Client, seen: Seen, ready: tokio::sync::oneshot::Sender<()>) -> anyhow::Result<()> {
    let mirrors = watcher::Config::default().labels("mirror.portolan.dev/remote");
    let events = watcher(Api::<Service>::all(local), mirrors);
    futures::pin_mut!(events);
    let mut ready = Some(ready);
    while let Some(event) = events.try_next().await? {
        match event {
            watcher::Event::InitDone => drop(ready.take().map(|ready| ready.send(()))),
            watcher::Event::Apply(service) => {
                let key = format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any());
                let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
                if let Some(port) = ports.first() {
                    seen.lock().entry((key, port.port)).or_insert_with(Instant::now);
                }
            }
            watcher::Event::Init | watcher::Event::InitApply(_) | watcher::Event::Delete(_) => {}
        }
    }
    Ok(())
}

/// The time within which so many of a hundred were done, in milliseconds.
pub(crate) fn percentile(sorted: &[Duration], share: usize) -> f64 {
    let at = (sorted.len() * share).div_ceil(100).saturating_sub(1);
    sorted.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1_000.0)
}
