//! Proxies of a story: the REST API of the real proxy in this process, on an engine that opens no sockets. Requests and
//! responses get lost while the story has faults.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use portolan_proxy::config::engine::{BindError, Ending, Engine, Page, SessionFilter, SessionPage, Stats};
use portolan_proxy::config::json::{Json, Object};
use portolan_proxy::config::snapshot::Snapshot;
use portolan_proxy::config::spec;
use portolan_proxy::rest::exchange::{Client, Request, Response};
use portolan_proxy::rest::{Access, Api, Settings};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::mesh::harness::{API, fresh_address};

/// The proxy of one pod. Dropped, it is gone with its configuration.
pub(super) struct MemoryProxy {
    api: Arc<Api>,
    refused_ports: Arc<Mutex<BTreeSet<u16>>>,
    _tasks: JoinSet<()>,
}

/// Loses requests and responses while it is armed.
#[derive(Clone)]
pub(super) struct Faults {
    dice: Option<Arc<Mutex<Rng>>>,
    calm: Arc<std::sync::atomic::AtomicBool>,
}

/// What becomes of a request.
enum Fate {
    Answered,
    /// The connection closes before the proxy sees the request.
    RequestLost,
    /// The proxy does what is asked, and the connection closes.
    ResponseLost,
}

impl Faults {
    /// Without a seed nothing is lost.
    pub(super) fn new(seed: Option<u64>) -> Self {
        let dice = seed.map(|seed| Arc::new(Mutex::new(Rng::with_seed(seed))));
        Self { dice, calm: Arc::default() }
    }

    /// Whether nothing is lost for the time being.
    pub(super) fn calm(&self, calm: bool) {
        self.calm.store(calm, std::sync::atomic::Ordering::Relaxed);
    }

    fn roll(&self) -> Fate {
        let is_calm = self.calm.load(std::sync::atomic::Ordering::Relaxed);
        match self.dice.as_ref().filter(|_| !is_calm).map(|dice| dice.lock().u8(0..100)) {
            Some(0..10) => Fate::RequestLost,
            Some(10..20) => Fate::ResponseLost,
            _ => Fate::Answered,
        }
    }
}

impl MemoryProxy {
    /// An address that no other pod has.
    pub(super) fn address() -> Ipv4Addr {
        fresh_address()
    }

    /// A proxy without configuration. `run` tells it from an earlier one of the same pod.
    pub(super) async fn start(address: Ipv4Addr, run: u32, faults: Faults) -> anyhow::Result<Self> {
        let refused_ports = Arc::<Mutex<BTreeSet<u16>>>::default();
        let engine = Arc::new(MemoryEngine { refused_ports: Arc::clone(&refused_ports) });
        let settings = Settings { instance: format!("{address}-{run}"), ..Settings::default() };
        let api = Arc::new(Api::new(engine, Access::new(None, false, true)?, settings));
        api.load(&Json::Object(Object::default())).map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
        let listener = TcpListener::bind((address, API)).await?;
        let (served, mut tasks) = (Arc::clone(&api), JoinSet::new());
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, from)) = listener.accept().await {
                open.spawn(serve(stream, from, Arc::clone(&served), faults.clone()));
            }
        });
        Ok(Self { api, refused_ports, _tasks: tasks })
    }

    /// Ports that somebody else has from now on.
    pub(super) fn refuse(&self, ports: &[u16]) {
        *self.refused_ports.lock() = ports.iter().copied().collect();
    }

    /// Its configuration, as its API shows it.
    pub(super) fn config(&self) -> anyhow::Result<Value> {
        let request = Request { method: "GET".to_owned(), target: "/api/v2/config".to_owned(), ..Request::default() };
        Ok(serde_json::from_slice(&self.api.handle(&request).body)?)
    }
}

async fn serve(stream: TcpStream, from: SocketAddr, api: Arc<Api>, faults: Faults) {
    let answer = service_fn(|request: http::Request<hyper::body::Incoming>| {
        let (api, faults) = (Arc::clone(&api), faults.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let fate = faults.roll();
            if matches!(fate, Fate::RequestLost) {
                return Err(Lost);
            }
            let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
            let response = api.handle(&Request {
                method: head.method.to_string(),
                target: head.uri.to_string(),
                headers: head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
                body: body.to_vec(),
                client: Client { address: Some(from.ip()), certified: false },
            });
            if matches!(fate, Fate::ResponseLost) { Err(Lost) } else { Ok(translated(response)) }
        }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    // one that broke is a fault of the story
    drop(connection.await);
}

#[derive(Debug, thiserror::Error)]
#[error("the connection was lost")]
struct Lost;

fn translated(response: Response) -> http::Response<Full<Bytes>> {
    let Response { status, headers, body, .. } = response;
    let mut answer = http::Response::builder().status(status);
    for (name, value) in headers {
        answer = answer.header(name, value);
    }
    answer.body(Full::new(Bytes::from(body))).expect("the API writes headers that HTTP allows")
}

/// Opens nothing; ports that are refused are in use by somebody else.
struct MemoryEngine {
    refused_ports: Arc<Mutex<BTreeSet<u16>>>,
}

impl Engine for MemoryEngine {
    fn apply(&self, next: Arc<Snapshot>) -> Result<(), BindError> {
        for listener in next.changed_listeners.iter().filter_map(|change| change.after.as_ref()) {
            let Some((_, _, port)) = spec::claim(&listener.spec) else { continue };
            if self.refused_ports.lock().contains(&port) {
                return Err(BindError {
                    listener: Arc::clone(&listener.name),
                    protocol: listener.spec.transport().protocol(),
                    call: "bind",
                    at: format!("0.0.0.0:{port}"),
                    code: "EADDRINUSE".to_owned(),
                });
            }
        }
        Ok(())
    }

    fn sessions(&self, _: &SessionFilter, _: &Page) -> SessionPage {
        SessionPage::default()
    }

    fn count(&self, _: &SessionFilter) -> usize {
        0
    }

    fn end(&self, _: &SessionFilter, _: Ending) -> usize {
        0
    }

    fn stats(&self) -> Stats {
        Stats { bound: true, ..Stats::default() }
    }
}

/// Keeps a paused clock from jumping far while packets are on their way: the clock moves to the next timer whenever
/// nothing is ready to run, also when a packet is about to arrive. With a timer every 20 ms, time-outs of seconds are
/// many rounds away.
pub(super) async fn steady_clock() -> Infallible {
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        // gives the kernel time to deliver what was sent, more of it on a busy machine
        std::thread::sleep(Duration::from_micros(5));
    }
}
