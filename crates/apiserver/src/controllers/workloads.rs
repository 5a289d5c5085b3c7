//! Workloads on simulated nodes: `ReplicaSets` of Deployments, pods of `ReplicaSets`, `ReplicationControllers` and
//! `DaemonSets`, and the counts in the status of each.
//!
//! The name of what is created is derived from its owner and from its template, number or node, so that creating it twice
//! fails the second time. There are no rollouts: a `ReplicaSet` of an old template, and a `DaemonSet`'s pods of one, are
//! replaced at once.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::reconcile::{Pace, code, is_listed, watch};
use super::slim::{DaemonSet, Deployment, Node, Pod, PodTemplate, ReplicaSet, ReplicationController};

const TEMPLATE_HASH: &str = "pod-template-hash";

/// The controller of workloads.
pub struct Workloads;

impl Workloads {
    /// Runs until `stop`.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        stop.run_until_cancelled(Box::pin(follow(client))).await;
    }
}

async fn follow(client: Client) {
    let all = watcher::Config::default;
    let (deployments, deployment_events) = watch::<Deployment>(&client, all());
    let (replica_sets, replica_set_events) = watch::<ReplicaSet>(&client, all());
    let (replication_controllers, replication_controller_events) = watch::<ReplicationController>(&client, all());
    let (daemon_sets, daemon_set_events) = watch::<DaemonSet>(&client, all());
    let (nodes, node_events) = watch::<Node>(&client, all());
    let (pods, pod_events) = watch::<Pod>(&client, all());
    let mut touched = futures::stream::select_all([
        deployment_events,
        replica_set_events,
        replication_controller_events,
        daemon_set_events,
        node_events,
        pod_events,
    ]);
    let world = World { client, deployments, replica_sets, replication_controllers, daemon_sets, nodes, pods };
    let mut pace = Pace::default();
    loop {
        tokio::select! {
            biased;
            Some(_) = touched.next() => pace.touch(),
            () = pace.due(), if world.is_ready() => {
                let repaired = world.repair().await;
                if let Err(error) = &repaired {
                    tracing::debug!(%error, "updating workloads failed and is retried");
                }
                pace.worked(repaired.is_ok());
            }
        }
    }
}

struct World {
    client: Client,
    deployments: Store<Deployment>,
    replica_sets: Store<ReplicaSet>,
    replication_controllers: Store<ReplicationController>,
    daemon_sets: Store<DaemonSet>,
    nodes: Store<Node>,
    pods: Store<Pod>,
}

impl World {
    /// Whether everything has been listed once.
    fn is_ready(&self) -> bool {
        is_listed(&self.deployments)
            && is_listed(&self.replica_sets)
            && is_listed(&self.replication_controllers)
            && is_listed(&self.daemon_sets)
            && is_listed(&self.nodes)
            && is_listed(&self.pods)
    }

    async fn repair(&self) -> kube::Result<()> {
        let nodes = self.nodes.state();
        let ready: Vec<Arc<Node>> = nodes
            .iter()
            .filter(|node| node.metadata.deletion_timestamp.is_none() && node.is_ready())
            .cloned()
            .collect();
        let (pods, sets) = (by_owner(self.pods.state()), by_owner(self.replica_sets.state()));
        for deployment in self.deployments.state() {
            let sets = owned_by(&sets, &*deployment);
            self.reconcile_deployment(&deployment, sets, &pods).await?;
        }
        for set in self.replica_sets.state() {
            let workload = replicated(&set.name_any(), &set.spec.template, set.spec.replicas, &ready);
            self.reconcile(&*set, &set.status, workload, owned_by(&pods, &*set), replicas_status).await?;
        }
        for controller in self.replication_controllers.state() {
            let spec = &controller.spec;
            let workload = replicated(&controller.name_any(), &spec.template, spec.replicas, &ready);
            let pods = owned_by(&pods, &*controller);
            self.reconcile(&*controller, &controller.status, workload, pods, replicas_status).await?;
        }
        for set in self.daemon_sets.state() {
            let workload = of_daemon_set(&set, &nodes);
            self.reconcile(&*set, &set.status, workload, owned_by(&pods, &*set), daemon_set_status).await?;
        }
        Ok(())
    }

    /// Creates or scales the `ReplicaSet` of the template, deletes all others, and writes the counts into the status.
    async fn reconcile_deployment(
        &self,
        deployment: &Deployment,
        sets: &[Arc<ReplicaSet>],
        pods: &BTreeMap<String, Vec<Arc<Pod>>>,
    ) -> kube::Result<()> {
        if deployment.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let namespace = deployment.namespace().unwrap_or_default();
        let resource = ApiResource::erase::<ReplicaSet>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &resource);
        let hash = hash(&deployment.spec.template);
        let name = format!("{}-{hash}", deployment.name_any());
        let replicas = deployment.spec.replicas.unwrap_or(1);
        for set in sets.iter().filter(|set| set.name_any() != name && set.metadata.deletion_timestamp.is_none()) {
            allow(&[404], api.delete(&set.name_any(), &DeleteParams::background()).await)?;
        }
        let current = sets.iter().find(|set| set.name_any() == name);
        match current {
            None => {
                let set = set_of_deployment(deployment, &name, &hash, &resource);
                allow(&[403, 404, 409], api.create(&PostParams::default(), &set).await)?;
            }
            Some(set) if set.spec.replicas.unwrap_or(1) != replicas => {
                let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
                allow(&[404, 409], api.patch(&name, &PatchParams::default(), &patch).await)?;
            }
            Some(_) => {}
        }
        let pods = current.map_or(&[][..], |set| owned_by(pods, &**set));
        let ready = |pod: &&Arc<Pod>| pod.metadata.deletion_timestamp.is_none() && pod.is_ready();
        let counts = Counts {
            wanted: usize::try_from(replicas).unwrap_or(0),
            there: pods.len(),
            ready: pods.iter().filter(ready).count(),
        };
        self.write_status(deployment, &deployment.status, &counts, deployment_status).await
    }

    /// Creates missing pods, deletes superfluous ones, and writes the counts into the status.
    async fn reconcile<K>(
        &self,
        owner: &K,
        seen: &Value,
        workload: Workload,
        pods: &[Arc<Pod>],
        status: StatusOf,
    ) -> kube::Result<()>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        if owner.meta().deletion_timestamp.is_some() {
            return Ok(());
        }
        let namespace = owner.namespace().unwrap_or_default();
        let resource = ApiResource::erase::<Pod>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &resource);
        let counts = Counts::of(&workload, pods);
        for pod in pods {
            let wanted = workload.places.contains_key(&pod.name_any());
            if !wanted && pod.metadata.deletion_timestamp.is_none() {
                allow(&[404], api.delete(&pod.name_any(), &DeleteParams::default()).await)?;
            }
        }
        let there: BTreeSet<String> = pods.iter().map(|pod| pod.name_any()).collect();
        let reference = owner.controller_owner_ref(&()).unwrap_or_default();
        for (name, node) in workload.places.iter().filter(|(name, _)| !there.contains(*name)) {
            let pod = workload.pod(name, node, &reference);
            // 409: it exists and is not in the cache yet; 403, 404: the namespace is terminating.
            allow(&[403, 404, 409], api.create(&PostParams::default(), &pod).await)?;
        }
        self.write_status(owner, seen, &counts, status).await
    }

    async fn write_status<K>(&self, owner: &K, seen: &Value, counts: &Counts, status: StatusOf) -> kube::Result<()>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let wanted = status(counts, owner.meta().generation.unwrap_or_default());
        if !is_within(seen, &wanted) {
            let wanted = stamped(wanted, seen);
            let api: Api<K> = Api::namespaced(self.client.clone(), &owner.namespace().unwrap_or_default());
            let patch = Patch::Merge(json!({ "status": wanted }));
            allow(&[404, 409], api.patch_status(&owner.name_any(), &PatchParams::default(), &patch).await)?;
        }
        Ok(())
    }
}

/// Ignores failures that the next reconcile resolves.
fn allow<T>(codes: &[u16], answer: kube::Result<T>) -> kube::Result<()> {
    match answer {
        Err(error) if !codes.contains(&code(&error)) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Objects by the uid of their controller.
fn by_owner<K: Resource<DynamicType = ()>>(objects: Vec<Arc<K>>) -> BTreeMap<String, Vec<Arc<K>>> {
    let mut owned: BTreeMap<String, Vec<Arc<K>>> = BTreeMap::new();
    for object in objects {
        if let Some(owner) = object.owner_references().iter().find(|owner| owner.controller == Some(true)) {
            owned.entry(owner.uid.clone()).or_default().push(object);
        }
    }
    owned
}

fn owned_by<'a, K>(owned: &'a BTreeMap<String, Vec<Arc<K>>>, owner: &impl ResourceExt) -> &'a [Arc<K>] {
    owner.uid().and_then(|uid| owned.get(&uid)).map_or(&[], Vec::as_slice)
}

fn set_of_deployment(deployment: &Deployment, name: &str, hash: &str, resource: &ApiResource) -> DynamicObject {
    let mut template = json!(deployment.spec.template);
    let mut selector = deployment.spec.selector.clone();
    for labels in [&mut template["metadata"]["labels"], &mut selector["matchLabels"]] {
        labels[TEMPLATE_HASH] = hash.into();
    }
    let spec = json!({ "replicas": deployment.spec.replicas, "selector": selector, "template": template });
    let mut set = DynamicObject::new(name, resource).data(json!({ "spec": spec }));
    let labels = deployment.spec.template.metadata.labels.clone();
    set.metadata.labels = Some(labels.into_iter().chain([(TEMPLATE_HASH.to_owned(), hash.to_owned())]).collect());
    set.metadata.owner_references = deployment.controller_owner_ref(&()).map(|owner| vec![owner]);
    set
}

/// The desired pods of a workload.
struct Workload {
    template: PodTemplate,
    /// Set where the pods of a template have a label of their own.
    hash: Option<String>,
    /// Pods and their nodes.
    places: BTreeMap<String, String>,
}

/// As many pods as `replicas` says, on all nodes in turn.
fn replicated(name: &str, template: &PodTemplate, replicas: Option<i32>, nodes: &[Arc<Node>]) -> Workload {
    let nodes = selected(template, nodes);
    let names = (0..replicas.unwrap_or(1)).map(|number| format!("{name}-{number}"));
    let places = names.zip(nodes.iter().cycle().cloned()).collect();
    Workload { template: template.clone(), hash: None, places }
}

/// A pod on every node.
fn of_daemon_set(set: &DaemonSet, nodes: &[Arc<Node>]) -> Workload {
    let template = set.spec.template.clone();
    let hash = hash(&template);
    let name = set.name_any();
    let nodes = selected(&template, nodes);
    let places = nodes.into_iter().map(|node| (format!("{name}-{hash}-{node}"), node)).collect();
    Workload { template, hash: Some(hash), places }
}

/// The nodes that a pod may go to.
fn selected(template: &PodTemplate, nodes: &[Arc<Node>]) -> BTreeSet<String> {
    let wanted = template.spec["nodeSelector"].as_object();
    let fits = |node: &&Arc<Node>| {
        let mut labels = wanted.into_iter().flatten();
        labels.all(|(name, value)| node.labels().get(name).map(String::as_str) == value.as_str())
    };
    nodes.iter().filter(fits).map(|node| node.name_any()).collect()
}

impl Workload {
    fn pod(&self, name: &str, node: &str, owner: &OwnerReference) -> DynamicObject {
        let PodTemplate { metadata, mut spec } = self.template.clone();
        spec["nodeName"] = json!(node);
        let mut pod = DynamicObject::new(name, &ApiResource::erase::<Pod>(&())).data(json!({ "spec": spec }));
        let hash = self.hash.clone().map(|hash| (TEMPLATE_HASH.to_owned(), hash));
        pod.metadata.labels = Some(metadata.labels.into_iter().chain(hash).collect());
        pod.metadata.annotations = Some(metadata.annotations);
        pod.metadata.owner_references = Some(vec![owner.clone()]);
        pod
    }
}

fn hash(template: &PodTemplate) -> String {
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(template).unwrap_or_default().hash(&mut hasher);
    format!("{:08x}", hasher.finish() >> 32)
}

struct Counts {
    wanted: usize,
    there: usize,
    ready: usize,
}

impl Counts {
    fn of(workload: &Workload, pods: &[Arc<Pod>]) -> Self {
        let current = |pod: &&Arc<Pod>| workload.places.contains_key(&pod.name_any());
        Self {
            wanted: workload.places.len(),
            there: pods.iter().filter(current).count(),
            ready: pods
                .iter()
                .filter(current)
                .filter(|pod| pod.metadata.deletion_timestamp.is_none() && pod.is_ready())
                .count(),
        }
    }
}

type StatusOf = fn(&Counts, i64) -> Value;

fn deployment_status(counts: &Counts, generation: i64) -> Value {
    let available = counts.ready >= counts.wanted;
    let (status, reason) =
        if available { ("True", "MinimumReplicasAvailable") } else { ("False", "MinimumReplicasUnavailable") };
    json!({
        "observedGeneration": generation, "replicas": counts.there, "updatedReplicas": counts.there,
        "readyReplicas": counts.ready, "availableReplicas": counts.ready,
        "unavailableReplicas": counts.wanted.saturating_sub(counts.ready),
        "conditions": [{ "type": "Available", "status": status, "reason": reason }],
    })
}

fn replicas_status(counts: &Counts, generation: i64) -> Value {
    json!({
        "observedGeneration": generation, "replicas": counts.there, "fullyLabeledReplicas": counts.there,
        "readyReplicas": counts.ready, "availableReplicas": counts.ready,
    })
}

fn daemon_set_status(counts: &Counts, generation: i64) -> Value {
    json!({
        "observedGeneration": generation, "desiredNumberScheduled": counts.wanted,
        "currentNumberScheduled": counts.there, "updatedNumberScheduled": counts.there, "numberMisscheduled": 0,
        "numberReady": counts.ready, "numberAvailable": counts.ready,
        "numberUnavailable": counts.wanted.saturating_sub(counts.ready),
    })
}

/// Whether a status contains all of another; a missing number counts as 0.
fn is_within(seen: &Value, wanted: &Value) -> bool {
    match (seen, wanted) {
        (Value::Object(seen), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| is_within(seen.get(name).unwrap_or(&Value::Null), wanted))
        }
        (Value::Array(seen), Value::Array(wanted)) => {
            seen.len() == wanted.len() && seen.iter().zip(wanted).all(|(seen, wanted)| is_within(seen, wanted))
        }
        (Value::Null, wanted) => *wanted == json!(0),
        (seen, wanted) => seen == wanted,
    }
}

/// Sets the transition time of a condition: now, unless its status is unchanged.
fn stamped(mut wanted: Value, seen: &Value) -> Value {
    let before = &seen["conditions"][0];
    if let Some(condition) = wanted.pointer_mut("/conditions/0") {
        let now = json!(crate::object::time(Timestamp::now()));
        let since =
            if before["status"] == condition["status"] { before["lastTransitionTime"].clone() } else { now.clone() };
        condition["lastTransitionTime"] = since;
        condition["lastUpdateTime"] = now;
    }
    wanted
}
