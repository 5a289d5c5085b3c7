//! The scheduler of simulated nodes: pods that name no node get one, or a condition that says why not.
//!
//! It looks at what keeps a pod off a node: readiness, `spec.unschedulable`, `nodeSelector`, required node affinity by
//! labels, and taints. Of the nodes that are left, the one with the fewest pods is taken. Resources, preferences and
//! the other rules of kube-scheduler count for nothing: simulated nodes have no size.

use std::collections::BTreeMap;

use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use portolan_apiserver::controllers::slim::{Node, Pod};
use portolan_apiserver::controllers::{Pace, code};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const DEFAULT: &str = "default-scheduler";

/// The scheduler.
#[derive(Debug, Clone, Default)]
pub struct Scheduler {
    /// Pods whose containers all have this image run elsewhere, without a node.
    pub except_image: Option<String>,
}

impl Scheduler {
    /// Runs until `stop`.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        stop.run_until_cancelled(Box::pin(self.follow(client))).await;
    }

    async fn follow(&self, client: Client) {
        let (pods, nodes) = (dynamic::<Pod>(&client), dynamic::<Node>(&client));
        let unassigned = watcher::Config::default().fields("spec.nodeName=");
        let pod_events = kube::runtime::WatchStreamExt::default_backoff(watcher(pods.clone(), unassigned)).map(drop);
        let node_events =
            kube::runtime::WatchStreamExt::default_backoff(watcher(nodes.clone(), watcher::Config::default()))
                .map(drop);
        let mut touched = std::pin::pin!(futures::stream::select(pod_events, node_events));
        let mut pace = Pace::default();
        loop {
            tokio::select! {
                biased;
                Some(()) = touched.next() => pace.touch(),
                () = pace.due() => {
                    let done = self.schedule(&client, &pods, &nodes).await;
                    if let Err(error) = &done {
                        tracing::debug!(%error, "scheduling pods failed and is retried");
                    }
                    pace.worked(done.is_ok());
                }
            }
        }
    }

    /// Gives every pod that waits for one a node, or the reason why it has none.
    async fn schedule(
        &self,
        client: &Client,
        pods: &Api<DynamicObject>,
        nodes: &Api<DynamicObject>,
    ) -> kube::Result<()> {
        let pods = pods.list(&ListParams::default()).await?.items;
        let waiting: Vec<&DynamicObject> = pods.iter().filter(|pod| self.is_waiting(pod)).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let nodes = nodes.list(&ListParams::default()).await?.items;
        let mut load: BTreeMap<String, usize> = BTreeMap::new();
        for pod in &pods {
            *load.entry(text(&pod.data, "/spec/nodeName").to_owned()).or_default() += 1;
        }
        let mut failed = None;
        for pod in waiting {
            let api: Api<DynamicObject> = Api::namespaced_with(
                client.clone(),
                &pod.namespace().unwrap_or_default(),
                &ApiResource::erase::<Pod>(&()),
            );
            let written = match choose(&pod.data["spec"], &nodes, &load) {
                Ok(node) => {
                    *load.entry(node.clone()).or_default() += 1;
                    let binding = json!({
                        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": pod.name_any() },
                        "target": { "kind": "Node", "name": node },
                    });
                    let (name, post) = (pod.name_any(), PostParams::default());
                    api.create_subresource::<_, Value>("binding", &name, &post, &binding).await.map(drop)
                }
                Err(message) if is_reported(pod, &message) => continue,
                Err(message) => {
                    let condition = json!({
                        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                        "lastTransitionTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                    });
                    let patch = json!({ "status": { "conditions": [condition] } });
                    api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
                }
            };
            match written {
                Err(error) if !matches!(code(&error), 404 | 409) => failed = Some(error),
                Ok(()) | Err(_) => {}
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn is_waiting(&self, pod: &DynamicObject) -> bool {
        let spec = &pod.data["spec"];
        let images = || spec["containers"].as_array().into_iter().flatten().map(|one| text(one, "/image"));
        let elsewhere = self
            .except_image
            .as_deref()
            .is_some_and(|image| images().all(|name| name.split(':').next() == Some(image)));
        text(spec, "/nodeName").is_empty()
            && matches!(text(spec, "/schedulerName"), "" | DEFAULT)
            && spec["schedulingGates"].as_array().is_none_or(Vec::is_empty)
            && pod.metadata.deletion_timestamp.is_none()
            && !matches!(text(&pod.data, "/status/phase"), "Succeeded" | "Failed")
            && !elsewhere
    }
}

fn dynamic<K: kube::Resource<DynamicType = ()>>(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<K>(&()))
}

/// The node for a pod; else why there is none, in the words of kube-scheduler.
fn choose(spec: &Value, nodes: &[DynamicObject], load: &BTreeMap<String, usize>) -> Result<String, String> {
    let mut refusals: BTreeMap<String, usize> = BTreeMap::new();
    let mut fitting = Vec::new();
    for node in nodes {
        match refusal(spec, node) {
            None => fitting.push(node.name_any()),
            Some(why) => *refusals.entry(why).or_default() += 1,
        }
    }
    let pods_on = |node: &String| load.get(node).copied().unwrap_or_default();
    fitting.into_iter().min_by_key(|node| (pods_on(node), node.clone())).ok_or_else(|| {
        if nodes.is_empty() {
            return "no nodes available to schedule pods".to_owned();
        }
        let whys: Vec<String> = refusals.iter().map(|(why, count)| format!("{count} node(s) {why}")).collect();
        format!("0/{} nodes are available: {}.", nodes.len(), whys.join(", "))
    })
}

/// Why a pod may not go to a node.
fn refusal(spec: &Value, node: &DynamicObject) -> Option<String> {
    let conditions = node.data["status"]["conditions"].as_array().into_iter().flatten();
    let is_ready = conditions.filter(|one| one["type"] == "Ready").any(|one| one["status"] == "True");
    if node.metadata.deletion_timestamp.is_some() || !is_ready {
        return Some("were not ready".to_owned());
    }
    let tolerations: Vec<&Value> = spec["tolerations"].as_array().into_iter().flatten().collect();
    let taints = node.data["spec"]["taints"].as_array().into_iter().flatten();
    let mut repelling = taints
        .filter(|taint| matches!(text(taint, "/effect"), "NoSchedule" | "NoExecute"))
        .filter(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)));
    if let Some(taint) = repelling.next() {
        return Some(format!("had untolerated taint {{{}: {}}}", text(taint, "/key"), text(taint, "/value")));
    }
    if node.data["spec"]["unschedulable"] == true {
        return Some("were unschedulable".to_owned());
    }
    let selector = spec["nodeSelector"].as_object().into_iter().flatten();
    let is_selected =
        selector.into_iter().all(|(key, value)| node.labels().get(key).map(String::as_str) == value.as_str());
    let required = spec.pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution");
    let terms = required.and_then(|required| required["nodeSelectorTerms"].as_array());
    let is_near = terms.is_none_or(|terms| terms.iter().any(|term| is_met(term, node)));
    (!is_selected || !is_near).then(|| "didn't match Pod's node affinity/selector".to_owned())
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let is_same = |field: &str| text(toleration, field) == text(taint, field);
    let (key, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
    let exists = text(toleration, "/operator") == "Exists";
    (effect.is_empty() || is_same("/effect"))
        && ((key.is_empty() && exists) || is_same("/key"))
        && (exists || is_same("/value"))
}

/// Whether a node has the labels of a term; a term without expressions matches nothing.
fn is_met(term: &Value, node: &DynamicObject) -> bool {
    let expressions = |field: &str| term[field].as_array().into_iter().flatten();
    let holds = |expression: &Value, value: Option<&str>| {
        let mut values = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let number = |text: &str| text.parse::<i64>().ok();
        match (text(expression, "/operator"), value) {
            ("In", Some(value)) => values.any(|one| one == value),
            ("NotIn", value) => value.is_none_or(|value| values.all(|one| one != value)),
            ("Exists", value) => value.is_some(),
            ("DoesNotExist", value) => value.is_none(),
            ("Gt" | "Lt", Some(value)) => {
                let numbers = number(value).zip(values.next().and_then(number));
                numbers
                    .is_some_and(|(is, than)| if text(expression, "/operator") == "Gt" { is > than } else { is < than })
            }
            _ => false,
        }
    };
    let name = node.name_any();
    let labels =
        expressions("matchExpressions").all(|one| holds(one, node.labels().get(text(one, "/key")).map(String::as_str)));
    let fields = expressions("matchFields").all(|one| text(one, "/key") == "metadata.name" && holds(one, Some(&name)));
    let is_empty = expressions("matchExpressions").next().is_none() && expressions("matchFields").next().is_none();
    labels && fields && !is_empty
}

/// Whether the pod's status says so already.
fn is_reported(pod: &DynamicObject, message: &str) -> bool {
    let mut conditions = pod.data["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == "PodScheduled" && one["status"] == "False" && one["message"] == message)
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, labels: &Value, spec: &Value) -> DynamicObject {
        let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
        let node = json!({ "metadata": { "name": name, "labels": labels }, "spec": spec, "status": ready });
        serde_json::from_value(node).unwrap()
    }

    fn chosen(spec: &Value, nodes: &[DynamicObject]) -> Result<String, String> {
        choose(spec, nodes, &BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]))
    }

    #[test]
    fn the_node_with_the_fewest_pods_is_taken() {
        let nodes = [node("a", &json!({}), &json!({})), node("b", &json!({}), &json!({}))];
        assert_eq!(chosen(&json!({}), &nodes), Ok("b".to_owned()));
        assert_eq!(choose(&json!({}), &nodes, &BTreeMap::new()), Ok("a".to_owned()));
    }

    #[test]
    fn what_keeps_a_pod_off_each_node_is_said() {
        let taint = json!({ "taints": [{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }] });
        let nodes = [
            node("a", &json!({ "zone": "west" }), &taint),
            node("b", &json!({}), &json!({ "unschedulable": true })),
            node("c", &json!({}), &json!({})),
        ];
        let spec = json!({ "nodeSelector": { "zone": "west" } });
        assert_eq!(
            chosen(&spec, &nodes).unwrap_err(),
            "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated \
             taint {gpu: yes}, 1 node(s) were unschedulable."
        );
        for toleration in [
            json!({ "operator": "Exists" }),
            json!({ "key": "gpu", "operator": "Exists", "effect": "NoSchedule" }),
            json!({ "key": "gpu", "value": "yes" }),
        ] {
            let mut spec = spec.clone();
            spec["tolerations"] = json!([toleration]);
            assert_eq!(chosen(&spec, &nodes), Ok("a".to_owned()), "{toleration}");
        }
        assert_eq!(chosen(&spec, &[]).unwrap_err(), "no nodes available to schedule pods");
    }

    #[test]
    fn required_affinity_counts() {
        let nodes =
            [node("a", &json!({ "zone": "west" }), &json!({})), node("b", &json!({ "zone": "east" }), &json!({}))];
        for (operator, values, expected) in
            [("In", json!(["west"]), "a"), ("NotIn", json!(["east"]), "a"), ("Exists", json!([]), "b")]
        {
            let expression = json!({ "key": "zone", "operator": operator, "values": values });
            let required = json!({ "nodeSelectorTerms": [{ "matchExpressions": [expression] }] });
            let spec = json!({ "affinity": { "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": required,
            } } });
            assert_eq!(chosen(&spec, &nodes), Ok(expected.to_owned()), "{operator}");
        }
    }

    #[test]
    fn pods_with_a_node_a_gate_or_another_scheduler_are_left_alone() {
        let scheduler = Scheduler { except_image: Some("portolan".to_owned()) };
        for (spec, expected) in [
            (json!({ "containers": [{ "image": "nginx" }], "schedulerName": "default-scheduler" }), true),
            (json!({ "containers": [{ "image": "portolan:1" }] }), false),
            (json!({ "containers": [{ "image": "nginx" }], "nodeName": "a" }), false),
            (json!({ "containers": [{ "image": "nginx" }], "schedulerName": "own" }), false),
            (json!({ "containers": [{ "image": "nginx" }], "schedulingGates": [{ "name": "x" }] }), false),
        ] {
            let pod = json!({ "metadata": { "name": "p" }, "spec": spec });
            assert_eq!(scheduler.is_waiting(&serde_json::from_value(pod).unwrap()), expected, "{spec}");
        }
    }
}
