//! Input of the planner of multi-cluster Services: validated, ordered, without Kubernetes types.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::condition::{Condition, ExportStatus};
use crate::mirror::{
    Copied, NodeName, Protocol, RecordedSlice, RemoteName, Rules, ServiceName, ServicePort, ServiceSpec, SourceSlices,
    Sync,
};
use crate::net::Family;
use crate::select::Labels;

/// Identifies a cluster in its clusterset.
pub type ClusterId = Arc<str>;

/// The clusters that share Services, as this one knows them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClusterSet {
    /// The cluster whose imports are written.
    pub local: LocalMember,
    /// The clusters that are read.
    pub remotes: BTreeMap<RemoteName, RemoteMember>,
}

/// This cluster: what it exports, and what it has of imports.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LocalMember {
    /// Its cluster id.
    pub cluster_id: ClusterId,
    /// What it exports.
    pub exports: Exports,
    /// Conditions of its ServiceExports, where all three are there.
    pub statuses: BTreeMap<ServiceName, ExportStatus>,
    /// All ServiceImports.
    pub imports: BTreeMap<ServiceName, RecordedImport>,
    /// Services of the names that imports derive, by the name of the import.
    pub derived: BTreeMap<ServiceName, RecordedDerived>,
    /// EndpointSlices of imports, by the name of the import and their own.
    pub slices: BTreeMap<ServiceName, BTreeMap<Arc<str>, RecordedImportSlice>>,
}

/// A cluster that is only read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RemoteMember {
    /// What the user decided about it; its cluster id is there.
    pub rules: Rules,
    /// UID of its RemoteCluster; empty for the remote of the flags.
    pub uid: Arc<str>,
    /// How much is known of its exports and the Services and EndpointSlices they name.
    pub sync: Sync,
    /// Out of contact for longer than its stale policy allows.
    pub stale: bool,
    /// Nothing is written for it.
    pub paused: bool,
    /// What it exports.
    pub exports: Exports,
}

/// What a cluster exports.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exports {
    /// Its ServiceExports.
    pub exports: BTreeMap<ServiceName, Export>,
    /// Its Services; those without an export are ignored.
    pub services: BTreeMap<ServiceName, ExportedService>,
    /// The EndpointSlices of these Services.
    pub slices: SourceSlices,
}

/// A ServiceExport.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Export {
    /// Creation time in seconds.
    pub created: i64,
    /// `spec.exportedLabels`.
    pub labels: Labels,
    /// `spec.exportedAnnotations`.
    pub annotations: Labels,
    /// It is being deleted.
    pub deleting: bool,
}

/// A Service that an export may name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExportedService {
    /// What of its spec mirrors share.
    pub spec: ServiceSpec,
    /// Which endpoints clients inside the cluster reach.
    pub internal_traffic_policy: InternalTrafficPolicy,
    /// Which endpoints are preferred.
    pub traffic_distribution: Option<Arc<str>>,
    /// It is itself made for the Services of other clusters.
    pub is_mirror: bool,
    /// It is being deleted.
    pub deleting: bool,
}

/// Which endpoints clients inside a cluster reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InternalTrafficPolicy {
    /// All of them.
    #[default]
    Cluster,
    /// Those on their own node.
    Local,
}

impl InternalTrafficPolicy {
    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Local => "Local",
        }
    }
}

/// How an import is reachable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ImportType {
    /// By an address of the importing cluster.
    #[default]
    ClusterSetIp,
    /// By the addresses of its endpoints.
    Headless,
}

impl ImportType {
    /// As the MCS API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterSetIp => "ClusterSetIP",
            Self::Headless => "Headless",
        }
    }
}

/// A port of an import, and of the Service derived from it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImportPort {
    /// Its name; empty only where it is the only one.
    pub name: Arc<str>,
    /// Its transport.
    pub protocol: Protocol,
    /// What is spoken on it.
    pub app_protocol: Option<Arc<str>>,
    /// Its number.
    pub port: u16,
}

impl From<&ServicePort> for ImportPort {
    fn from(port: &ServicePort) -> Self {
        let ServicePort { name, protocol, app_protocol, port, .. } = port;
        Self { name: name.clone(), protocol: *protocol, app_protocol: app_protocol.clone(), port: *port }
    }
}

/// The spec of a ServiceImport.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportSpec {
    /// Its ports: those of the oldest export first.
    pub ports: Vec<ImportPort>,
    /// Its addresses, in the order of the families.
    pub ips: Vec<IpAddr>,
    /// How it is reachable.
    pub import_type: ImportType,
    /// Seconds for which a client stays with an endpoint. None: no affinity.
    pub session_affinity: Option<u32>,
    /// Its families in order; at most two.
    pub families: Vec<Family>,
    /// Which endpoints clients inside a cluster reach.
    pub internal_traffic_policy: InternalTrafficPolicy,
    /// Which endpoints are preferred.
    pub traffic_distribution: Option<Arc<str>>,
}

/// A ServiceImport as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedImport {
    /// Its UID.
    pub uid: Arc<str>,
    /// We made it; otherwise it is never touched.
    pub managed: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// Its spec.
    pub spec: ImportSpec,
    /// Labels and annotations that it has from exports.
    pub exported: Copied,
    /// Annotation `multicluster.kubernetes.io/derived-service`.
    pub derived: Option<Arc<str>>,
    /// `status.clusters`.
    pub clusters: BTreeSet<ClusterId>,
    /// Condition `Ready`.
    pub ready: Option<Condition>,
}

/// The spec of the Service that gives an import its addresses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DerivedSpec {
    /// Its ports; endpoints have their own numbers.
    pub ports: Vec<ImportPort>,
    /// Its families in order; two of them ask for dual stack.
    pub families: Vec<Family>,
    /// Seconds for which a client stays with an endpoint. None: no affinity.
    pub session_affinity: Option<u32>,
    /// Which endpoints clients inside the cluster reach.
    pub internal_traffic_policy: InternalTrafficPolicy,
    /// Which endpoints are preferred.
    pub traffic_distribution: Option<Arc<str>>,
}

/// The Service that gives an import its addresses, as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedDerived {
    /// Its UID.
    pub uid: Arc<str>,
    /// We made it; otherwise it is never touched.
    pub managed: bool,
    /// UID of the ServiceImport in its ownerReferences.
    pub import_uid: Option<Arc<str>>,
    /// It is being deleted.
    pub deleting: bool,
    /// Its addresses.
    pub cluster_ips: Vec<IpAddr>,
    /// Its spec.
    pub spec: DerivedSpec,
}

/// An EndpointSlice of an import, as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedImportSlice {
    /// What all our slices have. The remote of this cluster's own endpoints is empty, and the owner is the derived
    /// Service, or the import if that is headless.
    pub slice: RecordedSlice,
    /// Label `kubernetes.io/service-name`: the derived Service.
    pub service_name: Option<Arc<str>>,
    /// Nodes of endpoints, for those of this cluster.
    pub nodes: BTreeMap<IpAddr, NodeName>,
}
