//! The command line of the proxy: defined here once, for both programs that run it.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use super::Access;
use crate::config::home::{Home, Mount};
use crate::config::json::Json;
use crate::config::types::LogLevel;
use crate::config::whole::{Language, parse};

/// Flags of `portolan proxy` and `portolan-proxy`.
#[derive(Debug, Clone, Default, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Options {
    /// Read the configuration from this file: YAML if it ends in .yaml or .yml, else JSON; SIGHUP reads it again
    #[arg(short, long, value_name = "FILE", env = "PORTOLAN_PROXY_CONFIG", help_heading = "Configuration")]
    pub config: Option<PathBuf>,

    /// Take the configuration from this text, in JSON or YAML
    #[arg(long, value_name = "TEXT", conflicts_with = "config", help_heading = "Configuration")]
    pub inline: Option<String>,

    /// Check requests and files against the schema, whatever the file says
    #[arg(short, long, help_heading = "Configuration")]
    pub strict: bool,

    /// Say whether the configuration would be taken, and exit
    #[arg(long, help_heading = "Configuration")]
    pub check: bool,

    /// Serve the API here, besides listeners of the file that lead to it; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", env = "PORTOLAN_PROXY_API", help_heading = "API")]
    pub api: Option<SocketAddr>,

    /// Answer nothing but health and metrics
    #[arg(long, help_heading = "API")]
    pub no_api: bool,

    /// Let in who brings a token of this file; its lines are a token and `read` or `write`
    #[arg(long = "api-token-file", value_name = "FILE", env = "PORTOLAN_PROXY_API_TOKEN_FILE", help_heading = "API")]
    pub token_file: Option<PathBuf>,

    /// Serve --api with TLS and this certificate
    #[arg(long = "api-cert", value_name = "FILE", env = "PORTOLAN_PROXY_API_CERT", help_heading = "API")]
    pub certificate: Option<PathBuf>,

    /// The certificate's key
    #[arg(long = "api-key", value_name = "FILE", env = "PORTOLAN_PROXY_API_KEY", help_heading = "API")]
    pub key: Option<PathBuf>,

    /// Let in who brings a certificate that this authority signed
    #[arg(long = "api-client-ca", value_name = "FILE", env = "PORTOLAN_PROXY_API_CLIENT_CA", help_heading = "API")]
    pub client_authority: Option<PathBuf>,

    /// Open the API to everyone who reaches it, as l7mp does
    #[arg(long = "insecure-api", help_heading = "API")]
    pub insecure: bool,

    /// Listen on this address wherever all are meant: for listeners that name none, and for --api 0.0.0.0
    #[arg(long, value_name = "IP", env = "PORTOLAN_PROXY_ADDRESS", help_heading = "Process")]
    pub address: Option<IpAddr>,

    /// Let 127.0.0.1 and ::1 be this address, to listen on and to connect to
    #[arg(long, value_name = "IP", env = "PORTOLAN_PROXY_LOCALHOST", help_heading = "Process")]
    pub localhost: Option<IpAddr>,

    /// Take FOLDER for PATH, as a container's mount would: in flags, socket files and logs; may be given again
    #[arg(long = "mount", value_name = "PATH=FOLDER", help_heading = "Process")]
    pub mounts: Vec<Mount>,

    /// Write this file once everything listens
    #[arg(long, value_name = "FILE", env = "PORTOLAN_PROXY_READY_FILE", help_heading = "Process")]
    pub ready_file: Option<PathBuf>,

    /// End when standard input does, so as not to outlive the process at its other end
    #[arg(long, help_heading = "Process")]
    pub end_with_stdin: bool,

    /// Run as many workers; without it one per processor that the process may use
    #[arg(long, value_name = "N", env = "PORTOLAN_PROXY_WORKERS", help_heading = "Process")]
    pub workers: Option<NonZeroUsize>,

    /// Go on as this user, once started by root, with no right but to open ports below 1024
    #[arg(long, value_name = "USER[:GROUP]", env = "PORTOLAN_PROXY_USER", help_heading = "Process")]
    pub user: Option<String>,

    /// Log what is at least this important, whatever the file says
    #[arg(short, long, value_name = "LEVEL", env = "PORTOLAN_PROXY_LOG_LEVEL", help_heading = "Process")]
    pub log_level: Option<LogLevel>,

    /// l7mp's switch for offload to the kernel: accepted, without effect
    #[arg(short, long, value_name = "MODE", num_args = 0..=1, default_missing_value = "", help_heading = "Process")]
    pub offload: Option<String>,

    /// l7mp's interfaces for offload to the kernel: accepted, without effect
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

/// Options that cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    #[error("nothing to do without a configuration and without --api")]
    Nothing,
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("{origin} cannot be understood: {why}")]
    Syntax { origin: String, why: String },
    #[error("--api-cert and --api-key belong together, and --api-client-ca needs both")]
    HalfOfTls,
}

impl Options {
    /// Checks that the options fit together.
    pub fn validate(&self) -> Result<(), OptionsError> {
        if self.config.is_none() && self.inline.is_none() && self.api.is_none() {
            return Err(OptionsError::Nothing);
        }
        let tls = self.certificate.is_some();
        if tls != self.key.is_some() || (self.client_authority.is_some() && !tls) {
            return Err(OptionsError::HalfOfTls);
        }
        Ok(())
    }

    /// What addresses and folders stand for.
    pub fn home(&self) -> Home {
        Home { address: self.address, localhost: self.localhost, mounts: self.mounts.clone() }
    }

    /// The same with its files where they really lie; the one that says it is ready is not the container's.
    #[must_use]
    pub fn mounted(mut self) -> Self {
        let home = self.home();
        let files =
            [&mut self.config, &mut self.token_file, &mut self.certificate, &mut self.key, &mut self.client_authority];
        for file in files.into_iter().flatten() {
            *file = home.real(file).into_owned();
        }
        self
    }

    /// The static configuration; an empty one if there is none. Read anew at each call.
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
                // YAML takes JSON as well, but JSON is told better about its mistakes
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
        Ok(self.overruled(config))
    }

    /// Who may use the API.
    pub fn access(&self) -> Result<Access, OptionsError> {
        let guarded = Access::new(self.token_file.as_deref(), self.client_authority.is_some(), self.insecure);
        guarded.map_err(|cause| OptionsError::Read { path: self.token_file.clone().unwrap_or_default(), cause })
    }

    /// The command line comes before the file.
    fn overruled(&self, mut config: Json) -> Json {
        if let (Some(level), Json::Object(fields)) = (self.log_level, &mut config) {
            let mut admin = fields.get("admin").cloned().unwrap_or_default();
            admin.merge(&crate::config::json::object([("log_level", level.word().into())]));
            fields.set("admin", admin);
        }
        config
    }
}
