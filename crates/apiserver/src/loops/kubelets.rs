//! The kubelets of simulated nodes: a deleted pod is confirmed to be gone and, on request, pods run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::mirror::{Key, Mirror};
use super::{code, pause};

/// The loop.
#[derive(Debug, Clone, Default)]
pub struct Kubelets {
    /// The simulated nodes; none for every node that a pod names.
    pub nodes: Option<BTreeSet<String>>,
    /// Lets pods run, with addresses from this range.
    pub simulate: Option<Range>,
}

/// Addresses for pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub first: Ipv4Addr,
    pub count: u32,
}

/// What a kubelet looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    uid: String,
    node: String,
    deleting: bool,
    ready: bool,
    over: bool,
    address: Option<String>,
    /// Names and images.
    containers: Vec<(String, String)>,
}

impl Kubelets {
    /// Runs until told to stop.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        stop.run_until_cancelled(self.tend(client)).await;
    }

    async fn tend(&self, client: Client) {
        let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).default_backoff();
        let mut pods = std::pin::pin!(pods);
        let mut mirror = Mirror::default();
        let mut due = BTreeSet::new();
        let mut failures = 0;
        loop {
            let retry = tokio::time::sleep(pause(failures));
            tokio::select! {
                Some(event) = pods.next() => due.append(&mut mirror.take_in(event, Seen::read)),
                () = retry, if failures > 0 => {}
            }
            if !mirror.is_synced() {
                continue;
            }
            let mut left = BTreeSet::new();
            for key in std::mem::take(&mut due) {
                match self.tend_one(&client, &mut mirror, &key).await {
                    Err(error) if !matches!(code(&error), 404 | 409) => {
                        tracing::debug!(%error, "tending a pod failed and is tried again");
                        left.insert(key);
                    }
                    Ok(()) | Err(_) => {}
                }
            }
            failures = if left.is_empty() { 0 } else { failures + 1 };
            due = left;
        }
    }

    async fn tend_one(&self, client: &Client, mirror: &mut Mirror<Seen>, key: &Key) -> kube::Result<()> {
        let Some(pod) = mirror.items().get(key).cloned() else { return Ok(()) };
        let ours = !pod.node.is_empty() && self.nodes.as_ref().is_none_or(|nodes| nodes.contains(&pod.node));
        if !ours {
            return Ok(());
        }
        let api: Api<Pod> = Api::namespaced(client.clone(), &key.0);
        if pod.deleting {
            let preconditions = Some(Preconditions { uid: Some(pod.uid), resource_version: None });
            let params = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
            return api.delete(&key.1, &params).await.map(drop);
        }
        let Some(range) = self.simulate.filter(|_| !pod.ready && !pod.over) else { return Ok(()) };
        let taken = mirror.items().values().filter_map(|pod| pod.address.clone()).collect();
        let Some(address) = pod.address.clone().or_else(|| range.free(&taken)) else {
            tracing::warn!(pod = key.1, "no address is left for a simulated pod");
            return Ok(());
        };
        let patch = Patch::Merge(running(&pod, &address, Timestamp::now()));
        let written = api.patch_status(&key.1, &PatchParams::default(), &patch).await?;
        mirror.put(key.clone(), Seen::read(written));
        Ok(())
    }
}

impl Range {
    /// The lowest address that nobody has.
    fn free(self, taken: &BTreeSet<String>) -> Option<String> {
        let first = u32::from(self.first);
        let all =
            (0..self.count).map_while(|offset| first.checked_add(offset)).map(|ip| Ipv4Addr::from(ip).to_string());
        all.into_iter().find(|ip| !taken.contains(ip))
    }
}

impl Seen {
    fn read(pod: Pod) -> Self {
        let uid = pod.uid().unwrap_or_default();
        let spec = pod.spec.unwrap_or_default();
        let status = pod.status.unwrap_or_default();
        let conditions: BTreeMap<String, String> = status
            .conditions
            .unwrap_or_default()
            .into_iter()
            .map(|condition| (condition.type_, condition.status))
            .collect();
        let containers =
            spec.containers.into_iter().map(|container| (container.name, container.image.unwrap_or_default()));
        Self {
            uid,
            node: spec.node_name.unwrap_or_default(),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            // A pod that someone made unready on purpose stays so.
            ready: conditions.contains_key("Ready"),
            over: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            address: status.pod_ip,
            containers: containers.collect(),
        }
    }
}

/// The status of a pod that runs.
fn running(pod: &Seen, address: &str, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let types = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let conditions = types.map(|type_| json!({ "type": type_, "status": "True", "lastTransitionTime": now }));
    let containers = pod.containers.iter().map(|(name, image)| {
        json!({
            "name": name, "image": image, "imageID": "", "ready": true, "started": true, "restartCount": 0,
            "state": { "running": { "startedAt": now } },
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
