//! HTTPS: TLS with a certificate made here, HTTP/1.1 and HTTP/2, client certificates checked.
//!
//! A peer that is slow costs little and not for long: the handshake and each request head have a time limit, and
//! connections a bound. On stop, watches (bodies without a length) end at once, other answers within a deadline.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use jiff::Timestamp;
use parking_lot::RwLock;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;

use crate::auth::Identity;
use crate::auth::authority::{Authority, Signed};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How often a running server looks whether its certificate nears its end.
const RENEWAL_CHECK: Duration = Duration::from_hours(1);
/// A pause after a failed accept: out of file descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How to serve.
#[derive(Debug, Clone)]
pub struct Options {
    pub listen: SocketAddr,
    /// Keeps the authority, so that kubeconfigs survive a restart.
    pub data_dir: Option<PathBuf>,
    /// Names and addresses in the certificate, beside localhost and the one listened on.
    pub names: Vec<String>,
    pub max_connections: usize,
    /// For the TLS handshake, and for each request head. kube-apiserver takes 32 s for the latter.
    pub head_timeout: Duration,
    /// For requests under way when the server stops.
    pub stop_within: Duration,
}

impl Options {
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            data_dir: None,
            names: Vec::new(),
            max_connections: 4096,
            head_timeout: Duration::from_secs(32),
            stop_within: Duration::from_secs(5),
        }
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
    certificate: Arc<Current>,
    tls: TlsAcceptor,
}

impl Server {
    /// Opens or makes the authority, signs a certificate and listens.
    pub async fn bind(options: Options) -> Result<Self, Error> {
        let now = Timestamp::now();
        let authority = Authority::open(options.data_dir.as_deref(), now)?;
        let listen = |cause| Error::Listen { address: options.listen, cause };
        let listener = TcpListener::bind(options.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let certificate = Arc::new(Current::new(&authority.serving(&names(&options, address), now)?)?);
        let tls = acceptor(&authority, Arc::clone(&certificate)).map_err(Error::Tls)?;
        Ok(Self { options, listener, address, authority, certificate, tls })
    }

    /// Where it listens; the port is the one it got if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Signs client certificates, and is what clients trust.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The URL for a kubeconfig: loopback if it listens everywhere.
    pub fn url(&self) -> String {
        let mut address = self.address;
        match address.ip() {
            ip if !ip.is_unspecified() => {}
            std::net::IpAddr::V4(_) => address.set_ip(std::net::Ipv4Addr::LOCALHOST.into()),
            std::net::IpAddr::V6(_) => address.set_ip(std::net::Ipv6Addr::LOCALHOST.into()),
        }
        format!("https://{address}")
    }

    /// Serves until `stop`, then until all answers are out or the deadline is over.
    pub async fn run<S, F, B>(self, service: S, stop: CancellationToken)
    where
        S: Fn(Request<Incoming>, Option<Arc<Identity>>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let connections = Arc::new(Semaphore::new(self.options.max_connections));
        let tasks = TaskTracker::new();
        // Told to end now, whatever is under way.
        let cut = CancellationToken::new();
        let mut renewal = tokio::time::interval(RENEWAL_CHECK);
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                _ = renewal.tick() => { self.renew(Timestamp::now()); continue }
                accepted = accept(&self.listener, &connections) => accepted,
            };
            let Some((stream, permit)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let connection = Connection {
                tls: self.tls.clone(),
                head_timeout: self.options.head_timeout,
                stop: stop.clone(),
                tasks: tasks.clone(),
            };
            let (service, cut) = (service.clone(), cut.clone());
            tasks.spawn(async move {
                cut.run_until_cancelled(connection.serve(stream, service)).await;
                drop(permit);
            });
        }
        drop(self.listener);
        tasks.close();
        if tokio::time::timeout(self.options.stop_within, tasks.wait()).await.is_err() {
            tracing::warn!(connections = tasks.len(), "requests were still under way when the server stopped");
            cut.cancel();
        }
    }

    fn renew(&self, now: Timestamp) {
        if !self.certificate.is_ending(now) {
            return;
        }
        let names = names(&self.options, self.address);
        match self.authority.serving(&names, now).and_then(|signed| self.certificate.replace(&signed)) {
            Ok(()) => tracing::info!("the serving certificate was renewed"),
            Err(error) => tracing::error!(%error, "renewing the serving certificate failed"),
        }
    }
}

/// One connection's settings.
struct Connection {
    tls: TlsAcceptor,
    head_timeout: Duration,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Connection {
    async fn serve<S, F, B>(self, stream: TcpStream, service: S)
    where
        S: Fn(Request<Incoming>, Option<Arc<Identity>>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        stream.set_nodelay(true).ok();
        let handshake = tokio::time::timeout(self.head_timeout, self.tls.accept(stream));
        let stream = match self.stop.run_until_cancelled(handshake).await {
            Some(Ok(Ok(stream))) => stream,
            Some(Ok(Err(error))) => return tracing::debug!(%error, "a TLS handshake failed"),
            Some(Err(_)) | None => return,
        };
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let peer = certificate.and_then(|certificate| Identity::read(certificate)).map(Arc::new);
        let stop = self.stop.clone();
        let service = service_fn(move |request| {
            let answer = service(request, peer.clone());
            let stop = stop.clone();
            async move { Ok::<_, std::convert::Infallible>(answer.await.map(|body| until(stop, body))) }
        });
        let mut builder = auto::Builder::new(Spawner(self.tasks));
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

/// A body that ends early when the server stops, if it would not end by itself.
struct Until {
    body: UnsyncBoxBody<Bytes, BoxError>,
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

fn until<B>(stop: CancellationToken, body: B) -> Until
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let endless = body.size_hint().upper().is_none();
    let stop = endless.then(|| Box::pin(stop.cancelled_owned()));
    Until { body: body.map_err(Into::into).boxed_unsync(), stop }
}

impl Body for Until {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // What is ready still goes out.
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(frame),
            Poll::Pending => match self.stop.as_mut().map(|stop| stop.as_mut().poll(cx)) {
                Some(Poll::Ready(())) => Poll::Ready(None),
                Some(Poll::Pending) | None => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The certificate that is served at present.
#[derive(Debug)]
struct Current(RwLock<(Arc<CertifiedKey>, Timestamp)>);

impl Current {
    fn new(signed: &Signed) -> Result<Self, crate::auth::authority::Error> {
        Ok(Self(RwLock::new((signed.certified()?, signed.expires))))
    }

    fn replace(&self, signed: &Signed) -> Result<(), crate::auth::authority::Error> {
        *self.0.write() = (signed.certified()?, signed.expires);
        Ok(())
    }

    fn is_ending(&self, now: Timestamp) -> bool {
        crate::auth::authority::is_ending(self.0.read().1, now)
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().0))
    }
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(connections).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(error) => {
            tracing::warn!(%error, "accepting a connection failed");
            None
        }
    }
}

fn names(options: &Options, address: SocketAddr) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    names.extend(["kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned));
    if !address.ip().is_unspecified() {
        names.push(address.ip().to_string());
    }
    names.extend(options.names.iter().cloned());
    names.sort();
    names.dedup();
    names
}

fn acceptor(authority: &Authority, certificate: Arc<Current>) -> Result<TlsAcceptor, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.certificate().as_bytes()).map_err(|error| error.to_string())?;
    roots.add(root).map_err(|error| error.to_string())?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| error.to_string())?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests;
