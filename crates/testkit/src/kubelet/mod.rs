//! Nodes without machines: what a scheduler and kubelets would write to the API server, for a [`crate::ControlPlane`]
//! whose pods need no containers.
//!
//! [`FakeKubelet::start`] registers Ready Nodes and renews their Leases. From then on every pod without a node is bound
//! to one, gets addresses of both families, runs and is ready; a pod that is deleted is gone at once. Nothing listens
//! behind the addresses: `exec`, `logs` and `port-forward` are refused without delay.
//!
//! ```text
//! Pod created --> bind --> Running, podIPs, Ready --> deletionTimestamp --> delete with grace period 0
//! ```

use std::{fmt::Debug, future::Future, time::Duration};

use anyhow::Context;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Error, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::Value;
use tokio::task::JoinSet;

use self::{
    addresses::PodAddresses,
    node::FakeNode,
    pod::{Step, step},
};

mod addresses;
mod node;
mod pod;

/// How long a write that failed is left alone, and how often it is tried.
const RETRY_AFTER: Duration = Duration::from_millis(200);
const ATTEMPTS: u32 = 50;

/// Which nodes there are.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many, at most 100.
    pub nodes: u8,
    /// N in the pods' networks, 10.N.0.0/16 and fd00:N::/32. Clusters that know each other need different ones; 0 is the
    /// network of Services.
    pub network: u8,
}

impl Default for Options {
    fn default() -> Self {
        Self { nodes: 2, network: 244 }
    }
}

/// The kubelets of all nodes; they stop when this is dropped, and the Nodes stay.
pub struct FakeKubelet {
    /// Aborted when dropped.
    _tasks: JoinSet<()>,
}

impl FakeKubelet {
    /// Registers the nodes, then serves them until the value is dropped. The client must not live in another runtime.
    pub async fn start(client: Client, options: Options) -> anyhow::Result<Self> {
        let nodes: Vec<FakeNode> = (1..=options.nodes).map(|index| FakeNode::new(options.network, index)).collect();
        for node in &nodes {
            node.register(&client).await.with_context(|| format!("registering node {} failed", node.name))?;
            node.renew_lease(&client).await.with_context(|| format!("the Lease of node {} failed", node.name))?;
        }
        let mut tasks = JoinSet::new();
        tasks.spawn(node::keep_leases(client.clone(), nodes.clone()));
        tasks.spawn(Kubelet { client, addresses: PodAddresses::default(), nodes, bound: 0 }.run());
        Ok(Self { _tasks: tasks })
    }
}

struct Kubelet {
    client: Client,
    nodes: Vec<FakeNode>,
    addresses: PodAddresses,
    /// How many pods were bound: nodes take turns.
    bound: usize,
}

impl Kubelet {
    async fn run(mut self) {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let mut events = watcher(pods, watcher::Config::default()).default_backoff().boxed();
        let mut listed = Vec::new();
        loop {
            match events.try_next().await {
                Ok(Some(watcher::Event::Init)) => listed.clear(),
                Ok(Some(watcher::Event::InitApply(pod))) => listed.push(pod),
                Ok(Some(watcher::Event::InitDone)) => {
                    // First all that are taken, so that nobody else is given them.
                    self.addresses.reset(&listed, &self.nodes);
                    for pod in std::mem::take(&mut listed) {
                        self.handle(&pod).await;
                    }
                }
                Ok(Some(watcher::Event::Apply(pod))) => self.handle(&pod).await,
                Ok(Some(watcher::Event::Delete(pod))) => self.addresses.release(&pod),
                Ok(None) => return,
                Err(error) => tracing::warn!(%error, "watching pods failed; it goes on"),
            }
        }
    }

    /// Takes a pod one step on; the change shows up as the next event.
    async fn handle(&mut self, pod: &Pod) {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        match step(pod, &self.nodes) {
            Step::Nothing => {}
            Step::Bind => {
                let Some(node) = self.nodes.get(self.bound % self.nodes.len().max(1)) else { return };
                self.bound += 1;
                let (binding, plain) = (pod::binding(pod, node), PostParams::default());
                attempt("binding", pod, || pods.create_subresource::<Value, Value>("binding", &name, &plain, &binding))
                    .await;
            }
            Step::Run(node) => {
                let Some(addresses) = self.addresses.claim(pod, node) else {
                    tracing::warn!(namespace, name, node = node.name, "the node has no address left for a pod");
                    return;
                };
                let (status, plain) = (Patch::Merge(pod::running(pod, node, addresses)), PatchParams::default());
                attempt("running", pod, || pods.patch_status(&name, &plain, &status)).await;
            }
            Step::End => {
                let this_one = Preconditions { uid: pod.uid(), ..Preconditions::default() };
                let now = DeleteParams::default().grace_period(0).preconditions(this_one);
                attempt("ending", pod, || pods.delete(&name, &now)).await;
            }
        }
    }
}

/// Tries until it is done, or until the pod is not what it was: then another event says so.
async fn attempt<T, F: Future<Output = kube::Result<T>>>(what: &str, pod: &Pod, mut call: impl FnMut() -> F) {
    for _ in 0..ATTEMPTS {
        match call().await {
            Ok(_) => return,
            // 403: the namespace is being deleted.
            Err(Error::Api(status)) if [403, 404, 409].contains(&status.code) => return,
            Err(error) => {
                tracing::warn!(%error, pod = pod.name_any(), "{what} a pod failed; tried again");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}
