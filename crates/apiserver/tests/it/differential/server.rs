//! A server as the stories see it.

use std::collections::BTreeSet;

use kube::Client;
use portolan_apiserver::ApiServer;
use portolan_apiserver::loops::{Kubelets, Loops};
use portolan_testkit::ControlPlane;
use tokio_util::sync::CancellationToken;

/// A server as two users see it.
#[derive(Clone)]
pub(crate) struct Server {
    /// Whoever may do everything.
    pub(crate) client: Client,
    /// Whoever shows no credentials.
    pub(crate) stranger: Client,
}

impl Server {
    /// The real kube-apiserver that the tests of this binary share; call it within a runtime.
    pub(crate) fn real() -> Self {
        let plane = ControlPlane::shared();
        let mut config = plane.config();
        config.auth_info.client_certificate = None;
        config.auth_info.client_key = None;
        Self { client: plane.client(), stranger: Client::try_from(config).unwrap() }
    }

    /// The embedded server, fresh, with the loops that a controller-manager runs.
    pub(crate) async fn embedded() -> Self {
        let server = ApiServer::memory().await;
        let loops = Loops {
            // The real server has no kubelets beside it.
            kubelets: Kubelets { nodes: Some(BTreeSet::new()), simulate: None, but: None },
            workloads: false,
        };
        let inside = server.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { Box::pin(loops.run(inside.client(), CancellationToken::new())).await });
        });
        Self { client: server.client(), stranger: server.stranger() }
    }
}
