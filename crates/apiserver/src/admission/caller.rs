//! Calls webhooks over HTTPS. Connections are kept and used again, per endpoint.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::TaskTracker;

mod trust;

/// A webhook's answer is at most this long: 16 MiB, far above any object.
const MAX_ANSWER: usize = 16 << 20;
/// Idle connections that are kept per endpoint.
const MAX_IDLE: usize = 8;
/// Endpoints that are remembered.
const MAX_ENDPOINTS: usize = 200;

/// A Service that stands for a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRef {
    pub namespace: String,
    pub name: String,
    pub port: u16,
}

/// Finds the address (`host:port`) behind a Service, or says why not.
pub type Resolve = Arc<dyn Fn(&ServiceRef) -> Result<String, String> + Send + Sync>;

/// Calls webhooks; outlives the configurations that name them.
pub struct Caller {
    resolve: Resolve,
    tasks: TaskTracker,
    endpoints: Mutex<BTreeMap<Endpoint, Arc<Pool>>>,
}

/// Where a webhook is: `clientConfig`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Endpoint {
    /// With `https://`, host and path; nothing behind it.
    url: String,
    /// Namespace, name and port.
    service: Option<(String, String, u16)>,
    /// Certificates in PEM that its own must come from.
    authorities: Vec<u8>,
}

struct Pool {
    tls: Arc<ClientConfig>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Endpoint {
    pub(super) fn new(config: &Value) -> Self {
        let bundle = config["caBundle"].as_str().unwrap_or_default();
        let authorities = STANDARD.decode(bundle).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let service = &config["service"];
        if !service.is_object() {
            let url = text(&config["url"]);
            let url = url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/').to_owned();
            return Self { url, service: None, authorities };
        }
        let (namespace, name) = (text(&service["namespace"]), text(&service["name"]));
        let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
        let path = text(&service["path"]);
        let path = path.trim_matches('/');
        let slash = if path.is_empty() { "" } else { "/" };
        let url = format!("https://{name}.{namespace}.svc:{port}{slash}{path}");
        Self { url, service: Some((namespace, name, port)), authorities }
    }
}

impl Caller {
    /// A caller that finds no Services: there is no service network here.
    pub fn new(tasks: TaskTracker) -> Self {
        Self::with_resolver(
            tasks,
            Arc::new(|service: &ServiceRef| {
                Err(format!(
                    "service {:?} in namespace {:?} cannot be reached: this API server has no service network; \
                 write clientConfig.url instead",
                    service.name, service.namespace,
                ))
            }),
        )
    }

    /// A caller that finds Services by a function.
    pub fn with_resolver(tasks: TaskTracker, resolve: Resolve) -> Self {
        Self { resolve, tasks, endpoints: Mutex::new(BTreeMap::new()) }
    }

    /// Posts a review; the answer's bytes, or why there is none.
    pub(super) async fn post(&self, endpoint: &Endpoint, timeout: Duration, body: Bytes) -> Result<Bytes, String> {
        let slash = if endpoint.url.matches('/').count() > 2 { "" } else { "/" };
        let url = format!("{}{slash}?timeout={}s", endpoint.url, timeout.as_secs());
        let post = |why: String| format!("Post {url:?}: {why}");
        let uri: Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
        match tokio::time::timeout(timeout, self.exchange(endpoint, &uri, body)).await {
            Ok(Ok((status, content_type, body))) => verdict(status, &content_type, body),
            Ok(Err(why)) => Err(post(why)),
            Err(_) => Err(post("context deadline exceeded".to_owned())),
        }
    }

    async fn exchange(
        &self,
        endpoint: &Endpoint,
        uri: &Uri,
        body: Bytes,
    ) -> Result<(StatusCode, String, Bytes), String> {
        let pool = self.pool(endpoint)?;
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = || {
            Request::post(path)
                .header("host", &host)
                .header("user-agent", "kube-apiserver-admission")
                .header("accept", "application/json, */*")
                .header("content-type", "application/json")
                .body(Full::new(body.clone()))
                .map_err(|error| error.to_string())
        };
        loop {
            let kept = pool.idle.lock().pop();
            let reused = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect(endpoint, uri, &pool).await?,
            };
            let sent = match connection.ready().await {
                Ok(()) => connection.send_request(request()?).await,
                Err(error) => Err(error),
            };
            let response = match sent {
                Ok(response) => response,
                // The peer may have closed a connection that lay idle: that says nothing about this request.
                Err(_) if reused => continue,
                Err(error) => return Err(transport_text(&error)),
            };
            let status = response.status();
            let content_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
            let content_type = content_type.unwrap_or_default().to_owned();
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            let body =
                body.map_err(|error| format!("unexpected error when reading response body: {error}"))?.to_bytes();
            let mut idle = pool.idle.lock();
            if idle.len() < MAX_IDLE && !connection.is_closed() {
                idle.push(connection);
            }
            return Ok((status, content_type, body));
        }
    }

    fn pool(&self, endpoint: &Endpoint) -> Result<Arc<Pool>, String> {
        let mut endpoints = self.endpoints.lock();
        if let Some(pool) = endpoints.get(endpoint) {
            return Ok(Arc::clone(pool));
        }
        let tls = Arc::new(trust::client(&endpoint.authorities)?);
        let pool = Arc::new(Pool { tls, idle: Mutex::new(Vec::new()) });
        if endpoints.len() >= MAX_ENDPOINTS {
            endpoints.clear();
        }
        endpoints.insert(endpoint.clone(), Arc::clone(&pool));
        Ok(pool)
    }

    async fn connect(&self, endpoint: &Endpoint, uri: &Uri, pool: &Pool) -> Result<SendRequest<Full<Bytes>>, String> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let address = match &endpoint.service {
            Some((namespace, name, port)) => {
                let service = ServiceRef { namespace: namespace.clone(), name: name.clone(), port: *port };
                (self.resolve)(&service)?
            }
            None if host.contains(':') => format!("[{host}]:{}", uri.port_u16().unwrap_or(443)),
            None => format!("{host}:{}", uri.port_u16().unwrap_or(443)),
        };
        let stream = TcpStream::connect(&address).await.map_err(|error| dial_text(&address, &error))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host:?} is no host name"))?;
        let stream = TlsConnector::from(Arc::clone(&pool.tls)).connect(name, stream).await;
        let stream = stream.map_err(|error| trust::text(host, &error))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| transport_text(&error))?;
        self.tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a webhook ended");
            }
        });
        Ok(sender)
    }
}

/// What an answer's status says: the words of client-go.
fn verdict(status: StatusCode, content_type: &str, body: Bytes) -> Result<Bytes, String> {
    if (200..=206).contains(&status.as_u16()) {
        if body.is_empty() {
            let code = status.as_u16();
            return Err(format!("0-length response with status code: {code} and content type: {content_type}"));
        }
        return Ok(body);
    }
    if let Ok(answer) = serde_json::from_slice::<Value>(&body)
        && answer["kind"] == "Status"
        && let Some(message) = answer["message"].as_str()
    {
        return Err(message.to_owned());
    }
    let said = String::from_utf8_lossy(&body);
    let said = if content_type.starts_with("text/") { said.trim() } else { "unknown" };
    Err(match status.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => said.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        500.. => format!("an error on the server ({said:?}) has prevented the request from succeeding"),
        code => format!("the server responded with the status code {code} but did not return more information"),
    })
}

fn dial_text(address: &str, error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    let known = [
        (ErrorKind::ConnectionRefused, "connect: connection refused"),
        (ErrorKind::HostUnreachable, "connect: no route to host"),
        (ErrorKind::NetworkUnreachable, "connect: network is unreachable"),
        (ErrorKind::TimedOut, "i/o timeout"),
    ];
    match known.iter().find(|(kind, _)| *kind == error.kind()) {
        Some((_, why)) => format!("dial tcp {address}: {why}"),
        // Only the resolver fails without the system's number.
        None if error.raw_os_error().is_none() => {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            format!("dial tcp: lookup {host}: no such host")
        }
        None => format!("dial tcp {address}: {error}"),
    }
}

fn transport_text(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return "EOF".to_owned();
    }
    error.to_string()
}
