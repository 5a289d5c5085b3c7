//! The flags of the mirror: those of Barrelman under their names, and ours.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, FromArgMatches as _};
use ipnet::IpNet;
use portolan_core::mirror::{MirrorType, NamespacePattern, NamespaceRules, NodeRules, Rules};
use portolan_drivers::gke::{self, ClusterName};

use super::settings::{FlagsRemote, FlagsSource, Options};
use super::start;
use crate::runtime::capability::{OptionsError, Platform, Starter};
use crate::runtime::duration;

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "flags of capabilities begin with their name")]
pub(super) struct MirrorArgs {
    /// Google project of the remote cluster that the flags describe
    #[arg(
        long,
        visible_alias = "remote-project",
        env = "PORTOLAN_MIRROR_REMOTE_PROJECT",
        value_name = "NAME",
        help_heading = "Mirror"
    )]
    mirror_remote_project: Option<String>,

    /// Its zone or region
    #[arg(
        long,
        visible_alias = "remote-zone",
        env = "PORTOLAN_MIRROR_REMOTE_ZONE",
        value_name = "NAME",
        default_value = "europe-west1-c",
        help_heading = "Mirror"
    )]
    mirror_remote_zone: String,

    /// Its name in Google Kubernetes Engine
    #[arg(
        long,
        visible_alias = "remote-cluster-name",
        env = "PORTOLAN_MIRROR_REMOTE_CLUSTER_NAME",
        value_name = "NAME",
        help_heading = "Mirror"
    )]
    mirror_remote_cluster_name: Option<String>,

    /// Kubeconfig of the remote cluster that the flags describe, instead of one of Google
    #[arg(
        long,
        alias = "remote-kubeconfig",
        env = "PORTOLAN_MIRROR_REMOTE_KUBECONFIG",
        value_name = "FILE",
        conflicts_with_all = ["mirror_remote_project", "mirror_remote_cluster_name"],
        help_heading = "Mirror"
    )]
    mirror_remote_kubeconfig: Option<PathBuf>,

    /// Context in that kubeconfig; its current one by default
    #[arg(
        long,
        alias = "remote-context",
        env = "PORTOLAN_MIRROR_REMOTE_CONTEXT",
        value_name = "NAME",
        requires = "mirror_remote_kubeconfig",
        help_heading = "Mirror"
    )]
    mirror_remote_context: Option<String>,

    /// Name of the remote cluster that the flags describe, on the objects made for it
    #[arg(
        long,
        alias = "remote-name",
        env = "PORTOLAN_MIRROR_REMOTE_NAME",
        value_name = "NAME",
        default_value = "barrelman",
        help_heading = "Mirror"
    )]
    mirror_remote_name: String,

    /// Only these addresses may be endpoints of the remote that the flags describe; any by default
    #[arg(
        long,
        alias = "remote-address-cidr",
        env = "PORTOLAN_MIRROR_REMOTE_ADDRESS_CIDR",
        value_name = "CIDR",
        value_delimiter = ',',
        help_heading = "Mirror"
    )]
    mirror_remote_address_cidr: Vec<IpNet>,

    /// Give mirrors of the remote that the flags describe the nodePorts of their sources
    #[arg(
        long,
        visible_alias = "nodeportsvc",
        env = "PORTOLAN_MIRROR_NODEPORTSVC",
        value_name = "BOOL",
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = clap::ArgAction::Set,
        help_heading = "Mirror"
    )]
    mirror_nodeportsvc: bool,

    /// Leave out this namespace of the remote that the flags describe, besides kube-system; with a dash before it, do not
    #[arg(
        long,
        visible_alias = "ignore-namespace",
        env = "PORTOLAN_MIRROR_IGNORE_NAMESPACE",
        value_name = "NAME",
        value_delimiter = ',',
        allow_hyphen_values = true,
        help_heading = "Mirror"
    )]
    mirror_ignore_namespace: Vec<String>,

    /// Write Endpoints beside EndpointSlices, for the remote that the flags describe: Kubernetes has deprecated them
    #[arg(long, alias = "write-endpoints", env = "PORTOLAN_MIRROR_WRITE_ENDPOINTS", help_heading = "Mirror")]
    mirror_write_endpoints: bool,

    /// Make the held deletions with this hash, of the remote that the flags describe
    #[arg(
        long,
        alias = "approve-deletions",
        env = "PORTOLAN_MIRROR_APPROVE_DELETIONS",
        value_name = "HASH",
        help_heading = "Mirror"
    )]
    mirror_approve_deletions: Option<String>,

    /// How often everything is checked anew, from what is known
    #[arg(
        long,
        visible_alias = "resync-period",
        env = "PORTOLAN_MIRROR_RESYNC_PERIOD",
        value_name = "DURATION",
        default_value = "2h",
        value_parser = duration::parse,
        help_heading = "Mirror"
    )]
    mirror_resync_period: Duration,

    /// Most Services whose endpoints are written at a time
    #[arg(
        long,
        visible_alias = "nec-workers",
        env = "PORTOLAN_MIRROR_NEC_WORKERS",
        value_name = "NUMBER",
        default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=256),
        help_heading = "Mirror"
    )]
    mirror_nec_workers: u16,

    /// Most Services and namespaces that are written at a time
    #[arg(
        long,
        visible_alias = "sc-workers",
        env = "PORTOLAN_MIRROR_SC_WORKERS",
        value_name = "NUMBER",
        default_value_t = 2,
        value_parser = clap::value_parser!(u16).range(1..=256),
        help_heading = "Mirror"
    )]
    mirror_sc_workers: u16,

    /// Most writes of the mirror in a second, twice as many at once; remotes share them in equal parts
    #[arg(
        long,
        alias = "write-qps",
        env = "PORTOLAN_MIRROR_WRITE_QPS",
        value_name = "NUMBER",
        default_value_t = 200,
        value_parser = clap::value_parser!(u32).range(1..=100_000),
        help_heading = "Mirror"
    )]
    mirror_write_qps: u32,

    /// Most endpoints in one EndpointSlice
    #[arg(
        long,
        alias = "slice-size",
        env = "PORTOLAN_MIRROR_SLICE_SIZE",
        value_name = "NUMBER",
        default_value_t = 100,
        value_parser = clap::value_parser!(u16).range(1..=1000),
        help_heading = "Mirror"
    )]
    mirror_slice_size: u16,

    /// This cluster's id among those that share Services; by default the beginning of the UID of namespace kube-system
    #[arg(
        long,
        alias = "cluster-id",
        env = "PORTOLAN_MIRROR_CLUSTER_ID",
        value_name = "NAME",
        value_parser = cluster_id,
        help_heading = "Mirror"
    )]
    mirror_cluster_id: Option<String>,

    /// A range of this cluster that no remote may use, besides those that are found
    #[arg(
        long,
        alias = "local-cidr",
        env = "PORTOLAN_MIRROR_LOCAL_CIDR",
        value_name = "CIDR",
        value_delimiter = ',',
        help_heading = "Mirror"
    )]
    mirror_local_cidr: Vec<IpNet>,

    /// URL of the Kubernetes Engine API
    #[arg(
        long,
        alias = "gcp-container-endpoint",
        env = "PORTOLAN_MIRROR_GCP_CONTAINER_ENDPOINT",
        value_name = "URL",
        default_value = "https://container.googleapis.com",
        help_heading = "Mirror"
    )]
    mirror_gcp_container_endpoint: String,

    /// Hosts that Google key files may name for tokens
    #[arg(
        long,
        alias = "gcp-token-host",
        env = "PORTOLAN_MIRROR_GCP_TOKEN_HOST",
        value_name = "HOST",
        value_delimiter = ',',
        default_value = "oauth2.googleapis.com",
        help_heading = "Mirror"
    )]
    mirror_gcp_token_host: Vec<String>,

    /// Google key file, for remotes that name no key; without it that of gcloud, or the metadata server
    #[arg(long, env = "GOOGLE_APPLICATION_CREDENTIALS", value_name = "FILE", help_heading = "Mirror")]
    mirror_google_key: Option<PathBuf>,

    /// Host of Google's metadata server
    #[arg(
        long,
        env = "GCE_METADATA_HOST",
        value_name = "HOST",
        default_value = "metadata.google.internal",
        help_heading = "Mirror"
    )]
    mirror_google_metadata_host: String,

    /// Let remote clusters be on this machine: for tests
    #[arg(
        long,
        alias = "allow-loopback-remotes",
        env = "PORTOLAN_MIRROR_ALLOW_LOOPBACK_REMOTES",
        help_heading = "Mirror"
    )]
    mirror_allow_loopback_remotes: bool,
}

impl MirrorArgs {
    fn options(self, platform: &Platform) -> Result<Options, OptionsError> {
        let flags_remote = self.flags_remote()?;
        // Where pods are processes of this machine, in `portolan up`, the operator is no pod that a kubeconfig could
        // turn against its node: who may write Secrets there is who started it, and simulated remotes are on loopback.
        let allow_loopback = self.mirror_allow_loopback_remotes || platform.loopback_pods.is_some();
        Ok(Options {
            operator_namespace: platform.namespace.clone(),
            cluster_id: self.mirror_cluster_id,
            flags_remote,
            local_cidrs: self.mirror_local_cidr,
            slice_size: self.mirror_slice_size.into(),
            slice_writes: self.mirror_nec_workers.into(),
            service_writes: self.mirror_sc_workers.into(),
            write_qps: self.mirror_write_qps,
            resync_period: self.mirror_resync_period,
            allow_loopback,
            gke: gke::Options {
                container_endpoint: self.mirror_gcp_container_endpoint,
                token_hosts: self.mirror_gcp_token_host,
                allow_loopback: self.mirror_allow_loopback_remotes,
            },
            google_key_file: self.mirror_google_key,
            google_metadata_host: self.mirror_google_metadata_host,
            ..Options::default()
        })
    }

    /// The remote that the flags describe, if they do.
    fn flags_remote(&self) -> Result<Option<FlagsRemote>, OptionsError> {
        let missing =
            |flag: &str| OptionsError(format!("--{flag} is missing: it names the remote cluster with the others"));
        let given = |flag: &Option<String>| flag.clone().filter(|value| !value.is_empty());
        let source = match (
            given(&self.mirror_remote_project),
            given(&self.mirror_remote_cluster_name),
            &self.mirror_remote_kubeconfig,
        ) {
            (None, None, None) => return Ok(None),
            (None, None, Some(path)) => {
                FlagsSource::Kubeconfig { path: path.clone(), context: self.mirror_remote_context.clone() }
            }
            (None, ..) => return Err(missing("mirror-remote-project")),
            (_, None, _) => return Err(missing("mirror-remote-cluster-name")),
            (Some(_), Some(_), _) if self.mirror_remote_zone.is_empty() => return Err(missing("mirror-remote-zone")),
            (Some(project), Some(cluster), _) => {
                let cluster = ClusterName::new(&project, &self.mirror_remote_zone, &cluster);
                FlagsSource::Gke(cluster.map_err(|problem| OptionsError(problem.to_string()))?)
            }
        };
        let ignored = self.ignored_namespaces()?;
        let defaults = Rules::default();
        let rules = Rules {
            cluster_id: self.mirror_remote_name.as_str().into(),
            mirror_type: if self.mirror_nodeportsvc { MirrorType::NodePort } else { MirrorType::ClusterIp },
            namespaces: NamespaceRules {
                // Of the protected namespaces, the original allowed this one.
                lifted: if ignored.contains("kube-system") {
                    Vec::new()
                } else {
                    vec![NamespacePattern::Name("kube-system".into())]
                },
                deny: ignored.iter().map(|name| NamespacePattern::Name(name.as_str().into())).collect(),
                denied_are_frozen: true,
                max_created: usize::MAX,
                ..NamespaceRules::default()
            },
            allowed: if self.mirror_remote_address_cidr.is_empty() {
                defaults.allowed
            } else {
                self.mirror_remote_address_cidr.clone()
            },
            ports: (1, u16::MAX),
            nodes: NodeRules { exclude_labelled: false, ..NodeRules::default() },
            owned: false,
            adopts: true,
            // Older than any RemoteCluster.
            default_since: Some(i64::MIN),
            ..Rules::default()
        };
        let approved = given(&self.mirror_approve_deletions);
        Ok(Some(FlagsRemote {
            name: self.mirror_remote_name.clone(),
            source,
            rules,
            writes_endpoints: self.mirror_write_endpoints,
            approved,
        }))
    }

    fn ignored_namespaces(&self) -> Result<BTreeSet<String>, OptionsError> {
        let mut ignored = BTreeSet::from(["kube-system".to_owned()]);
        for name in &self.mirror_ignore_namespace {
            match name.strip_prefix('-') {
                Some("") => return Err(OptionsError("--mirror-ignore-namespace - names no namespace".to_owned())),
                Some(name) => drop(ignored.remove(name)),
                None if name.is_empty() => {
                    return Err(OptionsError("--mirror-ignore-namespace is empty: name a namespace".to_owned()));
                }
                None => drop(ignored.insert(name.clone())),
            }
        }
        Ok(ignored)
    }
}

/// A DNS label, as EndpointSlices carry it.
fn cluster_id(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label =
        (1..=63).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('-') && !text.ends_with('-');
    if is_label { Ok(text.to_owned()) } else { Err("use at most 63 lower-case letters, digits and dashes".to_owned()) }
}

pub(super) fn configure(matches: &ArgMatches, platform: &Platform) -> Result<Starter, OptionsError> {
    let args = MirrorArgs::from_arg_matches(matches).map_err(|cause| OptionsError(cause.to_string()))?;
    let options = args.options(platform)?;
    Ok(Box::new(move |ctx, registry, webhooks| {
        start(ctx, registry, options);
        webhooks
    }))
}
