//! A way to the API server that loses requests, answers and watches as the dice say, and counts writes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use fastrand::Rng;
use futures::{FutureExt as _, StreamExt as _};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use tower::Service;

/// One way, for one operator after the other.
#[derive(Clone)]
pub(super) struct Way {
    inner: Client,
    /// None: nothing is ever lost.
    dice: Option<Arc<Mutex<Rng>>>,
    rough: Arc<AtomicBool>,
    writes: Arc<AtomicU64>,
}

impl Way {
    pub(super) fn new(inner: Client, seed: Option<u64>) -> Self {
        let dice = seed.map(|seed| Arc::new(Mutex::new(Rng::with_seed(seed))));
        Self { inner, dice, rough: Arc::new(AtomicBool::new(true)), writes: Arc::default() }
    }

    pub(super) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Switches faults on or off, where there are any.
    pub(super) fn rough(&self, on: bool) {
        self.rough.store(on, Ordering::Relaxed);
    }

    /// Writes since the last call.
    pub(super) fn take_writes(&self) -> u64 {
        self.writes.swap(0, Ordering::Relaxed)
    }
}

type Bytes = UnsyncBoxBody<bytes::Bytes, kube::Error>;

#[derive(Debug, thiserror::Error)]
#[error("the connection was lost")]
pub(super) struct Lost;

impl Service<Request<Body>> for Way {
    type Response = Response<Bytes>;
    type Error = Lost;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, Lost>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let writing = request.method() != Method::GET;
        if writing {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        let watching = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let dice = self.dice.as_ref().filter(|_| self.rough.load(Ordering::Relaxed));
        let (fate, events) = dice.map_or((100, usize::MAX), |dice| {
            let mut dice = dice.lock();
            (dice.u8(0..100), dice.usize(1..12))
        });
        let inner = self.inner.clone();
        async move {
            match fate {
                // The request never arrives, is refused, or the server is not well.
                0..4 => return Err(Lost),
                4..8 if writing => return Ok(failure(409, "Conflict")),
                4..8 => return Ok(failure(503, "ServiceUnavailable")),
                8..10 if watching => return Ok(failure(410, "Expired")),
                _ => {}
            }
            let answer = inner.send(request).await.map_err(|_| Lost)?;
            if writing && fate < 14 {
                // It was done, and nobody hears of it.
                return Err(Lost);
            }
            let pieces = if watching && fate < 60 { events } else { usize::MAX };
            let (parts, body) = answer.into_parts();
            let frames = body.into_data_stream().take(pieces).map(|piece| piece.map(Frame::data));
            Ok(Response::from_parts(parts, StreamBody::new(frames).boxed_unsync()))
        }
        .boxed()
    }
}

fn failure(code: u16, reason: &str) -> Response<Bytes> {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason });
    let body = Full::new(status.to_string().into_bytes().into()).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer
}
