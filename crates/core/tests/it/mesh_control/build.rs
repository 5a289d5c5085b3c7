//! Small worlds: objects from YAML, pods and Services from a few words.

use std::sync::Arc;

use portolan_core::mesh::control::types::{MeshKind, ObjectName};
use portolan_core::mesh::control::*;
use portolan_core::select::Labels;
use serde_json::Value;

/// A name, `namespace/name` or in `default`.
pub(super) fn name(text: &str) -> ObjectName {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    ObjectName::new(namespace, name)
}

/// YAML of one value.
pub(super) fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("the test has YAML")
}

/// A world that grows by small sentences.
#[derive(Clone, Default)]
pub(super) struct Builder {
    pub(super) world: World,
    age: i64,
}

impl Builder {
    /// Goes on from a world.
    pub(super) fn of(world: World) -> Self {
        Self { world, age: 0 }
    }

    /// Adds objects: `MeshKind name: spec`, one YAML map.
    pub(super) fn objects(mut self, text: &str) -> Self {
        let Value::Object(all) = yaml(text) else { unreachable!("a map of objects") };
        // in the order of writing, which a map does not keep: age follows the text
        let mut all: Vec<(String, Value)> = all.into_iter().collect();
        all.sort_by_key(|(key, _)| text.find(&format!("{key}:")));
        for (key, spec) in all {
            let (kind, name) = key.split_once(' ').expect("kind and name");
            self = self.object(kind, name, spec);
        }
        self
    }

    pub(super) fn object(mut self, kind: &str, of: &str, spec: Value) -> Self {
        self.age += 1;
        let object = MeshObject {
            uid: Arc::from(format!("uid-{of}")),
            created: self.age,
            spec: Arc::new(spec),
            ..MeshObject::default()
        };
        self.world.objects.insert((kind_of(kind), name(of)), object);
        self
    }

    /// Annotates an object, Service or Namespace.
    pub(super) fn annotate(mut self, kind: &str, of: &str, key: &str, value: &str) -> Self {
        let labels = [(key, value)].into_iter().collect();
        match kind {
            "Namespace" => drop(self.world.namespaces.insert(Arc::from(of), labels)),
            "Service" => self.world.services.get_mut(&name(of)).unwrap().annotations = labels,
            _ => self.world.objects.get_mut(&(kind_of(kind), name(of))).unwrap().annotations = labels,
        }
        self
    }

    /// A Service with its selector `app: X` and ports like `UDP 9999`.
    pub(super) fn service(mut self, of: &str, app: &str, ports: &[(&str, u16)]) -> Self {
        let port = |(protocol, port): &(&str, u16)| ServicePort {
            protocol: Arc::from(*protocol),
            port: *port,
            ..ServicePort::default()
        };
        let service = Service {
            uid: Arc::from(format!("uid-{of}")),
            selector: if app.is_empty() { Labels::default() } else { [("app", app)].into_iter().collect() },
            ports: ports.iter().map(port).collect(),
            ..Service::default()
        };
        self.world.services.insert(name(of), service);
        self
    }

    /// A pod `app: X` that runs a proxy.
    pub(super) fn proxy(self, of: &str, app: &str, address: &str) -> Self {
        self.pod(of, app, address, true)
    }

    /// A pod `app: X` without one.
    pub(super) fn naked(self, of: &str, app: &str, address: &str) -> Self {
        self.pod(of, app, address, false)
    }

    fn pod(mut self, of: &str, app: &str, address: &str, proxy: bool) -> Self {
        let address = address.parse().unwrap();
        let pod = Pod {
            labels: [("app", app), ("l7mp.io/proxy", if proxy { "true" } else { "false" })].into_iter().collect(),
            addresses: vec![address],
            node: Arc::from("n1"),
            host_addresses: vec!["192.0.2.1".parse().unwrap()],
            ready: true,
            ..Pod::default()
        };
        self.world.pods.insert(name(of), pod);
        self
    }

    /// Changes a pod.
    pub(super) fn with_pod(mut self, of: &str, change: impl FnOnce(&mut Pod)) -> Self {
        change(self.world.pods.get_mut(&name(of)).unwrap());
        self
    }

    /// The EndpointSlice of a Service, from its pods as they are.
    pub(super) fn slices(mut self) -> Self {
        self.world.slices = slices(&self.world);
        self
    }

    pub(super) fn l7mp(mut self, pod: &str) -> Self {
        self.world
            .proxies
            .insert(name(pod), ProxyInfo { implementation: ProxyImplementation::L7mp, foreign_ports: Vec::new() });
        self
    }

    pub(super) fn plan(&self) -> Plan {
        plan(&self.world)
    }
}

/// What Kubernetes would write for Services with selectors.
pub(super) fn slices(world: &World) -> std::collections::BTreeMap<ObjectName, EndpointSlice> {
    let mut slices = std::collections::BTreeMap::new();
    for (service_name, service) in world.services.iter().filter(|(_, service)| !service.selector.is_empty()) {
        let of_service = |(pod_name, pod): &(&ObjectName, &Pod)| {
            pod_name.namespace == service_name.namespace
                && service.selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
        };
        let endpoint = |(pod_name, pod): (&ObjectName, &Pod)| {
            Some(SliceEndpoint {
                address: *pod.addresses.first()?,
                ready: pod.ready && !pod.terminating && !pod.ended,
                serving: pod.ready && !pod.ended,
                terminating: pod.terminating,
                pod: Some(pod_name.clone()),
            })
        };
        let endpoints = world.pods.iter().filter(of_service).filter_map(endpoint).collect();
        let ports = service
            .ports
            .iter()
            .map(|port| SlicePort { name: Arc::clone(&port.name), port: port.target_port.unwrap_or(port.port) });
        let slice = EndpointSlice { service: Arc::clone(&service_name.name), ports: ports.collect(), endpoints };
        slices.insert(ObjectName::new(Arc::clone(&service_name.namespace), format!("{}-1", service_name.name)), slice);
    }
    slices
}

pub(super) fn kind_of(word: &str) -> MeshKind {
    match word {
        "VirtualService" => MeshKind::VirtualService,
        "Route" => MeshKind::Route,
        "Target" => MeshKind::Target,
        "Rule" => MeshKind::Rule,
        other => unreachable!("no kind {other}"),
    }
}

/// Shorthands to look at a plan.
pub(super) trait Look {
    fn on(&self, pod: &str) -> wire::ProxyConfig;
    fn verdict_of(&self, kind: &str, of: &str) -> ObjectStatus;
    /// Reasons of a VirtualService: refusal, then unmet, then notes.
    fn reasons(&self, kind: &str, of: &str) -> Vec<&'static str>;
    fn generated_names(&self) -> Vec<String>;
}

impl Look for Plan {
    fn on(&self, pod: &str) -> wire::ProxyConfig {
        self.desired.get(&name(pod)).cloned().unwrap_or_default()
    }

    fn verdict_of(&self, kind: &str, of: &str) -> ObjectStatus {
        self.statuses[&(kind_of(kind), name(of))].clone()
    }

    fn reasons(&self, kind: &str, of: &str) -> Vec<&'static str> {
        let verdict = self.verdict_of(kind, of);
        let all = verdict.refused.iter().chain(&verdict.unmet).chain(&verdict.diagnostics);
        all.map(|note| note.reason.as_str()).collect()
    }

    fn generated_names(&self) -> Vec<String> {
        self.generated.keys().map(|(kind, name)| format!("{} {name}", kind.as_str())).collect()
    }
}

/// Addresses of a cluster, in order; draining ones with a mark.
pub(super) fn addresses(config: &wire::ProxyConfig, cluster: &str) -> Vec<String> {
    let found = config.clusters.get(cluster).unwrap_or_else(|| unreachable!("{cluster} is not among {config:#?}"));
    let address = |endpoint: &wire::Endpoint| {
        let address = endpoint.spec["address"].as_str().unwrap();
        if endpoint.draining { format!("{address} draining") } else { address.to_owned() }
    };
    found.endpoints.iter().map(address).collect()
}
