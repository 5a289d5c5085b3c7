//! A way to an in-process API server that loses requests, answers and watches as the dice say, and notes what was
//! written. Without sockets, so that it also works on a paused clock.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// One way. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Chaos {
    inner: Client,
    /// None: nothing is ever lost.
    dice: Option<Arc<Mutex<Rng>>>,
    writes: Arc<Mutex<Vec<String>>>,
    dead: Arc<AtomicBool>,
    calm: Arc<AtomicBool>,
}

impl Chaos {
    /// Without a seed nothing is lost.
    pub(crate) fn new(inner: &Client, seed: Option<u64>) -> Self {
        let dice = seed.map(|seed| Arc::new(Mutex::new(Rng::with_seed(seed))));
        Self { inner: inner.clone(), dice, writes: Arc::default(), dead: Arc::default(), calm: Arc::default() }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// From now on nothing gets through.
    pub(crate) fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    /// Whether nothing is lost for the time being.
    pub(crate) fn calm(&self, calm: bool) {
        self.calm.store(calm, Ordering::Relaxed);
    }

    /// What was written since the last call, events among it.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.writes.lock())
    }
}

type Bytes = UnsyncBoxBody<bytes::Bytes, kube::Error>;

#[derive(Debug, thiserror::Error)]
#[error("the connection was lost")]
pub(crate) struct Lost;

impl Service<Request<Body>> for Chaos {
    type Response = Response<Bytes>;
    type Error = Lost;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, Lost>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let writing = request.method() != Method::GET;
        if writing {
            self.writes.lock().push(format!("{} {}", request.method(), request.uri().path()));
        }
        let watching = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let dice = self.dice.as_ref().filter(|_| !self.calm.load(Ordering::Relaxed));
        let (fate, events) = dice.map_or((100, usize::MAX), |dice| {
            let mut dice = dice.lock();
            (dice.u8(0..100), dice.usize(1..12))
        });
        let (inner, dead) = (self.inner.clone(), self.dead.clone());
        async move {
            if dead.load(Ordering::Relaxed) {
                return Err(Lost);
            }
            match fate {
                // The request never arrives, is refused, or the server is not well.
                0..5 => return Err(Lost),
                5..9 if writing => return Ok(failure(409, "Conflict")),
                5..9 => return Ok(failure(503, "ServiceUnavailable")),
                9..11 if watching => return Ok(failure(410, "Expired")),
                _ => {}
            }
            let answer = inner.send(request).await.map_err(|_| Lost)?;
            if writing && fate < 15 {
                // It was done, and nobody hears of it.
                return Err(Lost);
            }
            // A watch that is to be cut ends after so many pieces.
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
