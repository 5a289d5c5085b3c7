//! Calls webhooks over HTTPS. Connections are kept and used again, per endpoint.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::TaskTracker;

/// A webhook's answer is at most this long: 16 MiB, far above any object.
const MAX_ANSWER: usize = 16 << 20;
/// Idle connections that are kept per endpoint.
const MAX_IDLE: usize = 8;
/// Endpoints whose connections are kept.
const MAX_ENDPOINTS: usize = 200;

type Connection = SendRequest<Full<Bytes>>;

/// Calls webhooks; outlives the configurations that name them.
pub struct Caller {
    tasks: TaskTracker,
    idle: Mutex<BTreeMap<Endpoint, Vec<Connection>>>,
}

/// Where a webhook is: `clientConfig`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Endpoint {
    /// With `https://`, host and path; empty for a Service, which cannot be reached from here.
    url: String,
    /// The CA bundle in PEM that its certificate is verified with.
    authorities: Vec<u8>,
}

impl Endpoint {
    pub(super) fn new(config: &Value) -> Self {
        let text = |field: &str| config[field].as_str().unwrap_or_default();
        let authorities = STANDARD.decode(text("caBundle")).unwrap_or_default();
        Self { url: text("url").trim_end_matches('/').to_owned(), authorities }
    }
}

impl Caller {
    pub fn new(tasks: TaskTracker) -> Self {
        Self { tasks, idle: Mutex::new(BTreeMap::new()) }
    }

    /// Posts a review; the answer's bytes, or why there is none.
    pub(super) async fn post(&self, endpoint: &Endpoint, timeout: Duration, body: Bytes) -> Result<Bytes, String> {
        if endpoint.url.is_empty() {
            return Err("this API server has no service network: write clientConfig.url instead of service".to_owned());
        }
        let slash = if endpoint.url.matches('/').count() > 2 { "" } else { "/" };
        let url = format!("{}{slash}?timeout={}s", endpoint.url, timeout.as_secs());
        let uri: Uri = url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
        match tokio::time::timeout(timeout, self.exchange(endpoint, &uri, body)).await {
            Ok(answer) => answer.map_err(|why| format!("Post {url:?}: {why}")),
            Err(_) => Err(format!("Post {url:?}: no answer in time (context deadline exceeded)")),
        }
    }

    async fn exchange(&self, endpoint: &Endpoint, uri: &Uri, body: Bytes) -> Result<Bytes, String> {
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        loop {
            let request = Request::post(path)
                .header("host", &host)
                .header("user-agent", "kube-apiserver-admission")
                .header("accept", "application/json, */*")
                .header("content-type", "application/json")
                .body(Full::new(body.clone()))
                .map_err(|error| error.to_string())?;
            let kept = self.idle.lock().get_mut(endpoint).and_then(Vec::pop);
            let reused = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect(endpoint, uri).await?,
            };
            let sent = match connection.ready().await {
                Ok(()) => connection.send_request(request).await,
                Err(error) => Err(error),
            };
            let response = match sent {
                Ok(response) => response,
                // The peer may have closed an idle connection: retry on a new one.
                Err(_) if reused => continue,
                Err(error) => return Err(error.to_string()),
            };
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            self.keep(endpoint, connection);
            return if status.is_success() { Ok(body) } else { Err(format!("it answered {status}")) };
        }
    }

    fn keep(&self, endpoint: &Endpoint, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() >= MAX_ENDPOINTS && !idle.contains_key(endpoint) {
            idle.clear();
        }
        let connections = idle.entry(endpoint.clone()).or_default();
        if connections.len() < MAX_IDLE && !connection.is_closed() {
            connections.push(connection);
        }
    }

    async fn connect(&self, endpoint: &Endpoint, uri: &Uri) -> Result<Connection, String> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host:?} is no host name"))?;
        let tls = TlsConnector::from(Arc::new(trust(&endpoint.authorities)?));
        let connected = async {
            let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await?;
            stream.set_nodelay(true)?;
            tls.connect(name, stream).await
        };
        let stream = connected.await.map_err(|error| error.to_string())?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        self.tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a webhook ended");
            }
        });
        Ok(sender)
    }
}

/// A TLS client that trusts the certificates of `bundle`, in PEM, and nothing else.
fn trust(bundle: &[u8]) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok));
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
