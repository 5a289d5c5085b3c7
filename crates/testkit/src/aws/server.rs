//! An HTTP server on loopback that ends when dropped.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

pub(super) type Answer = Response<Full<Bytes>>;

/// The connection is closed instead of an answer.
#[derive(Debug, thiserror::Error)]
#[error("cut on purpose")]
pub(super) struct Cut;

/// Answers a request.
pub(super) type Handler = dyn Fn(Parts, Bytes) -> BoxFuture<'static, Result<Answer, Cut>> + Send + Sync;

pub(super) struct Server {
    pub(super) address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Server {
    pub(super) async fn start(handler: Arc<Handler>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("binding a stand-in of AWS")?;
        let address = listener.local_addr()?;
        Ok(Self { address, serving: tokio::spawn(accept(listener, handler)) })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn accept(listener: TcpListener, handler: Arc<Handler>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let handler = handler.clone();
        connections.spawn(async move {
            let service = service_fn(|request| answer(handler.clone(), request));
            // An error is a connection closed by either side.
            http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.unwrap_or_default();
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(handler: Arc<Handler>, request: Request<Incoming>) -> Result<Answer, Cut> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    handler(head, body).await
}

pub(super) fn text(status: u16, content_type: &str, body: String) -> Answer {
    let answer = Response::builder().status(status).header(http::header::CONTENT_TYPE, content_type);
    answer.body(Full::from(body)).expect("an answer")
}
