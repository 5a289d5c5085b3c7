//! The HTTPS server that API servers call.
//!
//! The certificate is looked up anew for every handshake, so a change of it touches no open connection. API
//! servers call services over HTTP/1.1 and do not repeat a POST that met a closing connection, so this side never
//! closes an idle one before they do, and announces the close in a last answer when the process stops.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::metrics::{self, Metrics};
use super::review::{Answer, Webhooks};

/// An API server admits objects of 3 MiB; an update brings the old and the new one, and then the review itself.
pub(super) const MAX_BODY: usize = 7 << 20;
/// More open connections wait in the listener's backlog; API servers hold a few dozen each.
const MAX_CONNECTIONS: usize = 1024;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// API servers give up on a webhook after 30 seconds at most.
const READ_BODY: Duration = Duration::from_secs(30);
/// Go's clients drop an idle connection after 90 seconds; ours must be the longer breath.
const IDLE: Duration = Duration::from_mins(2);
/// How long answers in the making may take after the last connection was told to close.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Holds the certificate that the next handshake shows.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

impl Resolver {
    /// Shows this certificate from the next handshake on.
    pub(super) fn set(&self, key: Arc<CertifiedKey>) {
        *self.current.write() = Some(key);
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().clone()
    }
}

/// A server that has its port but answers only once it runs.
pub(super) struct Server {
    pub(super) listener: TcpListener,
    pub(super) tls: Arc<ServerConfig>,
    pub(super) webhooks: Arc<Webhooks>,
    pub(super) metrics: Metrics,
    /// How long connections are served, and asked to close, after the stop signal.
    pub(super) linger: Duration,
}

/// The TLS side: with a `client_ca`, only callers with a certificate that it signed are heard.
pub(super) fn tls(resolver: Arc<Resolver>, client_ca: Option<&str>) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(portolan_certs::provider());
    let verifier = match client_ca {
        None => WebPkiClientVerifier::no_client_auth(),
        Some(bundle) => {
            let invalid = |problem: String| Error::InvalidClientCa { problem };
            let roots = portolan_certs::roots(bundle).map_err(|error| invalid(error.to_string()))?;
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .build()
                .map_err(|error| invalid(error.to_string()))?
        }
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

impl Server {
    /// Serves until the stop signal, and then as long as callers need to go elsewhere.
    pub(super) async fn run(self, stop: CancellationToken) {
        let Self { listener, tls, webhooks, metrics, linger } = self;
        let close = CancellationToken::new();
        let context = Arc::new(Context { webhooks, metrics, stop: stop.clone() });
        let acceptor = TlsAcceptor::from(tls);
        let mut connections = JoinSet::new();
        let lingered = async {
            stop.cancelled().await;
            tokio::time::sleep(linger).await;
        };
        tokio::pin!(lingered);
        loop {
            tokio::select! {
                () = &mut lingered => break,
                accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(serve(stream, acceptor.clone(), context.clone(), close.clone()));
                    }
                    // Out of file descriptors, most likely: those that are open go on, and close some day.
                    Err(cause) => {
                        tracing::warn!(%cause, "cannot accept a webhook call: raise the limit of open files?");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(ended) = connections.join_next() => if let Err(cause) = ended {
                    tracing::error!(%cause, "a webhook connection panicked");
                },
            }
        }
        drop(listener);
        close.cancel();
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_ANSWERS, all).await.is_err() {
            tracing::debug!("some webhook calls did not end in time");
        }
    }
}

/// What every connection shares.
struct Context {
    webhooks: Arc<Webhooks>,
    metrics: Metrics,
    stop: CancellationToken,
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, context: Arc<Context>, close: CancellationToken) {
    let shake = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
    let stream = match shake.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => stream,
        Err(cause) => {
            context.metrics.handshake_failures.inc();
            tracing::debug!(%cause, "a TLS handshake failed");
            return;
        }
    };
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(IDLE / 4).max_concurrent_streams(256);
    let service = hyper::service::service_fn(move |request| handle(context.clone(), request));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = close.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(cause) = ended {
        tracing::debug!(%cause, "a webhook connection broke");
    }
}

async fn handle(context: Arc<Context>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let start = Instant::now();
    let version = request.version();
    let path = context.webhooks.path(request.uri().path()).unwrap_or("other");
    let answer = answer(&context.webhooks, request).await;
    context.metrics.requests.get_or_create(&metrics::Request { path, outcome: answer.outcome }).inc();
    context.metrics.duration.get_or_create(&metrics::Path { path }).observe(start.elapsed().as_secs_f64());

    let mut response = match answer.body {
        Ok(review) => respond(StatusCode::OK, "application/json", review.to_string()),
        Err(failure) => {
            tracing::debug!(path, status = failure.status.as_u16(), text = failure.text, "a webhook call failed");
            respond(failure.status, "text/plain; charset=utf-8", failure.text + "\n")
        }
    };
    if context.stop.is_cancelled() && version <= Version::HTTP_11 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

async fn answer(webhooks: &Webhooks, request: Request<Incoming>) -> Answer {
    let (parts, body) = request.into_parts();
    if webhooks.path(parts.uri.path()).is_none() {
        return Answer::malformed(StatusCode::NOT_FOUND, format!("no webhook at `{}`", parts.uri.path()));
    }
    if parts.method != Method::POST {
        return Answer::malformed(StatusCode::METHOD_NOT_ALLOWED, "send an AdmissionReview by POST");
    }
    if !is_json(parts.headers.get(header::CONTENT_TYPE)) {
        return Answer::malformed(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send an AdmissionReview as application/json");
    }
    match tokio::time::timeout(READ_BODY, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => webhooks.answer(parts.uri.path(), &body.to_bytes()),
        Ok(Err(cause)) if cause.is::<LengthLimitError>() => {
            Answer::malformed(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {MAX_BODY} bytes"))
        }
        Ok(Err(cause)) => Answer::malformed(StatusCode::BAD_REQUEST, format!("the body broke off: {cause}")),
        Err(_) => Answer::malformed(StatusCode::REQUEST_TIMEOUT, "the body took too long"),
    }
}

fn is_json(content_type: Option<&HeaderValue>) -> bool {
    let essence = content_type.and_then(|value| value.to_str().ok()?.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

fn respond(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
