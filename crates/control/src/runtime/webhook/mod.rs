//! Admission webhooks: a server that validates and defaults, with certificates that it makes, rotates and
//! publishes itself.
//!
//! ```text
//!   API server --AdmissionReview--> server ---> review: handlers by path (pure)
//!                                     ^
//!                                     | serving certificate
//!   Secret <---> authority <--.       |
//!                              >-- keeper ---> certs (pure: time is an argument)
//!   *WebhookConfiguration <-- publish'
//! ```
//!
//! Every replica serves, leader or not, so the client given to [`run`] must not be fenced. It needs `get`, `create`
//! and `update` on one Secret, and `get` and `patch` on the named webhook configurations.
//!
//! Admission has no side effects: handlers are synchronous functions of the request. Controllers validate again,
//! so a missing webhook breaks nothing.

mod error;
mod hook;
mod keeper;
mod metrics;
mod patch;
mod publish;
mod review;
mod server;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

pub use super::authority::Schedule;
use super::authority::{Purpose, Store};
use super::ready::Readiness;
use super::tasks::Tasks;
pub use error::Error;
pub use hook::Hook;
use keeper::Keeper;
use metrics::Metrics;
use publish::{MANAGER, Publisher};
pub use review::{Denied, Warnings, Webhooks};
use server::{Resolver, Server};

/// The authority of webhooks.
pub const PURPOSE: Purpose =
    Purpose { name: "portolan-webhook-ca", secret_type: "portolan.dev/webhook-authority", manager: MANAGER };

/// Where the webhook lives.
#[derive(Debug, Clone)]
pub struct Config {
    /// Port 0 takes any free one; [`Handle::address`] tells which.
    pub listen: SocketAddr,
    /// The DNS names and addresses under which API servers call, like `portolan-webhook.portolan.svc`.
    pub names: Vec<String>,
    /// PEM of the authority that signs the API servers' client certificates; without it anyone may call.
    pub client_ca: Option<String>,
    /// The Secret that holds the authority; made when it does not exist.
    pub secret_namespace: String,
    pub secret_name: String,
    /// The names of the `ValidatingWebhookConfiguration`s whose `caBundle` is ours.
    pub validating: Vec<String>,
    /// The names of the `MutatingWebhookConfiguration`s whose `caBundle` is ours.
    pub mutating: Vec<String>,
    pub schedule: Schedule,
    /// How long calls are still served after the stop signal, while API servers learn that this replica goes; keep it
    /// shorter than the drain of the process.
    pub linger: Duration,
}

/// The process around the webhook.
pub struct Host<'a> {
    pub tasks: &'a Tasks,
    pub readiness: &'a Readiness,
    pub registry: &'a mut Registry,
}

/// A running webhook; clones are the same one.
#[derive(Clone)]
pub struct Handle {
    address: SocketAddr,
    signals: Arc<Signals>,
}

/// How the certificates stand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// `Steady`, `Announced` or `Retiring`; empty until the authority is known.
    pub stage: &'static str,
    /// The authority that signs.
    pub authority: String,
    /// Every installed webhook configuration trusts what is served.
    pub published: bool,
    /// The webhook configurations that are not installed.
    pub missing: Vec<String>,
    pub serving_expires: Option<Timestamp>,
}

/// Starts the server and the keeper of its certificates on the host's tasks.
///
/// The host is unready until the server has a certificate that every named configuration trusts. Call it within a
/// tokio runtime.
pub fn run(client: &Client, config: Config, webhooks: Webhooks, host: Host<'_>) -> Result<Handle, Error> {
    let Config { listen, names, client_ca, secret_namespace, secret_name, validating, mutating, schedule, linger } =
        config;
    let Host { tasks, readiness, registry } = host;
    if names.is_empty() {
        return Err(Error::NoName);
    }
    names.iter().try_for_each(|name| portolan_certs::server_name(name).map(drop))?;

    let resolver = Arc::new(Resolver::default());
    let tls = server::tls(resolver.clone(), client_ca.as_deref())?;
    let listener = bind(listen).map_err(|cause| Error::Listen { listen, cause })?;
    let address = listener.local_addr().map_err(|cause| Error::Listen { listen, cause })?;
    let metrics = Metrics::new(registry);
    let signals = Arc::new(Signals::default());
    let keeper = Keeper {
        store: Store::new(client.clone(), &secret_namespace, &secret_name, PURPOSE),
        publisher: Publisher::new(client, &validating, &mutating),
        names,
        schedule,
        resolver,
        signals: signals.clone(),
        metrics: metrics.clone(),
        guard: Some(readiness.hold("webhook certificates")),
        known: None,
        serving: None,
    };
    let server = Server { listener, tls, webhooks: Arc::new(webhooks), metrics, linger };
    tasks.spawn("webhook server", server.run(tasks.stop()));
    tasks.spawn("webhook certificates", keeper.run(tasks.stop()));
    Ok(Handle { address, signals })
}

impl Handle {
    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks for a new authority and new certificates; nothing fails meanwhile, and it takes
    /// [`Schedule::settle`] and [`Schedule::retire`]. A rotation under way is finished first.
    pub fn rotate_now(&self) {
        self.signals.rotate.store(true, Ordering::Relaxed);
        self.signals.wake.notify_one();
    }

    /// How the certificates stand, and a way to wait for a change.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.signals.status.subscribe()
    }
}

fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// What the handle and the keeper tell each other.
#[derive(Default)]
struct Signals {
    rotate: AtomicBool,
    wake: Notify,
    status: watch::Sender<Status>,
}

impl Signals {
    fn rotation_is_asked(&self) -> bool {
        self.rotate.load(Ordering::Relaxed)
    }

    fn rotation_began(&self) {
        self.rotate.store(false, Ordering::Relaxed);
    }
}
