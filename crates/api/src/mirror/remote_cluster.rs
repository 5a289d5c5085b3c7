//! RemoteCluster: a cluster whose Services are mirrored here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A cluster that is read, and whose Services are mirrored here: for each of them a Service of the same name is made,
/// with the remote's nodes, load balancer or pods as endpoints. Nothing is ever written to the remote.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "portolan.dev",
    version = "v1alpha1",
    kind = "RemoteCluster",
    plural = "remoteclusters",
    shortname = "rcluster",
    category = "portolan",
    status = "RemoteClusterStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.targetMode"),
    printcolumn(name = "Mirrored", type_ = "integer", json_path = ".status.services.mirrored"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes.usable"),
    printcolumn(
        name = "Connected",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Connected")].status"#
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
        priority = 1
    ),
    printcolumn(name = "Server", type_ = "string", json_path = ".status.server", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "independent choices of a user")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.clusterID) == has(oldSelf.clusterID) && (!has(self.clusterID) || self.clusterID == oldSelf.clusterID)",
    "message": "spec.clusterID cannot be changed: EndpointSlices carry it. Make a new RemoteCluster instead"
}]))]
pub struct RemoteClusterSpec {
    /// Identifies the cluster on EndpointSlices (`multicluster.kubernetes.io/source-cluster`) and in suffixes of names.
    /// It cannot be changed. Empty means the name of this object.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub cluster_id: Option<String>,
    /// Watches the remote and reports, but writes nothing for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// How the remote is reached: exactly one of `kubeconfigSecret` and `gke`.
    pub credentials: Credentials,
    /// What the endpoints of mirrors are.
    #[serde(default)]
    pub target_mode: TargetMode,
    /// Which Services are mirrored.
    #[serde(default, skip_serializing_if = "is_default")]
    pub select: Select,
    /// Which namespaces are mirrored.
    #[serde(default, skip_serializing_if = "is_default")]
    pub namespaces: Namespaces,
    /// What mirrors are called.
    #[serde(default)]
    pub naming: Naming,
    /// The type of mirrors.
    #[serde(default)]
    pub mirror_type: MirrorType,
    /// What mirrors get from their sources beyond ports. Empty means nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub copy: Copy,
    /// Which addresses and ports the remote's endpoints may have.
    pub addresses: Addresses,
    /// Which of the remote's nodes take traffic.
    #[serde(default, skip_serializing_if = "is_default")]
    pub nodes: Nodes,
    /// What happens to endpoints when the remote is out of contact. Mirrors stay in any case.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stale: Stale,
    /// How many mirrors may be deleted within a while; more wait for approval.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deletion_budget: DeletionBudget,
    /// Whether mirrors go with this object.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// Most objects of the remote that are taken into account.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: Limits,
    /// Takes over the mirrors that Barrelman has made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopt_barrelman: bool,
    /// Serves Services labelled `tfw.io/barrelman: "true"` that name no remote. The oldest such object wins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default: bool,
    /// Writes Endpoints beside EndpointSlices, of the first IP family and at most 1000 addresses, for clients that read
    /// nothing else. Kubernetes has deprecated them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub write_endpoints: bool,
    /// Shares Services with the remote by the Multi-Cluster Services API: ServiceExports of both clusters become
    /// ServiceImports here. Empty means no.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mcs: Mcs,
}

/// Whether Services are shared by the Multi-Cluster Services API.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.enabled) && self.enabled || !has(self.mirrorServices) || self.mirrorServices",
    "message": "spec.mcs.mirrorServices can be false only if spec.mcs.enabled is true: else nothing of the remote is used"
}]))]
pub struct Mcs {
    /// Imports what the remote exports.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enabled: bool,
    /// Mirrors Services that are not exported, too. Empty means true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror_services: Option<bool>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// How a remote is reached.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.kubeconfigSecret) != has(self.gke)",
    "message": "spec.credentials needs exactly one of kubeconfigSecret and gke"
}]))]
pub struct Credentials {
    /// A kubeconfig in a Secret of the operator's own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret: Option<KubeconfigSecret>,
    /// A cluster of Google Kubernetes Engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gke: Option<Gke>,
}

/// A kubeconfig in a Secret. It may hold certificates and tokens, but no commands, files or proxies.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct KubeconfigSecret {
    /// Name of the Secret, in the operator's own namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its key. Empty means `kubeconfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The context to use. Empty means the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// A cluster of Google Kubernetes Engine, found by the container API.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Gke {
    /// The project.
    #[schemars(length(min = 1, max = 64))]
    pub project: String,
    /// Its zone or region.
    #[schemars(length(min = 1, max = 64))]
    pub location: String,
    /// Its name.
    #[schemars(length(min = 1, max = 64))]
    pub cluster: String,
    /// Which of its addresses is used.
    #[serde(default)]
    pub endpoint: GkeEndpoint,
    /// The key of a service account. Empty means the operator's own credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_secret: Option<KeySecret>,
    /// Certificates, in PEM, that are trusted for the DNS endpoint. Empty means the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
}

/// The key of a service account in a Secret.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct KeySecret {
    /// Name of the Secret, in the operator's own namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its key. Empty means `credentials.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Addresses of a GKE cluster.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum GkeEndpoint {
    /// The one that the cluster names first.
    #[default]
    Auto,
    /// The public IP address.
    Public,
    /// The private IP address.
    Private,
    /// The DNS name.
    #[serde(rename = "DNS")]
    Dns,
}

/// What endpoints of mirrors are.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum TargetMode {
    /// The remote's nodes, with the port that they have for the Service.
    #[default]
    NodePort,
    /// The addresses of the Service's load balancer.
    LoadBalancer,
    /// The Service's pods. The networks of both clusters must be routed to each other.
    Pod,
}

/// Which Services are mirrored.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Select {
    /// Types of Services. Empty means NodePort in target mode NodePort, LoadBalancer in mode LoadBalancer, and all
    /// three in mode Pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub service_types: Vec<ServiceType>,
    /// Labels that Services must have. Empty means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::selector")]
    pub label_selector: Option<LabelSelector>,
}

/// Types of Services that can be mirrored.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceType {
    /// Reachable inside the remote.
    ClusterIP,
    /// Reachable by a port of the remote's nodes.
    NodePort,
    /// Reachable by an address outside of the remote.
    LoadBalancer,
}

/// Which namespaces are mirrored. Names, or beginnings of names followed by `*`.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Namespaces {
    /// Only these. Empty means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "atomic"))]
    pub allow: Option<Vec<String>>,
    /// But not these. `kube-*`, `openshift*` and the operator's own namespace are always denied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "atomic"))]
    pub deny: Vec<String>,
    /// Makes namespaces that are missing here. Empty means true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<bool>,
    /// How many namespaces are made at most. Empty means 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10000))]
    pub max_created: Option<u32>,
}

/// What mirrors are called.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// Like their sources.
    #[default]
    Same,
    /// Like their sources, with `-` and the cluster id.
    Suffix,
}

/// The type of mirrors.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum MirrorType {
    /// An address inside this cluster.
    #[default]
    ClusterIP,
    /// Also the ports of nodes that the source has, as far as they are free here.
    NodePort,
}

/// What mirrors get from their sources beyond ports.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Copy {
    /// Keys of labels. Those of kubernetes.io, portolan.dev and tfw.io are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "set"))]
    pub labels: Vec<String>,
    /// Keys of annotations. Those of kubernetes.io, portolan.dev and tfw.io are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "set"))]
    pub annotations: Vec<String>,
    /// Session affinity and its timeout.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub session_affinity: bool,
}

/// Which addresses and ports endpoints may have.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Addresses {
    /// Every endpoint must lie in one of these. `0.0.0.0/0` and `::/0` mean any address. Addresses of this cluster and
    /// special ones (loopback, link-local and the like) are refused in any case.
    #[serde(rename = "allowedCIDRs")]
    #[schemars(schema_with = "schema::some_subnets")]
    pub allowed_cidrs: Vec<String>,
    /// The ports that endpoints may have, as `FIRST-LAST`. Empty means 30000-32767 in target mode NodePort, else any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]{1,5}(-[0-9]{1,5})?$"))]
    pub ports: Option<String>,
}

/// Which of the remote's nodes take traffic.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Nodes {
    /// Types of addresses, in order of preference. Empty means InternalIP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub address_types: Vec<AddressType>,
    /// Labels that nodes must have. Empty means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::selector")]
    pub label_selector: Option<LabelSelector>,
    /// Leaves out nodes with the label `node.kubernetes.io/exclude-from-external-load-balancers`. Empty means true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_labelled: Option<bool>,
    /// Leaves out cordoned nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclude_cordoned: bool,
    /// What the endpoints are while no node is ready.
    #[serde(default)]
    pub when_none_ready: WhenNoneReady,
}

/// Types of node addresses.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressType {
    /// Reachable from the remote's network.
    InternalIP,
    /// Reachable from elsewhere.
    ExternalIP,
}

/// What endpoints are while no node is ready.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum WhenNoneReady {
    /// There are none: clients fail fast.
    #[default]
    Empty,
    /// They stay as they were.
    Keep,
}

/// What happens when the remote is out of contact.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct Stale {
    /// What happens to the endpoints.
    #[serde(default)]
    pub policy: StalePolicy,
    /// For how long the remote must be out of contact, like `10m`. Empty means 10 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub after: Option<String>,
}

/// What happens to the endpoints of a remote that is out of contact.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum StalePolicy {
    /// They stay as they are.
    #[default]
    Keep,
    /// They take no traffic.
    NotReady,
    /// They are removed.
    Remove,
}

/// How many mirrors may be deleted within a while.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DeletionBudget {
    /// This share of the remote's mirrors. Empty means 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub max_percent: Option<u8>,
    /// At least so many. Empty means 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<u32>,
    /// Within this time, like `10m`. Empty means 10 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub window: Option<String>,
}

/// Whether mirrors go with their RemoteCluster.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// They are deleted.
    #[default]
    Delete,
    /// They stay, and nobody keeps them.
    Retain,
}

/// Most objects of a remote that are taken into account; the oldest come first.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Services. Empty means 5000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub services: Option<u32>,
    /// Nodes. Empty means 5000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub nodes: Option<u32>,
}

/// What was seen of a remote, and what was made of it.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RemoteClusterStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// UID of the remote's namespace `kube-system`: it identifies the cluster.
    #[serde(default, rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// Version of its API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_version: Option<String>,
    /// Where its API server is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// When the credentials expire, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_expire: Option<String>,
    /// How many nodes there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCount>,
    /// How many Services there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<ServiceCount>,
    /// The first Services that are not as they should be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub unmet: Vec<UnmetService>,
    /// Deletions that wait for approval: the annotation `mirror.portolan.dev/approve-deletions` with the hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_deletions: Option<HeldDeletions>,
    /// Accepted, Connected, Synced, Programmed and Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// How many nodes a remote has.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct NodeCount {
    /// All nodes.
    pub total: i64,
    /// Those that take traffic.
    pub usable: i64,
}

/// How many Services a remote has.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct ServiceCount {
    /// Those that should be mirrored.
    pub candidates: i64,
    /// Those that are mirrored.
    pub mirrored: i64,
    /// Mirrors that are frozen by an annotation or their namespace.
    pub frozen: i64,
    /// Those that are not as they should be.
    pub unmet: i64,
}

/// A Service that is not as it should be.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct UnmetService {
    /// Its namespace.
    pub namespace: String,
    /// Its name here.
    pub name: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, and what to do.
    pub message: String,
}

/// Deletions that wait for approval.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq)]
pub struct HeldDeletions {
    /// How many.
    pub count: i64,
    /// Names this very set.
    pub hash: String,
}
