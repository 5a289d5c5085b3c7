//! The server as one value: its store, the kinds it serves, authentication and authorization.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;

use crate::auth::{Identity, Recorder, User};
use crate::clock::Clock;
use crate::rest;
use crate::state::ServerState;
use crate::store::{self, Store};

/// The embedded API server. Clones are the same server.
#[derive(Clone)]
pub struct ApiServer {
    state: Arc<ServerState>,
}

/// Namespaces that always exist.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl ApiServer {
    /// A new server that keeps everything in memory.
    pub async fn memory() -> Self {
        Self::memory_with(Clock::default()).await
    }

    /// A new server in memory with the given clock.
    pub async fn memory_with(clock: Clock) -> Self {
        Self::new(Store::memory(store::Options::default()), clock).await
    }

    /// The server stored in `folder`, which is created when missing.
    pub async fn open(folder: &Path) -> Result<Self, store::Error> {
        Ok(Self::new(Store::open(folder, store::Options::default())?, Clock::default()).await)
    }

    async fn new(store: Store, clock: Clock) -> Self {
        let state = ServerState::new(store, clock);
        state.serve_definitions();
        let server = Self { state: Arc::new(state) };
        for name in NAMESPACES {
            if server.state.namespace(name).is_none() {
                rest::create_namespace(&server.state, name).await;
            }
        }
        server
    }

    /// Answers one request; `peer` is the identity in the client certificate.
    pub async fn answer(&self, request: Request<rest::Body>, peer: Option<&Identity>) -> Response<rest::Body> {
        let user = self.state.authenticator.authenticate(request.headers(), peer);
        rest::handle(&self.state, request, user).await
    }

    /// The administrator's bearer token, valid as long as the server runs.
    pub fn token(&self) -> &str {
        &self.state.token
    }

    /// A client in this process, with all rights and without a socket.
    pub fn client(&self) -> Client {
        self.client_of(Some(User::new("system:admin", &["system:masters", "system:authenticated"])))
    }

    /// A client in this process without credentials.
    pub fn anonymous_client(&self) -> Client {
        self.client_of(None)
    }

    fn client_of(&self, user: Option<User>) -> Client {
        let state = self.state.clone();
        let service = move |request: Request<kube::client::Body>| -> Answered {
            let (state, user) = (state.clone(), user.clone());
            Box::pin(async move {
                let user = user.map_or_else(|| state.authenticator.authenticate(request.headers(), None), Ok);
                Ok(rest::handle(&state, request.map(rest::boxed), user).await)
            })
        };
        Client::new(tower::service_fn(service), "default")
    }

    /// Ends all watches, for good: the server is about to stop.
    pub(crate) fn end_watches(&self) {
        self.state.stopping.cancel();
    }

    /// Finishes pending writes and unlocks the data folder; clients can still read, but not write.
    pub(crate) async fn close(&self) {
        self.state.store.close().await;
    }

    /// Records the requests of each user, once switched on.
    pub fn recorder(&self) -> &Recorder {
        &self.state.recorder
    }
}

/// Named, because its type must hold for every lifetime.
type Answered = BoxFuture<'static, Result<Response<rest::Body>, Infallible>>;
