//! What these tests share: an operator that serves REST, accounts with logins, and a client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use portolan_control::gateway::rest::{self, Config};
use portolan_control::runtime::app::Process;
use portolan_drivers::envoy::MemoryProxies;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::egress::harness::options;
use crate::gateway::harness::World;
use crate::harness::Backend;

/// Hash of `secret`, cheap.
pub(super) const HASH: &str = "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";

/// A cluster whose operator serves REST.
pub(super) struct Site {
    pub(super) world: World,
    pub(super) process: Process,
    pub(super) at: SocketAddr,
    pub(super) tls: Option<SocketAddr>,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

impl Answer {
    pub(super) fn location(&self) -> anyhow::Result<&str> {
        Ok(self.headers.get("location").with_context(|| format!("no Location: {self:?}"))?.to_str()?)
    }

    pub(super) fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }

    /// Fails unless this is the status code.
    pub(super) fn is(self, code: u16) -> anyhow::Result<Self> {
        anyhow::ensure!(self.code == code, "{code} was expected: {self:#?}");
        Ok(self)
    }
}

/// `user:secret`, as Basic has it.
pub(super) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

impl Site {
    pub(super) async fn new(backend: Backend) -> anyhow::Result<Self> {
        Self::with(backend, |config| config).await
    }

    pub(super) async fn with(backend: Backend, change: impl FnOnce(Config) -> Config) -> anyhow::Result<Self> {
        let world = World::new(backend).await?;
        let wake = Arc::new(Notify::new());
        let proxies = MemoryProxies::new({
            let wake = Arc::clone(&wake);
            move || wake.notify_one()
        });
        let gateway = World::options(&proxies);
        let plain = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let config = change(Config { plain, rate: 10_000, ..Config::default() });
        let mut started = None;
        let process = Process::start(world.client.clone(), options(), |ctx, registry| {
            let cache = portolan_control::gateway::start(ctx, registry, wake, gateway);
            started = Some(rest::start(ctx, registry, &cache, config));
        })?;
        let handle = started.context("it was started")??;
        let at = handle.plain.context("it has a plain port")?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self { world, process, at, tls: handle.tls, client })
    }

    /// An account with group `sample` and login `bob:secret`.
    pub(super) async fn account(&self, prefix: &str) -> anyhow::Result<String> {
        let name = World::name(prefix);
        self.world.account(&name).await?;
        self.login(&name, &format!("# users\nbob:{HASH}\n")).await?;
        self.seen(&format!("/accounts/{name}/groups/sample")).await?;
        Ok(name)
    }

    /// Waits until the server shows what is at a path.
    pub(super) async fn seen(&self, path: &str) -> anyhow::Result<()> {
        crate::harness::eventually("the server shows it", async || Ok(self.get(path).await?.code == 200)).await
    }

    pub(super) async fn login(&self, account: &str, lines: &str) -> anyhow::Result<()> {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": { "name": "api-users" }, "stringData": { "auth": lines },
            "data": { "auth": STANDARD.encode(lines) },
        }))?;
        self.world.of::<Secret>(&format!("egw-{account}")).create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    /// Sends a request below the prefix, or of a whole path, as bob.
    pub(super) async fn send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> anyhow::Result<Answer> {
        self.send_as(&[("authorization", &basic("bob", "secret"))], method, path, body).await
    }

    pub(super) async fn send_as(
        &self,
        headers: &[(&str, &str)],
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Answer> {
        read(self.open(headers, method, path, body).await?).await
    }

    /// Sends a request, and leaves the body of its answer unread.
    pub(super) async fn open(
        &self,
        headers: &[(&str, &str)],
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Response<Incoming>> {
        let path = if path.starts_with("/api/") { path.to_owned() } else { format!("/api/egw{path}") };
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.at));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = body.into();
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        Ok(self.client.request(request.body(Full::new(body))?).await?)
    }

    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::GET, path, "").await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> anyhow::Result<Answer> {
        self.send(Method::POST, path, body.to_string()).await
    }

    pub(super) async fn put(&self, path: &str, body: Value) -> anyhow::Result<Answer> {
        self.send(Method::PUT, path, body.to_string()).await
    }

    pub(super) async fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::DELETE, path, "").await
    }

    /// Makes a service of group `sample`; gives its path.
    pub(super) async fn service(&self, account: &str, name: &str) -> anyhow::Result<String> {
        let made = self.post(&format!("/accounts/{account}/groups/sample/services"), service(name)).await?.is(302)?;
        Ok(made.location()?.to_owned())
    }

    /// Makes an endpoint of a service; gives its path.
    pub(super) async fn endpoint(&self, service: &str, address: &str, node: &str) -> anyhow::Result<String> {
        let made = self.post(&format!("{service}/endpoints"), endpoint(address, node)).await?.is(302)?;
        Ok(made.location()?.to_owned())
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        Ok(self.process.stop().await?)
    }
}

pub(super) async fn read(answer: Response<Incoming>) -> anyhow::Result<Answer> {
    let (parts, body) = answer.into_parts();
    let bytes = body.collect().await?.to_bytes();
    let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes)? };
    Ok(Answer { code: parts.status.as_u16(), headers: parts.headers, body })
}

pub(super) fn service(name: &str) -> Value {
    json!({ "service": { "metadata": { "name": name }, "spec": {
        "public-ports": [{ "port": 8888, "protocol": "TCP", "targetPort": 8080 }] } } })
}

pub(super) fn endpoint(address: &str, node: &str) -> Value {
    json!({ "endpoint": { "spec": { "address": address, "node-address": node, "port": { "port": 8080 } } } })
}

/// A port of an endpoint that no other test uses: without tunnels, accounts cannot share a socket.
pub(super) fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
