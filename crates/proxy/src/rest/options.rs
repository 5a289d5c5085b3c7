//! The command line of the proxy, shared by `portolan proxy` and `portolan-proxy`.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use super::Access;
use crate::config::document::{Language, parse};
use crate::config::host_mapping::{HostMapping, Mount};
use crate::config::json::Json;
use crate::config::types::LogLevel;

/// Flags of `portolan proxy` and `portolan-proxy`.
#[derive(Debug, Clone, Default, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Options {
    /// Read the configuration from this file: YAML if it ends in .yaml or .yml, else JSON; SIGHUP reads it again
    #[arg(short, long, value_name = "FILE", env = "PORTOLAN_PROXY_CONFIG", help_heading = "Configuration")]
    pub config: Option<PathBuf>,

    /// Read the configuration from this text, in JSON or YAML
    #[arg(long, value_name = "TEXT", conflicts_with = "config", help_heading = "Configuration")]
    pub inline: Option<String>,

    /// Check requests and files against the schema, even if the file does not ask for it
    #[arg(short, long, help_heading = "Configuration")]
    pub strict: bool,

    /// Check whether the configuration is valid, and exit
    #[arg(long, help_heading = "Configuration")]
    pub check: bool,

    /// Serve the API on this address, in addition to API listeners in the file; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", env = "PORTOLAN_PROXY_API", help_heading = "API")]
    pub api: Option<SocketAddr>,

    /// Serve only health and metrics
    #[arg(long, help_heading = "API")]
    pub no_api: bool,

    /// Report ready only once somebody has changed the configuration over the API: no pod is sent packets before then
    #[arg(long, env = "PORTOLAN_PROXY_READY_WHEN_PROGRAMMED", conflicts_with = "no_api", help_heading = "API")]
    pub ready_when_programmed: bool,

    /// Accept the bearer tokens in this file; each line is a token and `read` or `write`
    #[arg(long = "api-token-file", value_name = "FILE", env = "PORTOLAN_PROXY_API_TOKEN_FILE", help_heading = "API")]
    pub token_file: Option<PathBuf>,

    /// Serve --api with TLS and this certificate
    #[arg(long = "api-cert", value_name = "FILE", env = "PORTOLAN_PROXY_API_CERT", help_heading = "API")]
    pub certificate: Option<PathBuf>,

    /// Use this private key for --api-cert
    #[arg(long = "api-key", value_name = "FILE", env = "PORTOLAN_PROXY_API_KEY", help_heading = "API")]
    pub key: Option<PathBuf>,

    /// Accept client certificates that this CA signed
    #[arg(long = "api-client-ca", value_name = "FILE", env = "PORTOLAN_PROXY_API_CLIENT_CA", help_heading = "API")]
    pub client_authority: Option<PathBuf>,

    /// Allow unauthenticated API access from any address, as l7mp does
    #[arg(long = "insecure-api", help_heading = "API")]
    pub insecure: bool,

    /// Listen on this address instead of all addresses: for listeners without an address, and for --api 0.0.0.0
    #[arg(long, value_name = "IP", env = "PORTOLAN_PROXY_ADDRESS", help_heading = "Process")]
    pub address: Option<IpAddr>,

    /// Use this address in place of 127.0.0.1 and ::1, to listen on and to connect to
    #[arg(long, value_name = "IP", env = "PORTOLAN_PROXY_LOCALHOST", help_heading = "Process")]
    pub localhost: Option<IpAddr>,

    /// Map PATH to FOLDER, as a container mount does: in flags, socket files and logs; repeatable
    #[arg(long = "mount", value_name = "PATH=FOLDER", help_heading = "Process")]
    pub mounts: Vec<Mount>,

    /// Write this file once all listeners are open
    #[arg(long, value_name = "FILE", env = "PORTOLAN_PROXY_READY_FILE", help_heading = "Process")]
    pub ready_file: Option<PathBuf>,

    /// Exit when standard input closes, so that the proxy does not outlive its parent
    #[arg(long, help_heading = "Process")]
    pub end_with_stdin: bool,

    /// Number of worker threads; default: one per available CPU
    #[arg(long, value_name = "N", env = "PORTOLAN_PROXY_WORKERS", help_heading = "Process")]
    pub workers: Option<NonZeroUsize>,

    /// Switch to this user when started as root, keeping only the right to open ports below 1024
    #[arg(long, value_name = "USER[:GROUP]", env = "PORTOLAN_PROXY_USER", help_heading = "Process")]
    pub user: Option<String>,

    /// Log at this level, overriding the file
    #[arg(short, long, value_name = "LEVEL", env = "PORTOLAN_PROXY_LOG_LEVEL", help_heading = "Process")]
    pub log_level: Option<LogLevel>,

    /// Kernel offload of l7mp: accepted, no effect
    #[arg(short, long, value_name = "MODE", num_args = 0..=1, default_missing_value = "", help_heading = "Process")]
    pub offload: Option<String>,

    /// Kernel offload interfaces of l7mp: accepted, no effect
    #[arg(
        short,
        long = "ifs",
        value_name = "NAMES",
        num_args = 0..=1,
        default_missing_value = "",
        help_heading = "Process"
    )]
    pub interfaces: Option<String>,
}

/// Invalid command-line options.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    #[error("neither a configuration nor --api is given")]
    Nothing,
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("cannot parse {origin}: {why}")]
    Syntax { origin: String, why: String },
    #[error("--api-cert and --api-key must be given together, and --api-client-ca requires both")]
    IncompleteTls,
}

impl Options {
    /// Checks that the options fit together.
    pub fn validate(&self) -> Result<(), OptionsError> {
        if self.config.is_none() && self.inline.is_none() && self.api.is_none() {
            return Err(OptionsError::Nothing);
        }
        let tls = self.certificate.is_some();
        if tls != self.key.is_some() || (self.client_authority.is_some() && !tls) {
            return Err(OptionsError::IncompleteTls);
        }
        Ok(())
    }

    /// How this process maps addresses and folders.
    pub fn host_mapping(&self) -> HostMapping {
        HostMapping { address: self.address, localhost: self.localhost, mounts: self.mounts.clone() }
    }

    /// Applies the mounts to all file options except `--ready-file`, which the starting process reads.
    #[must_use]
    pub fn mounted(mut self) -> Self {
        let host_mapping = self.host_mapping();
        let files =
            [&mut self.config, &mut self.token_file, &mut self.certificate, &mut self.key, &mut self.client_authority];
        for file in files.into_iter().flatten() {
            *file = host_mapping.map_path(file).into_owned();
        }
        self
    }

    /// The static configuration, empty if none is given. Every call reads the file again.
    pub fn static_config(&self) -> Result<Json, OptionsError> {
        let mut config = match (&self.config, &self.inline) {
            (Some(path), _) => {
                let unread = |cause| OptionsError::Read { path: path.clone(), cause };
                let text = std::fs::read_to_string(path).map_err(unread)?;
                let wrong = |why| OptionsError::Syntax { origin: path.display().to_string(), why };
                parse(&text, Language::of(path)).map_err(wrong)?
            }
            (None, Some(text)) => {
                let yaml = || parse(text, Language::Yaml);
                // YAML accepts JSON too, but the JSON parser reports better errors
                let read = if text.trim_start().starts_with('{') {
                    parse(text, Language::Json).or_else(|why| yaml().map_err(|_| why))
                } else {
                    yaml()
                };
                read.map_err(|why| OptionsError::Syntax { origin: "--inline".to_owned(), why })?
            }
            (None, None) => crate::config::json::object([]),
        };
        if config == Json::Null {
            config = crate::config::json::object([]);
        }
        Ok(self.with_overrides(config))
    }

    /// Who may use the API.
    pub fn access(&self) -> Result<Access, OptionsError> {
        let guarded = Access::new(self.token_file.as_deref(), self.client_authority.is_some(), self.insecure);
        guarded.map_err(|cause| OptionsError::Read { path: self.token_file.clone().unwrap_or_default(), cause })
    }

    /// The command line overrides the file.
    fn with_overrides(&self, mut config: Json) -> Json {
        if let (Some(level), Json::Object(fields)) = (self.log_level, &mut config) {
            let mut admin = fields.get("admin").cloned().unwrap_or_default();
            admin.merge(&crate::config::json::object([("log_level", level.word().into())]));
            fields.set("admin", admin);
        }
        config
    }
}
