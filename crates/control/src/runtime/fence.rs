//! Holds back the writes of a replica that does not lead, in the client itself, so that no caller can forget.
//!
//! A write starts only while the lease is held, and one still under way when the lease runs out is abandoned.
//! The lease can be taken by another replica only later (see [`lease`](super::lease)): that gap is the time in
//! which an abandoned request can still reach the API server.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tower::BoxError;

use super::lease::Leadership;
use super::metrics::Metrics;

/// A client that reads as it likes and writes only while this replica leads.
pub fn fenced(client: Client, leadership: Leadership, metrics: Metrics) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(Fence { client, leadership, metrics }, namespace)
}

/// Why a write ended at the fence.
#[derive(Debug, thiserror::Error, Clone, Copy, PartialEq, Eq)]
enum Refused {
    #[error("not sent: this replica does not lead")]
    NeverSent,
    #[error("given up: the lease ran out before the answer came")]
    GivenUp,
}

/// True when a write ended at the fence.
pub fn refused(error: &kube::Error) -> bool {
    cause(error).is_some()
}

/// True when a write ended at the fence before anything was sent.
pub fn never_sent(error: &kube::Error) -> bool {
    cause(error) == Some(Refused::NeverSent)
}

fn cause(error: &kube::Error) -> Option<Refused> {
    let kube::Error::Service(cause) = error else { return None };
    cause.downcast_ref().copied()
}

#[derive(Clone)]
struct Fence {
    client: Client,
    leadership: Leadership,
    metrics: Metrics,
}

impl tower::Service<Request<Body>> for Fence {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { client, leadership, metrics } = self.clone();
        Box::pin(async move {
            if matches!(*request.method(), Method::GET | Method::HEAD) {
                return Ok(client.send(request).await?);
            }
            if !leadership.held() {
                metrics.fenced.inc();
                return Err(Refused::NeverSent.into());
            }
            tokio::select! {
                biased;
                answer = client.send(request) => Ok(answer?),
                () = leadership.ran_out() => {
                    metrics.fenced.inc();
                    Err(Refused::GivenUp.into())
                }
            }
        })
    }
}
