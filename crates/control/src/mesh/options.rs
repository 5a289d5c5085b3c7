//! The flags of the mesh.

use std::path::PathBuf;

use clap::{ArgMatches, FromArgMatches as _, ValueEnum};

use super::{ClientCertificate, ClusterDomain, CrossNamespace, IpNet, Options, Settings, TlsFiles, start, webhooks};
use crate::runtime::capability::{OptionsError, Platform, Starter};

#[derive(Debug, clap::Args)]
pub(super) struct MeshArgs {
    /// DNS domain of the cluster
    #[arg(
        long,
        env = "PORTOLAN_CLUSTER_DOMAIN",
        value_name = "DOMAIN",
        default_value = "cluster.local",
        help_heading = "Mesh"
    )]
    cluster_domain: String,

    /// Whether references and selectors may cross namespaces
    #[arg(
        long,
        env = "PORTOLAN_MESH_CROSS_NAMESPACE",
        value_name = "WHEN",
        default_value = "grant",
        help_heading = "Mesh"
    )]
    mesh_cross_namespace: When,

    /// Refuse endpoints in this range; link-local addresses and the API server's are always refused
    #[arg(
        long,
        env = "PORTOLAN_MESH_DENY_ENDPOINT",
        value_name = "CIDR",
        value_delimiter = ',',
        help_heading = "Mesh"
    )]
    mesh_deny_endpoint: Vec<IpNet>,

    /// Take over the objects that l7mp's own operator left on proxies
    #[arg(
        long,
        env = "PORTOLAN_MESH_ADOPT_LEGACY",
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set,
        help_heading = "Mesh"
    )]
    mesh_adopt_legacy: bool,

    /// Name of the Secret, in each namespace with proxies, whose `token` authenticates to them
    #[arg(
        long,
        env = "PORTOLAN_MESH_PROXY_TOKEN_SECRET",
        value_name = "NAME",
        default_value = "portolan-proxy",
        help_heading = "Mesh"
    )]
    mesh_proxy_token_secret: String,

    /// Connect to proxies with TLS, and trust this CA; each certificate is for POD.NAMESPACE.pod
    #[arg(long, env = "PORTOLAN_MESH_PROXY_CA", value_name = "FILE", help_heading = "Mesh")]
    mesh_proxy_ca: Option<PathBuf>,

    /// Client certificate for proxies that ask for one
    #[arg(
        long,
        env = "PORTOLAN_MESH_PROXY_CERT",
        value_name = "FILE",
        requires = "mesh_proxy_ca",
        requires = "mesh_proxy_key",
        help_heading = "Mesh"
    )]
    mesh_proxy_cert: Option<PathBuf>,

    /// Private key of the client certificate
    #[arg(
        long,
        env = "PORTOLAN_MESH_PROXY_KEY",
        value_name = "FILE",
        requires = "mesh_proxy_cert",
        help_heading = "Mesh"
    )]
    mesh_proxy_key: Option<PathBuf>,
}

/// When references may cross namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    /// If the other namespace grants it
    Grant,
    /// Never
    Deny,
    /// Always, as with l7mp's own operator
    Open,
}

impl TryFrom<MeshArgs> for Options {
    type Error = OptionsError;

    fn try_from(args: MeshArgs) -> Result<Self, OptionsError> {
        let MeshArgs {
            cluster_domain,
            mesh_cross_namespace,
            mesh_deny_endpoint,
            mesh_adopt_legacy,
            mesh_proxy_token_secret,
            mesh_proxy_ca,
            mesh_proxy_cert,
            mesh_proxy_key,
        } = args;
        let client =
            mesh_proxy_cert.zip(mesh_proxy_key).map(|(certificate, key)| ClientCertificate { certificate, key });
        let proxy_tls = mesh_proxy_ca.map(|ca| TlsFiles { ca, client }.read()).transpose();
        let cross_namespace = match mesh_cross_namespace {
            When::Grant => CrossNamespace::Grant,
            When::Deny => CrossNamespace::Deny,
            When::Open => CrossNamespace::Open,
        };
        Ok(Self {
            settings: Settings {
                domain: ClusterDomain::new(&cluster_domain),
                cross_namespace,
                denied_endpoints: mesh_deny_endpoint,
                ..Settings::default()
            },
            adopt_legacy: mesh_adopt_legacy,
            token_secret: mesh_proxy_token_secret,
            proxy_tls: proxy_tls.map_err(|cause| OptionsError(cause.to_string()))?,
            ..Self::default()
        })
    }
}

pub(super) fn configure(matches: &ArgMatches, platform: &Platform) -> Result<Starter, OptionsError> {
    let Platform { api_server, loopback_pods, namespace: _, cloud: _, programs: _ } = platform;
    let args = MeshArgs::from_arg_matches(matches).map_err(|cause| OptionsError(cause.to_string()))?;
    let mut options = Options::try_from(args)?;
    options.settings.api_servers.extend(*api_server);
    options.settings.loopback_pods = *loopback_pods;
    Ok(Box::new(move |ctx, registry, webhooks| {
        let cache = start(ctx, registry, options.clone());
        webhooks::handlers(webhooks, &cache, &options)
    }))
}
