//! One request, without redirects. Each has a connection of its own: one that was kept may be dead, and a write that got
//! lost on it would be in doubt.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::error::{AwsError, Failure};

/// Sends requests.
#[derive(Clone)]
pub(super) struct Http {
    tls: Arc<ClientConfig>,
}

/// A request.
pub(super) struct Request<'a> {
    pub(super) method: Method,
    pub(super) endpoint: &'a Endpoint,
    /// Path and query.
    pub(super) path: &'a str,
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) body: Bytes,
    /// How long all of it may take.
    pub(super) limit: Duration,
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

/// A URL that requests may go to: https, or this machine or the metadata service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint(Uri);

impl Endpoint {
    pub(super) fn parse(variable: &'static str, url: &str) -> Result<Self, AwsError> {
        let invalid = |problem| AwsError::InvalidEndpoint { variable, url: super::error::quoted(url), problem };
        let uri: Uri = url.trim_end_matches('/').parse().map_err(|_| invalid("it is not a URL"))?;
        let host = uri.host().ok_or_else(|| invalid("it names no host"))?.trim_matches(['[', ']']);
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        let is_near =
            host == "localhost" || address.is_some_and(|address| address.is_loopback() || METADATA.contains(&address));
        match uri.scheme_str() {
            _ if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) => {
                Err(invalid("it contains a user name"))
            }
            Some("https") => Ok(Self(uri)),
            Some("http") if is_near => Ok(Self(uri)),
            Some("http") => Err(invalid("plain http is for this machine and the metadata service only: use https")),
            Some(_) | None => Err(invalid("it does not begin with https://")),
        }
    }

    /// Host and port, as in the header `host`.
    pub(super) fn authority(&self) -> &str {
        self.0.authority().map_or("", |authority| authority.as_str())
    }
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
        Self { tls: Arc::new(config) }
    }

    /// Sends a request and reads the whole answer, whatever its status.
    pub(super) async fn send(&self, request: Request<'_>) -> Result<Answer, Failure> {
        let limit = request.limit;
        let uri = &request.endpoint.0;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let not_sent = |problem: String| Failure::NotSent(problem);
        let stream = timeout(limit.min(LONGEST_CONNECT), TcpStream::connect((&*host, port)))
            .await
            .map_err(|_elapsed| not_sent(format!("{host} took no connection within {LONGEST_CONNECT:?}")))?
            .map_err(|cause| not_sent(format!("connecting to {host} failed: {cause}")))?;
        if !is_tls {
            return speak(stream, request).await;
        }
        let name = ServerName::try_from(host.clone()).map_err(|cause| not_sent(cause.to_string()))?;
        let stream = timeout(limit, TlsConnector::from(self.tls.clone()).connect(name, stream))
            .await
            .map_err(|_elapsed| not_sent(format!("no TLS session with {host} within {limit:?}")))?
            .map_err(|cause| not_sent(format!("no TLS session with {host}: {cause}")))?;
        speak(stream, request).await
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<'_>,
) -> Result<Answer, Failure> {
    let limit = request.limit;
    match timeout(limit, exchange(stream, request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(cause)) => Err(Failure::Lost(cause.to_string())),
        Err(_elapsed) => Err(Failure::Lost(format!("no answer within {limit:?}"))),
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<'_>,
) -> Result<Answer, Problem> {
    let Request { method, endpoint, path, headers, body, limit: _ } = request;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut message = http::Request::builder().method(method).uri(path).header(HOST, endpoint.authority());
    for (name, value) in headers.iter().filter(|(name, _)| *name != "host") {
        message = message.header(*name, *value);
    }
    let message = message.body(Full::new(body))?;
    let exchange = async move {
        let (head, body) = sender.send_request(message).await?.into_parts();
        let body = Limited::new(body, LARGEST).collect().await?.to_bytes();
        Ok(Answer { status: head.status, headers: head.headers, body: String::from_utf8(body.into())? })
    };
    let (answer, _ended) = futures::future::join(exchange, connection).await;
    answer
}

type Problem = Box<dyn std::error::Error + Send + Sync>;

/// A server that takes longer to take a connection is away.
const LONGEST_CONNECT: Duration = Duration::from_secs(5);
/// The largest answer that is read: a page of 1,000 instances is about 5 MB.
const LARGEST: usize = 64 << 20;
/// The metadata service, by IPv4 and IPv6.
const METADATA: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

#[test]
fn plain_http_leads_to_this_machine_and_the_metadata_service_only() {
    let parse = |url: &str| Endpoint::parse("AWS_ENDPOINT_URL_EC2", url);
    for good in [
        "https://ec2.eu-central-1.amazonaws.com",
        "http://127.0.0.1:4566/",
        "http://localhost:1",
        "http://[::1]:80",
        "http://169.254.169.254",
        "http://[fd00:ec2::254]",
    ] {
        assert!(parse(good).is_ok(), "{good}");
    }
    for bad in [
        "http://ec2.eu-central-1.amazonaws.com",
        "http://10.0.0.1",
        "http://127.0.0.1@attacker.example",
        "http://localhost.attacker.example",
        "ftp://localhost",
        "localhost:80",
        "",
        "https://",
    ] {
        assert!(matches!(parse(bad), Err(AwsError::InvalidEndpoint { .. })), "{bad}");
    }
}
