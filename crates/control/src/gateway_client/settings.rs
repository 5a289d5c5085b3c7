//! How the gateway client runs.

use std::time::Duration;

use portolan_drivers::gateway::GroupUrl;

/// How the gateway client runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// The group of a gateway that serves our Services.
    pub url: GroupUrl,
    /// Name of the Secret with the login, in the operator's namespace.
    pub secret: String,
    /// The operator's own namespace.
    pub operator_namespace: String,
    /// Tells the clusters of one account apart; none is the UID of namespace kube-system.
    pub cluster_id: Option<String>,
    /// How often the load balancers of the account are listed and compared.
    pub verify_interval: Duration,
    /// Requests per second, on average; the gateway refuses those of an account that sends more than it allows.
    pub requests_per_second: u32,
    /// Calls at a time. Those that hang are not counted.
    pub calls_at_once: usize,
}

/// The Secret's name, unless a flag says otherwise.
pub(super) const SECRET: &str = "portolan-gateway-client";

impl Options {
    /// The usual settings, for this group.
    pub fn of(url: GroupUrl) -> Self {
        Self {
            url,
            secret: SECRET.to_owned(),
            operator_namespace: "portolan".to_owned(),
            cluster_id: None,
            verify_interval: Duration::from_secs(30),
            // gateways of ours allow 50
            requests_per_second: 40,
            calls_at_once: 16,
        }
    }
}
