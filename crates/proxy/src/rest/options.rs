//! What the command line says about the API and the configuration, as plain values.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::Access;
use crate::config::json::Json;
use crate::config::types::LogLevel;
use crate::config::whole::{Language, parse};

/// Flags of `portolan proxy`; the command line fills it in.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Options {
    /// `-c FILE`
    pub config: Option<PathBuf>,
    /// `--inline TEXT`
    pub inline: Option<String>,
    /// `-s`
    pub strict: bool,
    /// `-l LEVEL`
    pub log_level: Option<LogLevel>,
    /// `--api ADDR:PORT`
    pub api: Option<SocketAddr>,
    /// `--no-api`
    pub no_api: bool,
    /// `--api-token-file F`
    pub token_file: Option<PathBuf>,
    /// `--api-cert F`
    pub certificate: Option<PathBuf>,
    /// `--api-key F`
    pub key: Option<PathBuf>,
    /// `--api-client-ca F`
    pub client_authority: Option<PathBuf>,
    /// `--insecure-api`
    pub insecure: bool,
    /// `--workers N`
    pub workers: Option<usize>,
    /// `--check`
    pub check: bool,
    /// `-o` or `-i`, which do nothing yet.
    pub offload: bool,
}

/// Options that cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    #[error("nothing to do without a configuration\n\nhint: give a file with -c, a text with --inline, or --api")]
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

    /// The static configuration; an empty one if there is none. Read anew at each call.
    pub fn static_config(&self) -> Result<Json, OptionsError> {
        let mut config = match (&self.config, &self.inline) {
            (Some(path), _) => {
                let unread = |cause| OptionsError::Read { path: path.clone(), cause };
                let text = std::fs::read_to_string(path).map_err(unread)?;
                let wrong = |why| OptionsError::Syntax { origin: path.display().to_string(), why };
                parse(&text, Language::of(path)).map_err(wrong)?
            }
            // YAML takes JSON as well, but JSON is told better about its mistakes
            (None, Some(text)) => {
                let language = if text.trim_start().starts_with('{') { Language::Json } else { Language::Yaml };
                parse(text, language).map_err(|why| OptionsError::Syntax { origin: "--inline".to_owned(), why })?
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
