//! GKE: tokens and the endpoints of clusters, by Google's REST APIs.
//!
//! Two requests lead to a cluster: credentials become a token, and with it the record of the cluster says where its API
//! server is and which certificates to trust there.

mod cluster;
mod credentials;
mod error;
mod http;
#[cfg(test)]
mod tests;
mod token;

pub use cluster::{ApiEndpoint, ClusterName, EndpointKind, InvalidClusterName};
pub use credentials::{AuthorizedUser, Credentials, ServiceAccount};
pub use error::GkeError;
pub use token::Token;

/// Where Google's APIs are.
#[derive(Debug, Clone)]
pub struct Options {
    /// URL of the Kubernetes Engine API.
    pub container_endpoint: String,
    /// Hosts that key files may name for tokens.
    pub token_hosts: Vec<String>,
    /// Key files may also name this machine, without TLS: for tests.
    pub allow_loopback: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            container_endpoint: "https://container.googleapis.com".to_owned(),
            token_hosts: vec!["oauth2.googleapis.com".to_owned()],
            allow_loopback: false,
        }
    }
}

/// A client of Google's APIs.
#[derive(Clone)]
pub struct Gke {
    options: Options,
    http: self::http::Http,
}

impl Gke {
    /// A client; it connects with each request.
    pub fn new(options: Options) -> Self {
        Self { options, http: self::http::Http::new() }
    }

    /// Reports every request: what it asks for (`token` or `cluster`), and the status of the answer if there was one.
    #[must_use]
    pub fn reporting(mut self, report: impl Fn(&'static str, Option<u16>) + Send + Sync + 'static) -> Self {
        self.http.report = std::sync::Arc::new(report);
        self
    }
}
