//! A server as the stories see it.

use kube::Client;
use portolan_apiserver::ApiServer;
use portolan_apiserver::controllers::Controllers;
use portolan_testkit::ControlPlane;
use tokio_util::sync::CancellationToken;

/// A server as two users see it.
#[derive(Clone)]
pub(crate) struct Server {
    /// A client with all rights.
    pub(crate) client: Client,
    /// A client without credentials.
    pub(crate) anonymous: Client,
}

impl Server {
    /// The real kube-apiserver that the tests of this binary share; call it within a runtime.
    pub(crate) fn real() -> Self {
        let plane = ControlPlane::shared();
        let mut config = plane.config();
        config.auth_info.client_certificate = None;
        config.auth_info.client_key = None;
        Self { client: plane.client(), anonymous: Client::try_from(config).unwrap() }
    }

    /// The embedded server, fresh, with the controllers that a controller-manager runs.
    pub(crate) async fn embedded() -> Self {
        let server = ApiServer::memory().await;
        let controllers = Controllers { workloads: false, certificate: None, address: None };
        let inside = server.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { Box::pin(controllers.run(inside.client(), CancellationToken::new())).await });
        });
        Self { client: server.client(), anonymous: server.anonymous_client() }
    }
}
