//! A gateway in this process: it keeps the rules of the REST API, and fails as it is asked to.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::rules::{ACCOUNT, GROUP, PREFIX, Reply, Store, Stored};

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is answered.
    None,
    /// It is refused with this status, and a time to stay away.
    Refuse(u16, Option<u32>),
    /// It is never answered.
    Hang,
    /// It is carried out, and its answer lost.
    LoseAnswer,
}

/// A request that came.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) path: String,
    /// None if it was not answered.
    pub(super) status: Option<u16>,
    pub(super) at: std::time::Instant,
}

impl Asked {
    /// Whether it would change something.
    pub(super) fn changes(&self) -> bool {
        self.method != Method::GET
    }
}

type Faults = Box<dyn FnMut(&Asked) -> Fault + Send>;

/// A gateway; it ends when dropped.
pub(super) struct Gateway {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    serving: Mutex<Option<JoinSet<()>>>,
}

struct Shared {
    store: Mutex<Store>,
    asked: Mutex<Vec<Asked>>,
    faults: Mutex<Faults>,
}

impl Gateway {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let store = Store { addresses: (1..=200).collect(), page: 2, quota: 100, ..Store::default() };
        let shared = Arc::new(Shared {
            store: Mutex::new(store),
            asked: Mutex::default(),
            faults: Mutex::new(Box::new(|_| Fault::None)),
        });
        let gateway = Self { address, shared, serving: Mutex::default() };
        gateway.serve(listener);
        Ok(gateway)
    }

    fn serve(&self, listener: TcpListener) {
        let (mut serving, shared) = (JoinSet::new(), self.shared.clone());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = shared.clone();
                connections.spawn(async move {
                    let answer = service_fn(move |request| answer(shared.clone(), request));
                    // a connection that is cut off is what some tests are about
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await);
                });
            }
        });
        *self.serving.lock() = Some(serving);
    }

    /// Nobody listens any more, and every connection is cut.
    pub(super) fn stop(&self) {
        *self.serving.lock() = None;
    }

    /// Listens again.
    pub(super) async fn listen(&self) -> anyhow::Result<()> {
        let listener = loop {
            match TcpListener::bind(self.address).await {
                Err(cause) if cause.kind() == std::io::ErrorKind::AddrInUse => tokio::task::yield_now().await,
                bound => break bound?,
            }
        };
        self.serve(listener);
        Ok(())
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}{PREFIX}/accounts/{ACCOUNT}/groups/{GROUP}", self.address)
    }

    /// From now on requests fail like this.
    pub(super) fn fail(&self, faults: impl FnMut(&Asked) -> Fault + Send + 'static) {
        *self.shared.faults.lock() = Box::new(faults);
    }

    /// What it stores.
    pub(super) fn store<T>(&self, read: impl FnOnce(&mut Store) -> T) -> T {
        read(&mut self.shared.store.lock())
    }

    /// The only load balancer whose name begins so.
    pub(super) fn service(&self, prefix: &str) -> Option<Stored> {
        let prefix = format!("{prefix}-");
        self.store(|store| Some(store.services.iter().find(|(name, _)| name.starts_with(&prefix))?.1.clone()))
    }

    /// Endpoints as `ADDRESS:PORT/PROTOCOL@NODE`.
    pub(super) fn endpoints(&self, prefix: &str) -> Vec<String> {
        let Some(stored) = self.service(prefix) else { return Vec::new() };
        let of = |((address, port, protocol), spec): (&(String, u64, String), &serde_json::Value)| {
            format!("{address}:{port}/{protocol}@{}", spec["node-address"].as_str().unwrap_or_default())
        };
        stored.endpoints.iter().map(of).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.store(|store| store.services.is_empty())
    }

    /// Everything that it was asked.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().clone()
    }

    /// Requests that would change something since the n-th request.
    pub(super) fn changes_since(&self, count: usize) -> Vec<String> {
        let asked = self.asked();
        asked[count..].iter().filter(|one| one.changes()).map(|one| format!("{} {}", one.method, one.path)).collect()
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
    let mut asked = Asked { method: head.method.clone(), path, status: None, at: std::time::Instant::now() };
    let fault = (shared.faults.lock())(&asked);
    let act = |path: &str| shared.store.lock().answer(&head.method, path, &query, &head.headers, &body);
    let reply = match fault {
        Fault::None => act(&asked.path),
        Fault::Refuse(status, wait) => {
            let status = StatusCode::from_u16(status).map_err(std::io::Error::other)?;
            let reply = Reply::error(status, "NotReady", "not now");
            match wait {
                Some(wait) => reply.with("retry-after", wait.to_string()),
                None => reply,
            }
        }
        Fault::Hang => {
            shared.asked.lock().push(asked);
            std::future::pending::<()>().await;
            return Err(std::io::Error::other("never"));
        }
        Fault::LoseAnswer => {
            act(&asked.path);
            shared.asked.lock().push(asked);
            return Err(std::io::Error::other("the answer is lost"));
        }
    };
    asked.status = Some(reply.status.as_u16());
    shared.asked.lock().push(asked);
    let mut response = Response::builder().status(reply.status).header("content-type", "application/json");
    if let Some((name, value)) = reply.header {
        response = response.header(name, value);
    }
    let body = if reply.body.is_null() { Bytes::new() } else { reply.body.to_string().into() };
    response.body(Full::new(body)).map_err(std::io::Error::other)
}
