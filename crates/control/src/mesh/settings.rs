//! How the mesh runs.

use std::sync::Arc;
use std::time::Duration;

use portolan_core::mesh::control::Settings;
use rustls::ClientConfig;

/// How the mesh runs.
#[derive(Debug, Clone)]
pub struct Options {
    pub settings: Settings,
    /// Objects of the operator that l7mp shipped are taken over on proxies.
    pub adopt_legacy: bool,
    /// Name of the Secret with the token of a namespace's proxies.
    pub token_secret: String,
    /// Proxies are spoken to with TLS: whom to trust, and who we are.
    pub proxy_tls: Option<Arc<ClientConfig>>,
    /// Looks after this namespace only; empty for all.
    pub namespace: String,
    /// How long a status waits for proxies that have not answered yet: nearly always they do within that time, and one
    /// write then says it all.
    pub patience: Duration,
    /// Proxies that are worked on at once.
    pub at_once: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            adopt_legacy: true,
            token_secret: "portolan-proxy".to_owned(),
            proxy_tls: None,
            namespace: String::new(),
            patience: Duration::from_secs(5),
            at_once: 64,
        }
    }
}
