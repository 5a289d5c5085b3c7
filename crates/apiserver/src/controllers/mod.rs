//! The controllers of kube-controller-manager that users rely on, over a plain client: they run on any API server.
//!
//! | controller | does |
//! |---|---|
//! | [`Namespaces`] | deletes the content of a namespace that is being deleted, then finalizes it |
//! | [`Garbage`] | deletes objects without owners; foreground and orphan deletion |
//! | [`Endpoints`] | EndpointSlices of Services with selectors |
//! | [`Bootstrap`] | on request, ServiceAccount `default` and ConfigMap `kube-root-ca.crt` in every namespace |
//! | [`OwnService`] | on request, Service `default/kubernetes` with its endpoints |
//! | [`Workloads`] | on request, `ReplicaSets` of Deployments, and pods of these, of `ReplicationControllers` and `DaemonSets` |
//!
//! Each is one future that runs until it is stopped, and writes nothing when nothing changes.

mod bootstrap;
mod discover;
mod endpoints;
mod garbage;
mod namespaces;
mod own_service;
mod reconcile;
pub mod slim;
mod workloads;

use std::net::SocketAddr;

use kube::Client;
use tokio_util::sync::CancellationToken;

pub use bootstrap::Bootstrap;
pub use endpoints::Endpoints;
pub use garbage::Garbage;
pub use namespaces::Namespaces;
pub use own_service::OwnService;
pub use reconcile::{Key, Pace, code, key};
pub use workloads::Workloads;

/// All controllers together.
pub struct Controllers {
    /// Whether workloads create pods.
    pub workloads: bool,
    /// The certificate of the server's authority, in PEM, for what every namespace has; without it a namespace is empty.
    pub certificate: Option<String>,
    /// Where clients reach the server, for its own Service; without it there is none.
    pub address: Option<SocketAddr>,
}

impl Controllers {
    /// Runs all of them until `stop`.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        futures::join!(
            Namespaces.run(client.clone(), stop.clone()),
            Garbage.run(client.clone(), stop.clone()),
            Endpoints.run(client.clone(), stop.clone()),
            async {
                if let Some(certificate) = self.certificate {
                    Bootstrap { certificate }.run(client.clone(), stop.clone()).await;
                }
            },
            async {
                if let Some(address) = self.address {
                    OwnService { address }.run(client.clone(), stop.clone()).await;
                }
            },
            async {
                if self.workloads {
                    Workloads.run(client.clone(), stop.clone()).await;
                }
            },
        );
    }
}
