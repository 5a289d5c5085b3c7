//! The API server: HTTP/1.1 on its own thread and runtime, so that it responds while all workers are busy, and the queue
//! for requests that arrive through API listeners in the data plane.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::exchange::{ApiHandler, Client, Reply, Request, Response};
use super::options::Options;
use super::{Access, Api, response, tls};

/// Capacity of the request queue.
const QUEUE: usize = 1024;
/// Interval for removing unused objects.
const SWEEP: Duration = Duration::from_secs(1);
/// How long to wait for a refused client to read the response.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Address and TLS settings of the API server.
pub struct Listen {
    pub address: SocketAddr,
    pub tls: Option<Arc<ServerConfig>>,
}

/// The API thread; it stops when this is dropped.
pub struct Running {
    /// The bound address, with the actual port.
    pub address: Option<SocketAddr>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// The receiving end of the request queue.
pub struct ApiQueue(Receiver<(QueuedCall, Reply)>);

/// A queued call.
enum QueuedCall {
    Request(Request),
    Metrics,
}

/// Creates the request queue: the handler is for the engine, the queue for [`start`].
pub fn api_queue() -> (Arc<dyn ApiHandler>, ApiQueue) {
    let (sender, receiver) = channel(QUEUE);
    (Arc::new(QueuedApi(sender)), ApiQueue(receiver))
}

impl Listen {
    /// The API server configured by the options, if any. Without authentication it binds to loopback.
    pub fn new(options: &Options, access: &Access) -> io::Result<Option<Self>> {
        let Some(mut address) = options.api.filter(|_| !options.no_api) else { return Ok(None) };
        address.set_ip(options.host_mapping().bind_address(Some(address.ip())).unwrap_or(address.ip()));
        if access.is_loopback_only() && !address.ip().is_loopback() {
            address.set_ip(loopback(address.ip()));
            tracing::warn!(
                %address,
                "the API has no authentication, so it listens on loopback only: pass --api-token-file or \
                 --api-client-ca to enable authentication, or --insecure-api to allow unauthenticated access"
            );
        }
        let tls = match (&options.certificate, &options.key) {
            (Some(certificate), Some(key)) => Some(tls::server(&tls::TlsFiles {
                certificate,
                key,
                client_authority: options.client_authority.as_deref(),
                or_token: options.token_file.is_some(),
            })?),
            _ => None,
        };
        Ok(Some(Self { address, tls }))
    }
}

/// Starts the API's thread. The address is bound when this returns.
pub fn start(api: Arc<Api>, queue: ApiQueue, listen: Option<Listen>) -> io::Result<Running> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stop = CancellationToken::new();
    let bound = match &listen {
        Some(listen) => Some(bind(listen.address)?),
        None => None,
    };
    let address = bound.as_ref().map(std::net::TcpListener::local_addr).transpose()?;
    if let Some(address) = address {
        api.set_own(address).map_err(io::Error::other)?;
    }
    let tls = listen.and_then(|listen| listen.tls).map(TlsAcceptor::from);
    let server = Server { api, tls };
    let until = stop.clone();
    let thread = std::thread::Builder::new().name("api".to_owned()).spawn(move || {
        runtime.block_on(async move {
            tokio::select! {
                () = until.cancelled() => {}
                () = server.run(bound, queue) => {}
            }
        });
    })?;
    Ok(Running { address, stop, thread: Some(thread) })
}

impl Running {
    /// Stops the thread and waits for it.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the API thread panicked");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

struct QueuedApi(Sender<(QueuedCall, Reply)>);

impl ApiHandler for QueuedApi {
    fn submit(&self, request: Request, reply: Reply) {
        self.enqueue(QueuedCall::Request(request), reply);
    }

    fn metrics(&self, reply: Reply) {
        self.enqueue(QueuedCall::Metrics, reply);
    }
}

impl QueuedApi {
    fn enqueue(&self, call: QueuedCall, reply: Reply) {
        use tokio::sync::mpsc::error::TrySendError;
        match self.0.try_send((call, reply)) {
            Ok(()) => {}
            Err(TrySendError::Full((_, reply))) => reply(response::busy()),
            Err(TrySendError::Closed((_, reply))) => {
                reply(response::error(503, "Service Unavailable", "Stopping".into()));
            }
        }
    }
}

#[derive(Clone)]
struct Server {
    api: Arc<Api>,
    tls: Option<TlsAcceptor>,
}

impl Server {
    async fn run(self, bound: Option<std::net::TcpListener>, mut queue: ApiQueue) {
        let listener = bound.and_then(|bound| match TcpListener::from_std(bound) {
            Ok(listener) => Some(listener),
            Err(error) => {
                tracing::error!(%error, "cannot serve the API");
                None
            }
        });
        let open_now = Arc::new(());
        let mut tasks = JoinSet::new();
        let mut sweep = tokio::time::interval(SWEEP);
        let mut open = true;
        loop {
            tokio::select! {
                accepted = accept(listener.as_ref()) => match accepted {
                    Ok((stream, from)) => {
                        let (server, held) = (self.clone(), Arc::clone(&open_now));
                        let admitted = Arc::strong_count(&open_now) <= self.api.limits().api_connections + 1;
                        tasks.spawn(async move {
                            if admitted {
                                server.connection(stream, from).await;
                                drop(held);
                            } else {
                                // a refused connection does not count against the limit
                                drop(held);
                                server.refuse(stream).await;
                            }
                        });
                    }
                    // out of descriptors, or the client is gone: retry shortly
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept an API connection");
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                },
                call = queue.0.recv(), if open => match call {
                    Some((QueuedCall::Request(request), reply)) => reply(self.answer(&request)),
                    Some((QueuedCall::Metrics, reply)) => reply(self.guarded(Api::metrics_answer)),
                    None => open = false,
                },
                _ = sweep.tick() => drop(catch_unwind(AssertUnwindSafe(|| self.api.sweep()))),
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    async fn connection(self, stream: TcpStream, from: SocketAddr) {
        let limit = Duration::from_millis(self.api.limits().api_request_ms);
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "an API connection was closed by its client");
        }
        let client = Client { address: Some(from.ip().to_canonical()), certified: false };
        let Some(acceptor) = &self.tls else { return self.serve(stream, client, limit).await };
        match tokio::time::timeout(limit, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let certified = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
                self.serve(stream, Client { certified, ..client }, limit).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, %from, "API TLS handshake failed"),
            Err(_) => tracing::debug!(%from, "API TLS handshake timed out"),
        }
    }

    /// Responds 429 to a connection over the limit; without a response under TLS, where no handshake was made.
    async fn refuse(self, mut stream: TcpStream) {
        self.api.count("api_connections");
        if self.tls.is_some() {
            return;
        }
        let Response { status, reason, body, .. } = response::busy();
        let kind = "Content-Type: application/json\r\nConnection: close";
        let head = format!("HTTP/1.1 {status} {reason}\r\n{kind}\r\nContent-Length: {}\r\n\r\n", body.len());
        let said = async {
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&body).await?;
            stream.shutdown().await
        };
        if !matches!(tokio::time::timeout(REFUSAL_TIMEOUT, said).await, Ok(Ok(()))) {
            tracing::debug!("a refused API client closed the connection early");
        }
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin, client: Client, limit: Duration) {
        let limits = self.api.limits();
        let service = service_fn(|request| self.exchange(request, client.clone(), limit));
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limit)
            .max_headers(limits.http_headers)
            .max_buf_size(limits.http_head.max(8192))
            .title_case_headers(true)
            .serve_connection(TokioIo::new(stream), service)
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "API connection failed");
        }
    }

    async fn exchange(
        &self,
        request: http::Request<Incoming>,
        client: Client,
        limit: Duration,
    ) -> Result<http::Response<Full<Bytes>>, Infallible> {
        let read = tokio::time::timeout(limit, self.receive(request, client)).await;
        Ok(outgoing(match read {
            Ok(Ok(request)) => self.answer(&request),
            Ok(Err(response)) => response,
            Err(_) => {
                self.api.count("api_request_ms");
                response::request_timeout()
            }
        }))
    }

    async fn receive(&self, request: http::Request<Incoming>, client: Client) -> Result<Request, Response> {
        let most = self.api.limits().body;
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, most).collect().await else {
            self.api.count("body");
            return Err(response::body_too_large(most));
        };
        let target = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        Ok(Request {
            method: head.method.as_str().to_owned(),
            target: target.to_owned(),
            headers: head.headers.iter().map(header).collect(),
            body: body.to_bytes().to_vec(),
            client,
        })
    }

    /// Catches panics: the process continues with a consistent configuration, because a change takes effect in its last step.
    fn answer(&self, request: &Request) -> Response {
        self.guarded(|api| api.handle(request))
    }

    fn guarded(&self, answer: impl FnOnce(&Api) -> Response) -> Response {
        catch_unwind(AssertUnwindSafe(|| answer(&self.api))).unwrap_or_else(|_| {
            tracing::error!("an API request panicked: please report this bug");
            response::error(500, "Internal Server Error", "Internal error; nothing was changed".into())
        })
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

fn outgoing(response: Response) -> http::Response<Full<Bytes>> {
    let mut built = http::Response::new(Full::new(Bytes::from(response.body)));
    *built.status_mut() =
        http::StatusCode::from_u16(response.status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in response.headers {
        if let (Ok(name), Ok(value)) = (http::HeaderName::try_from(name), http::HeaderValue::try_from(value)) {
            built.headers_mut().append(name, value);
        }
    }
    if let Ok(reason) = ReasonPhrase::try_from(response.reason.into_bytes()) {
        built.extensions_mut().insert(reason);
    }
    built
}

fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn loopback(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    }
}
