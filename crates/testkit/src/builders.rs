//! Short ways to write the objects that tests are full of.
//!
//! Each function returns a [`Build`] with sensible contents; setters change what a test is about, and
//! [`Build::build`] gives the plain k8s-openapi object. Nodes are of the whole cluster: tests that share a
//! control plane give them names of their own.

use std::fmt::Debug;

use k8s_openapi::{
    api::{
        core::v1::{
            Container, Namespace, Node, NodeAddress, NodeCondition, NodeStatus, Pod, PodCondition, PodIP, PodSpec,
            PodStatus, Service, ServicePort, ServiceSpec,
        },
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

/// The label that names a node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The label that names the Service of an `EndpointSlice`.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// An object being built.
#[derive(Debug, Clone)]
pub struct Build<K>(K);

/// A Node that is ready.
pub fn node(name: &str) -> Build<Node> {
    let ready = NodeCondition { type_: "Ready".into(), status: "True".into(), ..NodeCondition::default() };
    let status = NodeStatus { conditions: Some(vec![ready]), ..NodeStatus::default() };
    Build(Node { metadata: named(name), status: Some(status), ..Node::default() })
}

/// A Pod that runs and is ready, on no node and without an address.
pub fn pod(namespace: &str, name: &str) -> Build<Pod> {
    let image = Some("registry.k8s.io/pause:3.10".into());
    let container = Container { name: "main".into(), image, ..Container::default() };
    let spec = PodSpec { containers: vec![container], ..PodSpec::default() };
    let ready = PodCondition { type_: "Ready".into(), status: "True".into(), ..PodCondition::default() };
    let status = PodStatus { phase: Some("Running".into()), conditions: Some(vec![ready]), ..PodStatus::default() };
    Build(Pod { metadata: within(namespace, name), spec: Some(spec), status: Some(status) })
}

/// A Service of type `ClusterIP`, without ports or a selector.
pub fn service(namespace: &str, name: &str) -> Build<Service> {
    let spec = Some(ServiceSpec::default());
    Build(Service { metadata: within(namespace, name), spec, ..Service::default() })
}

/// An `EndpointSlice` for IPv4, without endpoints or ports.
pub fn endpoint_slice(namespace: &str, name: &str) -> Build<EndpointSlice> {
    let metadata = within(namespace, name);
    Build(EndpointSlice { metadata, address_type: "IPv4".into(), endpoints: None, ports: None })
}

/// A Namespace.
pub fn namespace(name: &str) -> Build<Namespace> {
    Build(Namespace { metadata: named(name), ..Namespace::default() })
}

/// Creates an object together with its status, which a plain create leaves out.
pub async fn create<K>(api: &Api<K>, object: &K) -> anyhow::Result<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let created = api.create(&PostParams::default(), object).await?;
    match serde_json::to_value(object)?.get("status") {
        Some(status) => {
            let patch = Patch::Merge(json!({ "status": status }));
            Ok(api.patch_status(&created.name_any(), &PatchParams::default(), &patch).await?)
        }
        None => Ok(created),
    }
}

impl<K: Resource> Build<K> {
    /// Sets a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0.labels_mut().insert(key.into(), value.into());
        self
    }

    /// Sets an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.0.annotations_mut().insert(key.into(), value.into());
        self
    }

    /// Adds a finalizer.
    #[must_use]
    pub fn finalizer(mut self, name: &str) -> Self {
        self.0.finalizers_mut().push(name.into());
        self
    }

    /// Makes `owner`, which the API server has made, an owner of the object.
    #[must_use]
    pub fn owned_by<O: Resource<DynamicType = ()>>(mut self, owner: &O) -> Self {
        self.0.owner_references_mut().extend(owner.owner_ref(&()));
        self
    }

    /// The object.
    pub fn build(self) -> K {
        self.0
    }
}

impl Build<Node> {
    /// Says that the node is not ready.
    #[must_use]
    pub fn not_ready(mut self) -> Self {
        for condition in self.status().conditions.iter_mut().flatten() {
            condition.status = "False".into();
        }
        self
    }

    /// Adds an address within the cluster.
    #[must_use]
    pub fn address(self, address: &str) -> Self {
        self.address_of("InternalIP", address)
    }

    /// Adds an address of another type, such as `ExternalIP` or `Hostname`.
    #[must_use]
    pub fn address_of(mut self, kind: &str, address: &str) -> Self {
        let address = NodeAddress { type_: kind.into(), address: address.into() };
        self.status().addresses.get_or_insert_default().push(address);
        self
    }

    /// Puts the node into a zone.
    #[must_use]
    pub fn zone(self, zone: &str) -> Self {
        self.label(ZONE, zone)
    }

    fn status(&mut self) -> &mut NodeStatus {
        self.0.status.get_or_insert_default()
    }
}

impl Build<Pod> {
    /// Puts the pod on a node.
    #[must_use]
    pub fn on(mut self, node: &str) -> Self {
        self.0.spec.get_or_insert_default().node_name = Some(node.into());
        self
    }

    /// Adds an address; the first is the primary one.
    #[must_use]
    pub fn ip(mut self, ip: &str) -> Self {
        let status = self.status();
        status.pod_ip.get_or_insert_with(|| ip.into());
        status.pod_ips.get_or_insert_default().push(PodIP { ip: ip.into() });
        self
    }

    /// Sets the phase, such as `Pending` or `Succeeded`.
    #[must_use]
    pub fn phase(mut self, phase: &str) -> Self {
        self.status().phase = Some(phase.into());
        self
    }

    /// Says that the pod is not ready.
    #[must_use]
    pub fn not_ready(mut self) -> Self {
        for condition in self.status().conditions.iter_mut().flatten() {
            condition.status = "False".into();
        }
        self
    }

    fn status(&mut self) -> &mut PodStatus {
        self.0.status.get_or_insert_default()
    }
}

impl Build<Service> {
    /// Selects pods by a label.
    #[must_use]
    pub fn selects(mut self, key: &str, value: &str) -> Self {
        self.spec().selector.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    /// Adds a TCP port that leads to the same port of the pods.
    #[must_use]
    pub fn port(self, name: &str, port: u16) -> Self {
        self.port_of("TCP", name, port, port)
    }

    /// Adds a port of a protocol that leads to `target` of the pods.
    #[must_use]
    pub fn port_of(mut self, protocol: &str, name: &str, port: u16, target: u16) -> Self {
        let port = ServicePort {
            name: Some(name.into()),
            protocol: Some(protocol.into()),
            port: port.into(),
            target_port: Some(IntOrString::Int(target.into())),
            ..ServicePort::default()
        };
        self.spec().ports.get_or_insert_default().push(port);
        self
    }

    /// Sets the type, such as `LoadBalancer` or `NodePort`.
    #[must_use]
    pub fn of_type(mut self, kind: &str) -> Self {
        self.spec().type_ = Some(kind.into());
        self
    }

    /// Gives the service no address of its own.
    #[must_use]
    pub fn headless(mut self) -> Self {
        self.spec().cluster_ip = Some("None".into());
        self
    }

    fn spec(&mut self) -> &mut ServiceSpec {
        self.0.spec.get_or_insert_default()
    }
}

impl Build<EndpointSlice> {
    /// Makes the slice one of a Service's.
    #[must_use]
    pub fn of_service(self, service: &str) -> Self {
        self.label(SERVICE_NAME, service)
    }

    /// Sets the type of the addresses: `IPv4`, `IPv6` or `FQDN`.
    #[must_use]
    pub fn address_type(mut self, kind: &str) -> Self {
        self.0.address_type = kind.into();
        self
    }

    /// Adds a TCP port.
    #[must_use]
    pub fn port(self, name: &str, port: u16) -> Self {
        self.port_of("TCP", name, port)
    }

    /// Adds a port of a protocol.
    #[must_use]
    pub fn port_of(mut self, protocol: &str, name: &str, port: u16) -> Self {
        let port = EndpointPort {
            name: Some(name.into()),
            protocol: Some(protocol.into()),
            port: Some(port.into()),
            ..EndpointPort::default()
        };
        self.0.ports.get_or_insert_default().push(port);
        self
    }

    /// Adds an endpoint that is ready.
    #[must_use]
    pub fn endpoint(self, address: &str) -> Self {
        self.endpoint_like(address, true, None)
    }

    /// Adds an endpoint, ready or not, on a node if one is given.
    #[must_use]
    pub fn endpoint_like(mut self, address: &str, ready: bool, node: Option<&str>) -> Self {
        let conditions = EndpointConditions { ready: Some(ready), ..EndpointConditions::default() };
        self.0.endpoints.get_or_insert_default().push(Endpoint {
            addresses: vec![address.into()],
            conditions: Some(conditions),
            node_name: node.map(Into::into),
            ..Endpoint::default()
        });
        self
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }
}

fn within(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta { namespace: Some(namespace.into()), ..named(name) }
}
