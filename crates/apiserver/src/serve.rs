//! HTTPS: TLS with a generated certificate, HTTP/1.1 and HTTP/2, client certificates verified.
//!
//! Slow clients are bounded: the handshake and each request head have a timeout, and the number of
//! connections a limit. On stop, watches end immediately, other responses within a deadline.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use jiff::Timestamp;
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ApiServer;
use crate::auth::Identity;
use crate::auth::authority::Authority;

/// A pause after a failed accept: out of file descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Options of the HTTPS server.
#[derive(Debug, Clone)]
pub struct Options {
    pub listen: SocketAddr,
    /// Keeps the authority, so that kubeconfigs survive a restart.
    pub data_dir: Option<PathBuf>,
    pub max_connections: usize,
    /// For the TLS handshake, and for each request head. kube-apiserver takes 32 s for the latter.
    pub head_timeout: Duration,
    /// How long requests in flight may take when the server stops.
    pub stop_within: Duration,
}

impl Options {
    pub fn new(listen: SocketAddr) -> Self {
        let (head_timeout, stop_within) = (Duration::from_secs(32), Duration::from_secs(5));
        Self { listen, data_dir: None, max_connections: 4096, head_timeout, stop_within }
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("listening on {address} failed: is another server there?")]
    Listen {
        address: SocketAddr,
        #[source]
        cause: std::io::Error,
    },
    #[error(transparent)]
    Certificate(#[from] crate::auth::authority::Error),
    #[error("setting up TLS failed: {0}")]
    Tls(String),
}

/// A server that listens and is ready to run.
pub struct Server {
    options: Options,
    listener: TcpListener,
    address: SocketAddr,
    authority: Authority,
    tls: TlsAcceptor,
}

impl Server {
    /// Opens or creates the certificate authority, signs a serving certificate and listens.
    pub async fn bind(options: Options) -> Result<Self, Error> {
        let authority = Authority::open(options.data_dir.as_deref(), Timestamp::now())?;
        let listen = |cause| Error::Listen { address: options.listen, cause };
        let listener = TcpListener::bind(options.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let tls = acceptor(&authority, address)?;
        Ok(Self { options, listener, address, authority, tls })
    }

    /// Where it listens; the port is the one it got if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Signs client certificates, and is what clients trust.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Where clients on this machine reach it: on loopback if it listens everywhere.
    pub fn reachable(&self) -> SocketAddr {
        let mut address = self.address;
        match address.ip() {
            ip if !ip.is_unspecified() => {}
            IpAddr::V4(_) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(_) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        }
        address
    }

    /// The URL for a kubeconfig.
    pub fn url(&self) -> String {
        format!("https://{}", self.reachable())
    }

    /// Serves until `stop`, then until all responses are sent or the deadline has passed.
    pub async fn run(self, server: ApiServer, stop: CancellationToken) {
        let connections = Arc::new(Semaphore::new(self.options.max_connections));
        let tasks = TaskTracker::new();
        // Closes connections at once, whatever is in flight.
        let cut = CancellationToken::new();
        let accept = async || {
            let permit = Arc::clone(&connections).acquire_owned().await;
            (self.listener.accept().await, permit)
        };
        while let Some((accepted, permit)) = stop.run_until_cancelled(accept()).await {
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (tls, head_timeout) = (self.tls.clone(), self.options.head_timeout);
            let connection = Connection { server: server.clone(), tls, head_timeout, stop: stop.clone() };
            let (cut, spawner) = (cut.clone(), Spawner(tasks.clone()));
            tasks.spawn(async move {
                cut.run_until_cancelled(connection.serve(stream, spawner)).await;
                drop(permit);
            });
        }
        drop(self.listener);
        server.end_watches();
        tasks.close();
        if tokio::time::timeout(self.options.stop_within, tasks.wait()).await.is_err() {
            tracing::warn!(connections = tasks.len(), "requests were still in flight when the server stopped");
            cut.cancel();
        }
    }
}

/// One connection's settings.
struct Connection {
    server: ApiServer,
    tls: TlsAcceptor,
    head_timeout: Duration,
    stop: CancellationToken,
}

impl Connection {
    async fn serve(self, stream: TcpStream, spawner: Spawner) {
        stream.set_nodelay(true).ok();
        let handshake = tokio::time::timeout(self.head_timeout, self.tls.accept(stream));
        let stream = match self.stop.run_until_cancelled(handshake).await {
            Some(Ok(Ok(stream))) => stream,
            Some(Ok(Err(error))) => return tracing::debug!(%error, "a TLS handshake failed"),
            Some(Err(_)) | None => return,
        };
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let peer = certificate.and_then(|certificate| Identity::read(certificate)).map(Arc::new);
        let service = service_fn(move |request: Request<Incoming>| {
            let (server, peer) = (self.server.clone(), peer.clone());
            async move {
                let request = request.map(crate::rest::boxed);
                Ok::<_, std::convert::Infallible>(server.answer(request, peer.as_deref()).await)
            }
        });
        let mut builder = auto::Builder::new(spawner);
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.head_timeout);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(250)
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(15));
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error, "a connection broke");
        }
    }
}

/// Runs HTTP/2 streams as tasks that the server waits for.
#[derive(Clone)]
struct Spawner(TaskTracker);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Spawner {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// TLS with a certificate for this address and the usual names, which asks clients for theirs.
fn acceptor(authority: &Authority, address: SocketAddr) -> Result<TlsAcceptor, Error> {
    let mut names: Vec<String> =
        ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
            .map(str::to_owned)
            .into();
    if !address.ip().is_unspecified() && !address.ip().is_loopback() {
        names.push(address.ip().to_string());
    }
    let certificate =
        authority.serving(&names, Timestamp::now())?.certified_key().map_err(crate::auth::authority::Error::from)?;
    let tls = |error: &dyn std::fmt::Display| Error::Tls(error.to_string());
    let provider = Arc::new(portolan_certs::provider());
    let roots = portolan_certs::roots(authority.certificate()).map_err(|error| tls(&error))?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| tls(&error))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| tls(&error))?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certificate)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests;
