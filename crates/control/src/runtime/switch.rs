//! A client whose server can be changed under it: watches that use it go on where they were, and requests that the server
//! before has not answered yet fail, so that they are sent again.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tower::BoxError;

/// What requests of its clients are sent to. Clones are the same switch.
#[derive(Clone)]
pub struct ClientSwitch {
    target: Arc<watch::Sender<Option<Client>>>,
}

/// There is no server at the moment.
#[derive(Debug, thiserror::Error)]
#[error("not connected yet")]
pub struct NotConnected;

/// The request was sent to a server that is not used any more.
#[derive(Debug, thiserror::Error)]
#[error("the server is another one by now")]
struct Switched;

impl Default for ClientSwitch {
    fn default() -> Self {
        Self { target: Arc::new(watch::Sender::new(None)) }
    }
}

impl ClientSwitch {
    /// A client of whatever server is set.
    pub fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Sends all further requests there.
    pub fn set(&self, target: Option<Client>) {
        self.target.send_replace(target);
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
        let mut target = self.target.subscribe();
        Box::pin(async move {
            let client = target.borrow_and_update().clone().ok_or(NotConnected)?;
            tokio::select! {
                answer = client.send(request) => Ok(answer?),
                _ = target.changed() => Err(Switched.into()),
            }
        })
    }
}
