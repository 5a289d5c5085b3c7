//! How Envoys run: the flags, and what follows from them.

use std::error::Error as _;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portolan_drivers::envoy::{ProcessOptions, ProcessProxies, Proxies, UnavailableProxies};
use tokio::sync::Notify;
use tracing::{error, warn};

use super::act::envoys;
use super::envoys::{DeploymentOptions, DeploymentProxies};
use crate::runtime::app::Ctx;
use crate::runtime::authority::Schedule;
use crate::runtime::capability::{OptionsError, Platform, Programs};

const XDS_PORT: u16 = 18000;
/// The Service of the operator that the manifests have for Envoys.
const XDS_SERVICE: &str = "portolan-xds";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Choice {
    /// Deployments if --gateway-envoy-image is set, else processes
    Auto,
    /// Processes beside the operator that leads
    Process,
    /// Deployments in the operator's namespace
    Deployment,
}

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "a flag is named after its field")]
pub(super) struct EnvoyArgs {
    /// How Envoys run: as processes beside the operator, or as Deployments in its namespace; auto: as Deployments if
    /// --gateway-envoy-image is set
    #[arg(
        long,
        alias = "envoy-runtime",
        env = "PORTOLAN_GATEWAY_ENVOY_RUNTIME",
        value_name = "RUNTIME",
        default_value = "auto",
        help_heading = "Gateway"
    )]
    gateway_envoy_runtime: Choice,

    /// The Envoy that load balancers run as a process; by default `envoy` in the search path
    #[arg(
        long,
        alias = "envoy-binary",
        env = "PORTOLAN_GATEWAY_ENVOY_BINARY",
        value_name = "FILE",
        help_heading = "Gateway"
    )]
    gateway_envoy_binary: Option<PathBuf>,

    /// The image that load balancers run in Deployments, with `envoy` 1.30 or newer in its search path
    #[arg(
        long,
        alias = "envoy-image",
        env = "PORTOLAN_GATEWAY_ENVOY_IMAGE",
        value_name = "IMAGE",
        help_heading = "Gateway"
    )]
    gateway_envoy_image: Option<String>,

    /// Images that ServiceGroups may name in spec.envoy-image; `*` matches any text
    #[arg(
        long,
        alias = "envoy-image-allow",
        env = "PORTOLAN_GATEWAY_ENVOY_IMAGE_ALLOW",
        value_name = "PATTERN",
        value_delimiter = ',',
        help_heading = "Gateway"
    )]
    gateway_envoy_image_allow: Vec<String>,

    /// Where Envoys of Deployments are configured over xDS; [::]:18000 by default
    #[arg(long, env = "PORTOLAN_GATEWAY_XDS_LISTEN", value_name = "ADDR:PORT", help_heading = "Gateway")]
    gateway_xds_listen: Option<SocketAddr>,

    /// The name or address, and the port, by which they reach it; by default port 18000 of Service portolan-xds in the
    /// operator's namespace
    #[arg(long, env = "PORTOLAN_GATEWAY_XDS_ADDRESS", value_name = "HOST:PORT", help_heading = "Gateway")]
    gateway_xds_address: Option<String>,

    /// Attach Envoys of Deployments to the network of their ServicePrefix: a bridge, by Multus
    #[arg(
        long,
        env = "PORTOLAN_GATEWAY_MULTUS",
        value_name = "BOOL",
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = clap::ArgAction::Set,
        help_heading = "Gateway"
    )]
    gateway_multus: bool,
}

/// How Envoys run.
pub(super) enum EnvoyRuntime {
    Process(ProcessOptions),
    Deployment(DeploymentOptions),
}

impl EnvoyArgs {
    /// Images that groups may name.
    pub(super) fn images(&self) -> Vec<String> {
        self.gateway_envoy_image_allow.clone()
    }

    /// Checks the flags. One that would have no effect is refused.
    pub(super) fn runtime(&self, platform: &Platform, drain: Duration) -> Result<EnvoyRuntime, OptionsError> {
        let Self {
            gateway_envoy_runtime: choice,
            gateway_envoy_binary: binary,
            gateway_envoy_image: image,
            gateway_envoy_image_allow: allow,
            gateway_xds_listen: listen,
            gateway_xds_address: address,
            gateway_multus: multus,
        } = self;
        let image = image.as_deref().filter(|image| !image.is_empty());
        let address = address.as_deref().filter(|address| !address.is_empty());
        let useless = |flag: &str, with: &str| {
            let problem = format!("--{flag} has no effect while Envoys run as {with}: leave it out");
            Err(OptionsError(problem))
        };
        let is_process = *choice == Choice::Process || (*choice == Choice::Auto && image.is_none());
        if is_process {
            let given = [
                ("gateway-envoy-image", image.is_some()),
                ("gateway-envoy-image-allow", !allow.is_empty()),
                ("gateway-xds-listen", listen.is_some()),
                ("gateway-xds-address", address.is_some()),
                ("gateway-multus", *multus),
            ];
            if let Some((flag, _)) = given.iter().find(|(_, is_given)| *is_given) {
                return useless(flag, "processes");
            }
            let Programs { envoy, search_path, folder } = platform.programs.clone();
            return Ok(EnvoyRuntime::Process(ProcessOptions {
                binary: binary.clone().or(envoy),
                search_path,
                folder,
                drain,
            }));
        }
        let Some(image) = image else {
            let problem = "Envoys run as Deployments of an image: name it with --gateway-envoy-image";
            return Err(OptionsError(problem.to_owned()));
        };
        if binary.is_some() {
            return useless("gateway-envoy-binary", "Deployments");
        }
        let xds_server = match address {
            Some(address) => host_and_port(address)?,
            None => (format!("{XDS_SERVICE}.{}.svc", platform.namespace), XDS_PORT),
        };
        Ok(EnvoyRuntime::Deployment(DeploymentOptions {
            namespace: platform.namespace.clone(),
            image: image.to_owned(),
            xds_server,
            xds_listen: listen.unwrap_or(SocketAddr::from((Ipv6Addr::UNSPECIFIED, XDS_PORT))),
            multus: *multus,
            drain,
            schedule: Schedule { poll: Duration::from_secs(30), ..Schedule::default() },
        }))
    }
}

/// Reads `name:18000`, `10.96.0.7:18000` and `[fd00::7]:18000`.
fn host_and_port(text: &str) -> Result<(String, u16), OptionsError> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = parts.unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() || port == 0 || portolan_certs::server_name(host).is_err() {
        let problem =
            format!("--gateway-xds-address: `{text}` is not a name or address, and a port: like xds.example:18000");
        return Err(OptionsError(problem));
    }
    Ok((host.to_owned(), port))
}

impl EnvoyRuntime {
    /// Starts what runs Envoys. Where that is impossible, load balancers say why.
    pub(super) fn start(self, ctx: &Ctx, wake: &Arc<Notify>) -> Arc<dyn Proxies> {
        match self {
            Self::Process(options) => processes(options, ctx, Arc::clone(wake)),
            Self::Deployment(options) => {
                let proxies = DeploymentProxies::new(Arc::clone(wake));
                let listen = options.xds_listen;
                if let Err(problem) = envoys::start(ctx, proxies.clone(), options) {
                    // a process that cannot do what its flags ask for ends
                    error!(%problem, %listen, "Envoys cannot be configured: choose another --gateway-xds-listen");
                    ctx.tasks.spawn("xds server", async {});
                }
                Arc::new(proxies)
            }
        }
    }
}

fn processes(options: ProcessOptions, ctx: &Ctx, wake: Arc<Notify>) -> Arc<dyn Proxies> {
    match ProcessProxies::new(options, move || wake.notify_one()) {
        Ok((proxies, driver)) => {
            ctx.tasks.spawn("envoy", driver.run(ctx.tasks.stop().cancelled_owned()));
            Arc::new(proxies)
        }
        Err(problem) => {
            let cause = problem.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            let why = format!("Envoys cannot be started here: {problem}{cause}");
            warn!("{why}");
            Arc::new(UnavailableProxies::new(&why))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        envoys: EnvoyArgs,
    }

    fn runtime(flags: &[&str]) -> Result<EnvoyRuntime, String> {
        let flags = std::iter::once("portolan").chain(flags.iter().copied());
        let program = Program::try_parse_from(flags).map_err(|problem| problem.to_string())?;
        let platform = Platform { namespace: "portolan".to_owned(), ..Platform::default() };
        program.envoys.runtime(&platform, Duration::from_secs(10)).map_err(|problem| problem.to_string())
    }

    fn deployment(flags: &[&str]) -> DeploymentOptions {
        match runtime(flags).unwrap() {
            EnvoyRuntime::Deployment(options) => options,
            EnvoyRuntime::Process(_) => panic!("{flags:?} runs processes"),
        }
    }

    #[test]
    fn envoys_are_processes_unless_an_image_is_named() {
        for flags in [&[][..], &["--gateway-envoy-image", ""], &["--envoy-runtime", "process", "--envoy-binary", "/e"]]
        {
            assert!(matches!(runtime(flags), Ok(EnvoyRuntime::Process(_))), "{flags:?}");
        }
        let options = deployment(&["--gateway-envoy-image", "envoy:1"]);
        assert_eq!((&*options.image, &*options.namespace), ("envoy:1", "portolan"));
        assert_eq!(options.xds_server, ("portolan-xds.portolan.svc".to_owned(), 18000));
        assert_eq!(options.xds_listen.to_string(), "[::]:18000");
    }

    #[test]
    fn flags_without_effect_are_refused() {
        let image = ["--gateway-envoy-image", "envoy:1"];
        for (flags, named) in [
            (&["--gateway-envoy-runtime", "deployment"][..], "--gateway-envoy-image"),
            (&["--gateway-envoy-runtime", "process", image[0], image[1]], "--gateway-envoy-image"),
            (&["--gateway-envoy-image-allow", "envoy:*"], "--gateway-envoy-image-allow"),
            (&["--gateway-xds-listen", "[::]:1"], "--gateway-xds-listen"),
            (&["--gateway-xds-address", "xds:1"], "--gateway-xds-address"),
            (&["--gateway-multus"], "--gateway-multus"),
            (&[image[0], image[1], "--gateway-envoy-binary", "/envoy"], "--gateway-envoy-binary"),
            (&[image[0], image[1], "--gateway-xds-address", "xds"], "--gateway-xds-address"),
            (&[image[0], image[1], "--gateway-xds-address", "a b:1"], "--gateway-xds-address"),
        ] {
            let problem = runtime(flags).err().unwrap_or_else(|| panic!("{flags:?} is accepted"));
            assert!(problem.contains(named), "{flags:?}: {problem}");
        }
    }

    #[test]
    fn the_xds_server_is_reached_by_name_or_address() {
        let reached =
            |address: &str| deployment(&["--gateway-envoy-image", "e", "--gateway-xds-address", address]).xds_server;
        assert_eq!(reached("xds.example:18000"), ("xds.example".to_owned(), 18000));
        assert_eq!(reached("10.96.0.7:1"), ("10.96.0.7".to_owned(), 1));
        assert_eq!(reached("[fd00::7]:1"), ("fd00::7".to_owned(), 1));
    }
}
