//! How the mirror runs.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use portolan_core::mirror::Rules;
use portolan_drivers::gke::{self, ClusterName};

/// How the mirror runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// The namespace of the operator: Secrets of RemoteClusters are read there.
    pub operator_namespace: String,
    /// This cluster's id in its clusterset. None: the beginning of the UID of namespace `kube-system`.
    pub cluster_id: Option<String>,
    /// The remote of the flags.
    pub flags_remote: Option<FlagsRemote>,
    /// Further ranges of this cluster: never endpoints of a remote.
    pub local_cidrs: Vec<IpNet>,
    /// Endpoints in one EndpointSlice.
    pub slice_size: usize,
    /// Most Services whose EndpointSlices are written at a time.
    pub slice_writes: usize,
    /// Most Services and namespaces that are written at a time.
    pub service_writes: usize,
    /// Most writes in a second; twice as many at once.
    pub write_qps: u32,
    /// One RemoteCluster's status is written at most this often.
    pub status_interval: Duration,
    /// How often everything is decided anew.
    pub resync_period: Duration,
    /// Remotes may be on this machine: for tests.
    pub allow_loopback: bool,
    /// Where Google's APIs are.
    pub gke: gke::Options,
    /// A Google key file, for remotes that name no key.
    pub google_key_file: Option<PathBuf>,
    /// The host of Google's metadata server, for remotes without any key.
    pub google_metadata_host: String,
    /// A cluster that cannot be reached is looked up again at most this often.
    pub google_lookup_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            operator_namespace: "default".to_owned(),
            cluster_id: None,
            flags_remote: None,
            local_cidrs: Vec::new(),
            slice_size: 100,
            slice_writes: 4,
            service_writes: 2,
            write_qps: 200,
            status_interval: Duration::from_secs(5),
            resync_period: Duration::from_hours(2),
            allow_loopback: false,
            gke: gke::Options::default(),
            google_key_file: None,
            google_metadata_host: "metadata.google.internal".to_owned(),
            google_lookup_interval: Duration::from_secs(30),
        }
    }
}

/// A remote that flags describe instead of a RemoteCluster, as Barrelman has it.
#[derive(Debug, Clone)]
pub struct FlagsRemote {
    /// Its name, which is also its cluster id.
    pub name: String,
    /// How it is reached.
    pub source: FlagsSource,
    /// Its rules.
    pub rules: Rules,
    /// Endpoints are written beside EndpointSlices.
    pub writes_endpoints: bool,
    /// The hash of held deletions that may be made.
    pub approved: Option<String>,
}

/// How the remote of the flags is reached.
#[derive(Debug, Clone)]
pub enum FlagsSource {
    /// A GKE cluster, with the process's own credentials.
    Gke(ClusterName),
    /// A kubeconfig file.
    Kubeconfig { path: PathBuf, context: Option<String> },
}
