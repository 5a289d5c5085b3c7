//! The kubelets of simulated nodes: they confirm the termination of deleted pods and, on request, mark pods as running.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use portolan_apiserver::controllers::slim::Pod;
use portolan_apiserver::controllers::{Key, Pace, code, key};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// The simulated kubelets.
#[derive(Debug, Clone, Default)]
pub struct Kubelets {
    /// The simulated nodes; `None` means every node that a pod names.
    pub nodes: Option<BTreeSet<String>>,
    /// Marks pods as running, with addresses from this range.
    pub simulate: Option<Range>,
    /// Pods whose containers all have this image are left to another kubelet.
    pub except_image: Option<String>,
}

/// Addresses for pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub first: Ipv4Addr,
    pub count: u32,
}

/// The pod that holds each address.
type Addresses = BTreeMap<Key, String>;

impl Kubelets {
    /// Runs until `stop`.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        stop.run_until_cancelled(Box::pin(self.tend(client))).await;
    }

    async fn tend(&self, client: Client) {
        let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).default_backoff();
        let mut pods = std::pin::pin!(pods);
        let mut addresses = Addresses::new();
        let mut due: BTreeMap<Key, Pod> = BTreeMap::new();
        let mut listing = true;
        let mut pace = Pace::default();
        loop {
            tokio::select! {
                biased;
                Some(event) = pods.next() => match event {
                    Ok(Event::Init) => {
                        listing = true;
                        addresses.clear();
                    }
                    Ok(Event::InitDone) => listing = false,
                    Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                        if let Some(address) = address(&pod) {
                            addresses.insert(key(&pod), address);
                        }
                        due.insert(key(&pod), pod);
                        pace.touch();
                    }
                    Ok(Event::Delete(pod)) => {
                        addresses.remove(&key(&pod));
                        due.remove(&key(&pod));
                    }
                    Err(error) => tracing::debug!(%error, "watching pods was interrupted"),
                },
                // Addresses are allocated once all that are in use are known.
                () = pace.due(), if !listing => {
                    for (key, pod) in std::mem::take(&mut due) {
                        match self.tend_one(&client, &mut addresses, &key, &pod).await {
                            Err(error) if !matches!(code(&error), 404 | 409) => {
                                tracing::debug!(%error, "updating a pod failed and is retried");
                                due.insert(key, pod);
                            }
                            Ok(()) | Err(_) => {}
                        }
                    }
                    pace.worked(due.is_empty());
                }
            }
        }
    }

    async fn tend_one(&self, client: &Client, addresses: &mut Addresses, key: &Key, pod: &Pod) -> kube::Result<()> {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        if node.is_empty() || self.nodes.as_ref().is_some_and(|nodes| !nodes.contains(&node)) {
            return Ok(());
        }
        if self.except_image.as_ref().is_some_and(|image| is_of(pod, image)) {
            return Ok(());
        }
        let api: Api<Pod> = Api::namespaced(client.clone(), &key.0);
        if pod.metadata.deletion_timestamp.is_some() {
            let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
            let params = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
            return api.delete(&key.1, &params).await.map(drop);
        }
        let Some(range) = self.simulate.filter(|_| is_waiting(pod)) else { return Ok(()) };
        let taken = || addresses.values().cloned().collect();
        let Some(address) = address(pod).or_else(|| range.free(&taken())) else {
            tracing::warn!(pod = key.1, "no address is left for a simulated pod");
            return Ok(());
        };
        addresses.insert(key.clone(), address.clone());
        let patch = Patch::Merge(running(pod, &address, Timestamp::now()));
        api.patch_status(&key.1, &PatchParams::default(), &patch).await.map(drop)
    }
}

impl Range {
    /// The lowest free address.
    fn free(self, taken: &BTreeSet<String>) -> Option<String> {
        let first = u32::from(self.first);
        let all = (0..self.count).map_while(|offset| first.checked_add(offset));
        all.map(|ip| Ipv4Addr::from(ip).to_string()).find(|ip| !taken.contains(ip))
    }
}

/// Whether every container is of this image, of whatever version.
fn is_of(pod: &Pod, image: &str) -> bool {
    let mut images = pod.spec.iter().flat_map(|spec| &spec.containers).map(|one| one.image.as_deref());
    images.all(|name| name.and_then(|name| name.split(':').next()) == Some(image))
}

fn address(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone().filter(|ip| !ip.is_empty())
}

/// Whether a pod has neither started nor ended; one that was made unready on purpose stays so.
fn is_waiting(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return true };
    let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    !over && !status.conditions.iter().flatten().any(|condition| condition.type_ == "Ready")
}

/// The status of a pod that runs.
fn running(pod: &Pod, address: &str, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let types = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let conditions = types.map(|type_| json!({ "type": type_, "status": "True", "lastTransitionTime": now }));
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| {
        json!({
            "name": container.name, "image": container.image.clone().unwrap_or_default(), "imageID": "", "ready": true,
            "started": true, "restartCount": 0, "state": { "running": { "startedAt": now } },
        })
    });
    json!({ "status": {
        "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }], "startTime": now,
        "conditions": conditions, "containerStatuses": containers.collect::<Vec<_>>(),
    } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_given_once_and_a_range_has_an_end() {
        let range = Range { first: Ipv4Addr::new(10, 244, 0, 254), count: 3 };
        let mut taken = BTreeSet::new();

        let given: Vec<String> = std::iter::from_fn(|| {
            let address = range.free(&taken)?;
            taken.insert(address.clone());
            Some(address)
        })
        .collect();

        assert_eq!(given, ["10.244.0.254", "10.244.0.255", "10.244.1.0"]);
        let edge = Range { first: Ipv4Addr::BROADCAST, count: 9 };
        assert_eq!(edge.free(&BTreeSet::from(["255.255.255.255".to_owned()])), None);
    }
}
