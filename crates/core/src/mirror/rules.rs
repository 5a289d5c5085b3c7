//! What the user decided about a remote: the checked form of a RemoteCluster, or of the operator's flags.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::types::{AddressKind, NamespacePattern, ServiceName, ServiceType};
use crate::select::Selector;

/// The rules of one remote.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Identifies the cluster, on EndpointSlices and in suffixes.
    pub cluster_id: Arc<str>,
    /// What endpoints of mirrors are.
    pub target: TargetMode,
    /// Service types that are mirrored.
    pub service_types: BTreeSet<ServiceType>,
    /// Labels that Services must have.
    pub selector: Selector,
    /// Which namespaces are mirrored, and whether they are made.
    pub namespaces: NamespaceRules,
    /// What mirrors are called.
    pub naming: Naming,
    /// The type of mirrors.
    pub mirror_type: MirrorType,
    /// What is copied beyond ports.
    pub copy: CopyRules,
    /// Ranges in which every endpoint must lie.
    pub allowed: Vec<IpNet>,
    /// Port numbers that endpoints may have, inclusive.
    pub ports: (u16, u16),
    /// Which nodes take traffic.
    pub nodes: NodeRules,
    /// What happens to endpoints when the remote is out of contact.
    pub stale: StalePolicy,
    /// How many mirrors may be deleted in a while.
    pub deletions: DeletionBudget,
    /// Mirrors go with their RemoteCluster.
    pub owned: bool,
    /// Most Services and nodes that are taken into account.
    pub limits: Limits,
    /// Takes over the mirrors of Barrelman.
    pub adopts: bool,
    /// Serves hand-labelled Services that name no remote; the oldest such remote wins, by this creation time.
    pub default_since: Option<i64>,
}

/// What endpoints of mirrors are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TargetMode {
    /// Nodes, with the port that they have for the Service.
    #[default]
    NodePort,
    /// Addresses of the Service's load balancer.
    LoadBalancer,
    /// The Service's own endpoints.
    Pod,
}

/// Which namespaces are mirrored.
#[derive(Debug, Clone, PartialEq)]
pub struct NamespaceRules {
    /// Only these. None: all.
    pub allow: Option<Vec<NamespacePattern>>,
    /// But not these.
    pub deny: Vec<NamespacePattern>,
    /// Mirrors in a denied namespace are left alone, as Barrelman does; otherwise they are deleted.
    pub denied_are_frozen: bool,
    /// Protected namespaces that are mirrored all the same.
    pub lifted: Vec<NamespacePattern>,
    /// Missing namespaces are made.
    pub create: bool,
    /// Most namespaces that are made.
    pub max_created: usize,
}

/// What mirrors are called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Naming {
    /// Like their sources.
    #[default]
    Same,
    /// Like their sources, with `-` and the cluster id.
    Suffix,
}

/// The type of mirrors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MirrorType {
    /// An address inside this cluster.
    #[default]
    ClusterIp,
    /// Also the port of every node that the source has.
    NodePort,
}

/// What is copied from source to mirror, beyond ports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyRules {
    /// Keys of labels.
    pub labels: BTreeSet<Arc<str>>,
    /// Keys of annotations.
    pub annotations: BTreeSet<Arc<str>>,
    /// Session affinity.
    pub session_affinity: bool,
}

/// Which nodes take traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeRules {
    /// Kinds of addresses, in order of preference.
    pub addresses: Vec<AddressKind>,
    /// Labels that nodes must have.
    pub selector: Selector,
    /// Leaves out nodes that are excluded from load balancers.
    pub exclude_labelled: bool,
    /// Leaves out cordoned nodes.
    pub exclude_cordoned: bool,
    /// Without a usable node, endpoints stay as they were.
    pub keep_when_none: bool,
}

/// What happens to endpoints when the remote is out of contact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StalePolicy {
    /// They stay.
    #[default]
    Keep,
    /// They take no traffic.
    NotReady,
    /// They go.
    Remove,
}

/// How many mirrors may be deleted within a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletionBudget {
    /// This share of the remote's mirrors.
    pub max_percent: u8,
    /// At least so many.
    pub floor: usize,
    /// Within this time.
    pub window: Duration,
}

/// Most objects of a remote that are taken into account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Services that qualify.
    pub services: usize,
    /// Nodes.
    pub nodes: usize,
}

impl Default for Rules {
    /// The defaults of a RemoteCluster, with every address allowed.
    fn default() -> Self {
        let any = ["0.0.0.0/0", "::/0"].map(|range| range.parse().expect("a range"));
        Self {
            cluster_id: "".into(),
            target: TargetMode::NodePort,
            service_types: BTreeSet::from([ServiceType::NodePort]),
            selector: Selector::default(),
            namespaces: NamespaceRules::default(),
            naming: Naming::Same,
            mirror_type: MirrorType::ClusterIp,
            copy: CopyRules::default(),
            allowed: any.to_vec(),
            ports: (30000, 32767),
            nodes: NodeRules::default(),
            stale: StalePolicy::Keep,
            deletions: DeletionBudget::default(),
            owned: true,
            limits: Limits { services: 5000, nodes: 5000 },
            adopts: false,
            default_since: None,
        }
    }
}

impl Default for NamespaceRules {
    fn default() -> Self {
        Self {
            allow: None,
            deny: Vec::new(),
            denied_are_frozen: false,
            lifted: Vec::new(),
            create: true,
            max_created: 100,
        }
    }
}

impl Default for NodeRules {
    fn default() -> Self {
        Self {
            addresses: vec![AddressKind::Internal],
            selector: Selector::default(),
            exclude_labelled: true,
            exclude_cordoned: false,
            keep_when_none: false,
        }
    }
}

impl Default for DeletionBudget {
    fn default() -> Self {
        Self { max_percent: 30, floor: 10, window: Duration::from_mins(10) }
    }
}

impl Rules {
    /// The local name of a source.
    pub fn local_name(&self, source: &ServiceName) -> ServiceName {
        match self.naming {
            Naming::Same => source.clone(),
            Naming::Suffix => {
                ServiceName::new(source.namespace.clone(), format!("{}-{}", source.name, self.cluster_id))
            }
        }
    }

    /// The name of the source of a local Service, if it can have one.
    pub fn source_name(&self, local: &ServiceName) -> Option<ServiceName> {
        match self.naming {
            Naming::Same => Some(local.clone()),
            Naming::Suffix => {
                let name = local.name.strip_suffix(&*self.cluster_id)?.strip_suffix('-')?;
                (!name.is_empty()).then(|| ServiceName::new(local.namespace.clone(), name))
            }
        }
    }
}
