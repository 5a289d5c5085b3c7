//! EndpointSlices for Services with selectors: watches in, a pure plan, the few writes it asks for.
//!
//! A slice's name is derived from its Service, its address family and its number. A plan that is carried out twice, the
//! second time from a stale cache, writes the same objects again, which changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::reconcile::{Pace, code, is_listed, watch};
use super::slim::Pod;

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Endpoints in a slice, as Kubernetes' default has it.
const MAX_ENDPOINTS: usize = 100;

/// The EndpointSlice controller.
pub struct Endpoints;

impl Endpoints {
    /// Runs until `stop`.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        stop.run_until_cancelled(Box::pin(follow(client))).await;
    }
}

async fn follow(client: Client) {
    let all = watcher::Config::default;
    let (services, service_events) = watch::<Service>(&client, all());
    let (pods, pod_events) = watch::<Pod>(&client, all());
    let (slices, slice_events) = watch::<EndpointSlice>(&client, all().labels(&format!("{MANAGED_BY}={MANAGER}")));
    let mut touched = futures::stream::select_all([service_events, pod_events, slice_events]);
    let world = World { client, services, pods, slices };
    let mut due: BTreeSet<String> = BTreeSet::new();
    let mut pace = Pace::default();
    loop {
        tokio::select! {
            biased;
            Some(namespace) = touched.next() => {
                pace.touch();
                due.extend(namespace.map_or_else(|| world.namespaces(), |namespace| BTreeSet::from([namespace])));
            }
            () = pace.due(), if world.is_ready() => {
                let mut left = BTreeSet::new();
                for namespace in std::mem::take(&mut due) {
                    if let Err(error) = world.repair(&namespace).await {
                        tracing::debug!(%error, namespace, "writing EndpointSlices failed and is retried");
                        left.insert(namespace);
                    }
                }
                due = left;
                pace.worked(due.is_empty());
            }
        }
    }
}

struct World {
    client: Client,
    services: Store<Service>,
    pods: Store<Pod>,
    slices: Store<EndpointSlice>,
}

impl World {
    /// Whether everything has been listed once.
    fn is_ready(&self) -> bool {
        is_listed(&self.services) && is_listed(&self.pods) && is_listed(&self.slices)
    }

    fn namespaces(&self) -> BTreeSet<String> {
        let services = self.services.state().into_iter().filter_map(|service| service.namespace());
        services.chain(self.slices.state().into_iter().filter_map(|slice| slice.namespace())).collect()
    }

    /// Writes the slices of a namespace that differ from the plan, and deletes those that are not in it.
    async fn repair(&self, namespace: &str) -> kube::Result<()> {
        let mut slices = within(&self.slices, namespace);
        let pods: Vec<Arc<Pod>> = within(&self.pods, namespace).into_values().collect();
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), namespace);
        for service in within(&self.services, namespace).values() {
            for slice in plan(service, &pods) {
                let name = slice.name_any();
                if slices.remove(&name).is_some_and(|old| is_same(&old, &slice)) {
                    continue;
                }
                let written = api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&slice)).await;
                // The namespace is terminating.
                if written.as_ref().err().is_some_and(|error| matches!(code(error), 403 | 404)) {
                    return Ok(());
                }
                written?;
            }
        }
        for name in slices.keys() {
            match api.delete(name, &DeleteParams::default()).await {
                Err(error) if code(&error) != 404 => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// The objects of a namespace, by name.
fn within<K: Resource<DynamicType = ()> + Clone + 'static>(
    store: &Store<K>,
    namespace: &str,
) -> BTreeMap<String, Arc<K>> {
    let objects = store.state().into_iter().filter(|object| object.meta().namespace.as_deref() == Some(namespace));
    objects.map(|object| (object.name_any(), object)).collect()
}

/// Whether two slices have the same content; an absent list counts as empty.
fn is_same(left: &EndpointSlice, right: &EndpointSlice) -> bool {
    left.endpoints.as_deref().unwrap_or_default() == right.endpoints.as_deref().unwrap_or_default()
        && left.ports.as_deref().unwrap_or_default() == right.ports.as_deref().unwrap_or_default()
        && left.metadata.labels == right.metadata.labels
        && left.metadata.owner_references == right.metadata.owner_references
}

/// The slices that a service should have; one without endpoints has an empty one.
fn plan(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSlice> {
    let spec = service.spec.clone().unwrap_or_default();
    let selector = spec.selector.unwrap_or_default();
    if selector.is_empty()
        || spec.type_.as_deref() == Some("ExternalName")
        || service.metadata.deletion_timestamp.is_some()
    {
        return Vec::new();
    }
    let chosen = |pod: &&Arc<Pod>| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let labels = pod.labels();
        !matches!(phase, Some("Succeeded" | "Failed"))
            && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    let pods: Vec<&Arc<Pod>> = pods.iter().filter(chosen).collect();
    let families = spec.ip_families.filter(|families| !families.is_empty());
    let mut slices = Vec::new();
    for family in families.unwrap_or_else(|| vec!["IPv4".to_owned()]) {
        // Pods may know different ports by the same name: one set of slices for each set of ports.
        let mut groups: Vec<(Vec<EndpointPort>, Vec<Endpoint>)> = Vec::new();
        for pod in &pods {
            let Some(endpoint) = endpoint(service, pod, &family) else { continue };
            let ports = ports(service, pod);
            match groups.iter_mut().find(|(other, _)| *other == ports) {
                Some((_, endpoints)) => endpoints.push(endpoint),
                None => groups.push((ports, vec![endpoint])),
            }
        }
        let chunks = groups.iter().flat_map(|(ports, endpoints)| {
            endpoints.chunks(MAX_ENDPOINTS).map(move |endpoints| (ports.clone(), endpoints.to_vec()))
        });
        let mut chunks: Vec<_> = chunks.collect();
        if chunks.is_empty() {
            chunks.push(Default::default());
        }
        let numbered = chunks.into_iter().enumerate();
        slices.extend(numbered.map(|(number, (ports, endpoints))| EndpointSlice {
            metadata: metadata(service, &family, number),
            address_type: family.clone(),
            endpoints: Some(endpoints).filter(|endpoints| !endpoints.is_empty()),
            ports: Some(ports).filter(|ports| !ports.is_empty()),
        }));
    }
    slices
}

fn metadata(service: &Service, family: &str, number: usize) -> ObjectMeta {
    let name = service.name_any();
    let mut labels = service.labels().clone();
    labels.remove(HEADLESS);
    let ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
    if matches!(ip, "" | "None") {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Service".to_owned(),
        name: name.clone(),
        uid: service.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    ObjectMeta {
        name: Some(format!("{name}-{}-{number:02}", family.to_lowercase().trim_start_matches("ip"))),
        generate_name: Some(format!("{name}-")),
        namespace: service.namespace(),
        labels: Some(labels),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    }
}

/// The endpoint of a pod; none without an address of the family.
fn endpoint(service: &Service, pod: &Pod, family: &str) -> Option<Endpoint> {
    let (spec, status) = (pod.spec.clone().unwrap_or_default(), pod.status.clone().unwrap_or_default());
    let addresses = status.pod_ips.iter().flatten().map(|ip| ip.ip.clone());
    let addresses: Vec<String> = addresses.filter(|ip| ip.contains(':') == (family == "IPv6")).collect();
    if addresses.is_empty() {
        return None;
    }
    let (ready, terminating) = (pod.is_ready(), pod.metadata.deletion_timestamp.is_some());
    let publish = service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses).unwrap_or_default();
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(publish || (ready && !terminating)),
            serving: Some(ready),
            terminating: Some(terminating),
        }),
        hostname: spec.hostname.filter(|_| spec.subdomain.as_deref() == service.metadata.name.as_deref()),
        node_name: spec.node_name,
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.namespace(),
            name: Some(pod.name_any()),
            uid: pod.uid(),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    })
}

fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let ports = ports.iter().filter_map(|port| {
        Some(EndpointPort {
            app_protocol: port.app_protocol.clone(),
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(number(port, pod)?),
            protocol: Some(protocol(port.protocol.as_ref())),
        })
    });
    ports.collect()
}

/// The pod's number of a service's port: its own, or that of the container port it names.
fn number(port: &ServicePort, pod: &Pod) -> Option<i32> {
    match port.target_port.as_ref() {
        None => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let wanted = protocol(port.protocol.as_ref());
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            let port =
                ports.find(|port| port.name.as_ref() == Some(name) && protocol(port.protocol.as_ref()) == wanted)?;
            Some(port.container_port)
        }
    }
}

fn protocol(protocol: Option<&String>) -> String {
    protocol.cloned().unwrap_or_else(|| "TCP".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: &Value) -> Service {
        let mut service = json!({
            "metadata": { "name": "web", "namespace": "a", "uid": "s", "labels": { "l": "v" } },
            "spec": { "clusterIP": "10.96.0.9", "ipFamilies": ["IPv4"], "selector": { "app": "a" },
                      "ports": [{ "name": "http", "port": 80, "protocol": "TCP", "targetPort": "web" }] },
        });
        json_patch::merge(&mut service["spec"], spec);
        serde_json::from_value(service).unwrap()
    }

    fn pod(name: &str, ip: &str, ready: bool) -> Value {
        json!({
            "metadata": { "name": name, "namespace": "a", "uid": name, "labels": { "app": "a" } },
            "spec": { "nodeName": "n1", "containers": [{ "name": "c", "ports": [{ "name": "web", "containerPort": 8080 }] }] },
            "status": { "phase": "Running", "podIPs": [{ "ip": ip }],
                        "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
        })
    }

    fn planned(service: &Service, pods: &[Value]) -> Vec<EndpointSlice> {
        let pods: Vec<Arc<Pod>> =
            pods.iter().map(|pod| Arc::new(serde_json::from_value(pod.clone()).unwrap())).collect();
        plan(service, &pods)
    }

    #[test]
    fn endpoints_look_as_the_real_controller_writes_them() {
        let mut terminating = pod("p2", "10.0.0.2", true);
        terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let mut ended = pod("p3", "10.0.0.3", true);
        ended["status"]["phase"] = json!("Failed");

        let slices = planned(&service(&json!({})), &[pod("p1", "10.0.0.1", false), terminating, ended]);

        let slice = serde_json::to_value(&slices[0]).unwrap();
        let endpoint = |name: &str, ip: &str, conditions: Value| {
            json!({
                "addresses": [ip], "conditions": conditions, "nodeName": "n1",
                "targetRef": { "kind": "Pod", "namespace": "a", "name": name, "uid": name },
            })
        };
        assert_eq!(
            slice["endpoints"],
            json!([
                endpoint("p1", "10.0.0.1", json!({ "ready": false, "serving": false, "terminating": false })),
                endpoint("p2", "10.0.0.2", json!({ "ready": false, "serving": true, "terminating": true })),
            ])
        );
        assert_eq!(slice["ports"], json!([{ "name": "http", "port": 8080, "protocol": "TCP" }]));
        assert_eq!(slice["metadata"]["labels"], json!({ "l": "v", SERVICE_NAME: "web", MANAGED_BY: MANAGER }));
        assert_eq!(slices.len(), 1);
    }

    #[test]
    fn slices_are_full_at_a_hundred_and_there_is_always_one() {
        let pods: Vec<Value> = (0..250).map(|n| pod(&format!("p{n}"), &format!("10.0.1.{n}"), true)).collect();
        let sizes = |slices: &[EndpointSlice]| -> Vec<usize> {
            slices.iter().map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len)).collect()
        };
        assert_eq!(sizes(&planned(&service(&json!({})), &pods)), [100, 100, 50]);
        assert_eq!(sizes(&planned(&service(&json!({})), &[])), [0]);
        assert_eq!(planned(&service(&json!({ "ipFamilies": ["IPv6"] })), &pods)[0].address_type, "IPv6");
        assert!(planned(&service(&json!({ "selector": null })), &pods).is_empty());
        assert!(planned(&service(&json!({ "type": "ExternalName" })), &pods).is_empty());
    }
}
