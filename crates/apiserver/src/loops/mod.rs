//! What kube-controller-manager would do and users would miss, over a plain client: it runs on any API server.
//!
//! | loop | does |
//! |---|---|
//! | [`Namespaces`] | empties a namespace that is deleted, then lets it go |
//! | [`Garbage`] | deletes what has lost its owners; foreground and orphan deletion |
//! | [`Endpoints`] | EndpointSlices of Services with selectors |
//! | [`Accounts`] | the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt` in each namespace |
//! | [`Kubelets`] | confirms that pods are gone, as kubelets would; on request lets pods run |
//!
//! Each is one future that ends when told to, watches, and writes nothing at rest.

mod accounts;
mod discover;
mod endpoints;
mod garbage;
mod kubelets;
mod mirror;
mod namespaces;

use std::time::Duration;

use kube::Client;
use tokio_util::sync::CancellationToken;

pub use accounts::Accounts;
pub use endpoints::Endpoints;
pub use garbage::Garbage;
pub use kubelets::{Kubelets, Range};
pub use namespaces::Namespaces;

/// All loops together.
pub struct Loops {
    pub accounts: Accounts,
    pub kubelets: Kubelets,
}

impl Loops {
    /// Runs all of them until told to stop.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        futures::join!(
            Namespaces.run(client.clone(), stop.clone()),
            Garbage.run(client.clone(), stop.clone()),
            Endpoints.run(client.clone(), stop.clone()),
            self.accounts.run(client.clone(), stop.clone()),
            self.kubelets.run(client, stop),
        );
    }
}

/// The HTTP status of a failure; 0 if the server was not reached.
fn code(error: &kube::Error) -> u16 {
    if let kube::Error::Api(status) = error { status.code } else { 0 }
}

/// How long to wait before the n-th new attempt: from 50 ms, doubling, to 15 s.
fn pause(attempt: u32) -> Duration {
    Duration::from_millis(50 << attempt.min(9)).min(Duration::from_secs(15))
}
