//! A client of a remote's API server. Whoever writes the credentials must not be able to send requests to this machine
//! or to its cloud's metadata service, so every address is checked when it is connected to, also that of a name.

use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use portolan_drivers::kubeconfig::{Access, Identity, forbidden_address};

/// Connects when the first request is sent.
pub(super) fn client(access: &Access, allow_loopback: bool) -> Result<Client, String> {
    let uri: http::Uri = access.server.parse().map_err(|_| format!("`{}` is not a URL", access.server))?;
    let literal = uri.host().and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
    if let Some(problem) = literal.and_then(|address| forbidden_address(address, allow_loopback)) {
        return Err(format!("{}: {problem}", access.server));
    }
    let mut connector = HttpConnector::new_with_resolver(CheckedResolver { allow_loopback });
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE));
    connector.set_keepalive_retries(Some(2));
    let tls = access.tls().map_err(|refused| refused.to_string())?;
    let https = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
    let https = match access.tls_server_name.as_deref() {
        Some(name) => {
            let name = name.to_owned().try_into();
            let name = name.map_err(|_| "tls-server-name is not a host name".to_owned())?;
            https.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name)).enable_http1()
        }
        None => https.enable_http1(),
    };
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(https.wrap_connector(connector));
    let mut config = Config::new(uri);
    if let Identity::Token(token) = &access.identity {
        let mut value =
            HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| "the token is no text".to_owned())?;
        value.set_sensitive(true);
        config.headers.push((AUTHORIZATION, value));
    }
    let headers = config.extra_headers_layer().map_err(|cause| cause.to_string())?;
    let builder = ClientBuilder::new(http, "default");
    Ok(builder.with_layer(&headers).with_layer(&config.base_uri_layer()).build())
}

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a silent connection is trusted before the other side is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Resolves names, and refuses addresses that no remote has.
#[derive(Clone)]
struct CheckedResolver {
    allow_loopback: bool,
}

impl tower::Service<Name> for CheckedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let allow_loopback = self.allow_loopback;
        let Ok(literal) = name.as_str().parse::<IpAddr>() else {
            return Box::pin(async move {
                let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
                checked(found, allow_loopback)
            });
        };
        Box::pin(ready(checked(vec![SocketAddr::new(literal, 0)], allow_loopback)))
    }
}

fn checked(addresses: Vec<SocketAddr>, allow_loopback: bool) -> io::Result<std::vec::IntoIter<SocketAddr>> {
    let forbidden = addresses.iter().find_map(|address| forbidden_address(address.ip(), allow_loopback));
    match forbidden {
        Some(problem) => Err(io::Error::new(io::ErrorKind::PermissionDenied, problem)),
        None => Ok(addresses.into_iter()),
    }
}
