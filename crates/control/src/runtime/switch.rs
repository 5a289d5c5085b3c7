//! A client whose server can be changed under it: watches that use it go on where they were.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::RwLock;
use tower::BoxError;

/// What requests of its clients are sent to. Clones are the same switch.
#[derive(Clone, Default)]
pub struct ClientSwitch {
    target: Arc<RwLock<Option<Client>>>,
}

/// There is no server at the moment.
#[derive(Debug, thiserror::Error)]
#[error("not connected yet")]
pub struct NotConnected;

impl ClientSwitch {
    /// A client of whatever server is set.
    pub fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Sends all further requests there.
    pub fn set(&self, target: Option<Client>) {
        *self.target.write() = target;
    }
}

impl tower::Service<Request<Body>> for ClientSwitch {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let target = self.target.read().clone();
        Box::pin(async move {
            let client = target.ok_or(NotConnected)?;
            Ok(client.send(request).await?)
        })
    }
}
