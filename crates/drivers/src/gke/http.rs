//! One request over HTTPS, without redirects.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{HeaderMap, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::GkeError;

/// Sends requests to Google's APIs.
#[derive(Clone)]
pub(super) struct Http {
    tls: Arc<ClientConfig>,
    pub(super) report: Arc<Report>,
}

/// Receives what a request was for, and the status of its answer.
type Report = dyn Fn(&'static str, Option<u16>) + Send + Sync;

/// A request.
pub(super) struct Request<'a> {
    /// What it asks for.
    pub(super) call: &'static str,
    /// What it is for, in errors.
    pub(super) what: &'static str,
    pub(super) method: Method,
    pub(super) uri: &'a str,
    pub(super) headers: &'a [(&'static str, &'a str)],
    pub(super) token: Option<&'a str>,
    /// An HTML form.
    pub(super) form: Option<String>,
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

impl Http {
    /// Trusts the public authorities.
    pub(super) fn new() -> Self {
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the default versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { tls: Arc::new(config), report: Arc::new(|_, _| {}) }
    }

    /// Sends a request and reads the whole answer. Only the status of an answer is an error later; this one is about
    /// answers that never came, or that ask to come later.
    pub(super) async fn send(&self, request: Request<'_>) -> Result<Answer, GkeError> {
        let (call, what) = (request.call, request.what);
        let transient = |problem: String| GkeError::Transient { what, problem, retry_after: None };
        let answer = tokio::time::timeout(LONGEST, self.exchange(request)).await;
        (self.report)(call, answer.as_ref().ok().and_then(|answer| Some(answer.as_ref().ok()?.status.as_u16())));
        let answer = match answer {
            Ok(answer) => answer.map_err(|cause| transient(cause.to_string()))?,
            Err(_elapsed) => return Err(transient(format!("no answer within {LONGEST:?}"))),
        };
        if answer.status == StatusCode::TOO_MANY_REQUESTS || answer.status.is_server_error() {
            let seconds = answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            return Err(GkeError::Transient {
                what,
                problem: format!("the server answered {}", answer.status),
                retry_after: seconds.map(Duration::from_secs),
            });
        }
        if answer.status.is_redirection() {
            return Err(transient(format!("the server answered {}: redirects are not followed", answer.status)));
        }
        Ok(answer)
    }

    async fn exchange(&self, request: Request<'_>) -> Result<Answer, Problem> {
        let uri: Uri = request.uri.parse()?;
        let host = uri.host().ok_or("the URL has no host")?.trim_matches(['[', ']']).to_owned();
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((&*host, port)).await?;
        if is_tls {
            let name = ServerName::try_from(host)?;
            let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await?;
            speak(stream, &uri, request).await
        } else {
            speak(stream, &uri, request).await
        }
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    uri: &Uri,
    request: Request<'_>,
) -> Result<Answer, Problem> {
    let Request { call: _, what: _, method, uri: _, headers, token, form } = request;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let mut message = http::Request::builder().method(method).uri(path).header(HOST, authority);
    for (name, value) in headers {
        message = message.header(*name, *value);
    }
    if let Some(token) = token {
        message = message.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let body = match form {
        Some(form) => {
            message = message.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            Bytes::from(form)
        }
        None => Bytes::new(),
    };
    let message = message.body(Full::new(body))?;
    let exchange = async move {
        let (head, body) = sender.send_request(message).await?.into_parts();
        let body = Limited::new(body, LARGEST).collect().await?.to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Ok(Answer { status: head.status, headers: head.headers, body })
    };
    let (answer, _ended) = futures::future::join(exchange, connection).await;
    answer
}

type Problem = Box<dyn std::error::Error + Send + Sync>;

/// True if the URL names an address of this machine itself.
pub(super) fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// An HTML form.
pub(super) fn encode(fields: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// An answer that takes longer will not come.
const LONGEST: Duration = Duration::from_secs(10);
/// The largest answer that is read.
const LARGEST: usize = 1024 * 1024;
