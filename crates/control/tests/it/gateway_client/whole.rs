//! Two control planes: a tenant's cluster with our client, and a provider's cluster with the real gateway, its REST API and
//! real Envoys.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{ListParams, PostParams};
use portolan_api::gateway::{Account, Endpoint, LoadBalancer, ServicePrefix};
use portolan_control::gateway;
use portolan_control::gateway::rest::{self, Config};
use portolan_control::gateway_client::{GroupUrl, Options};
use portolan_control::runtime::app::Process;
use portolan_drivers::envoy::{ProcessOptions, ProcessProxies};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::harness::World;
use super::rules::PASSWORD;
use crate::egress::harness::options;
use crate::gateway::harness::World as Provider;
use crate::harness::{Backend, eventually, on_both_servers};
use crate::mesh::harness::fresh_address;

on_both_servers!(deletions_in_any_order_leave_nothing_on_either_side);

/// Sites run side by side on one machine: each has a pool of its own, far from the addresses of pods.
static SITES: AtomicU8 = AtomicU8::new(200);

/// A provider with account `acme`, whose pool is on loopback.
struct Site {
    provider: Provider,
    process: Process,
    rest: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Site {
    async fn start() -> anyhow::Result<Self> {
        let provider = Provider::new(Backend::Embedded).await?;
        let folder = tempfile::tempdir()?;
        let wake = Arc::new(Notify::new());
        let search_path = ["/usr/local/bin", "/usr/bin", "/bin"].map(Into::into).to_vec();
        let envoys = ProcessOptions {
            binary: Some(portolan_testkit::envoy::binary()?),
            search_path,
            folder: folder.path().join("envoy"),
            drain: Duration::ZERO,
        };
        let woken = Arc::clone(&wake);
        let (proxies, driver) = ProcessProxies::new(envoys, move || woken.notify_one())?;
        let gateway = gateway::Options {
            address_quarantine: Duration::from_secs(1),
            allow: ["127.0.0.0/8".parse()?].into_iter().collect(),
            drain: Duration::ZERO,
            ..gateway::Options::with(Arc::new(proxies))
        };
        let config = Config { plain: Some(SocketAddr::from(([127, 0, 0, 1], 0))), ..Config::default() };
        let mut started = None;
        let process = Process::start(provider.client.clone(), options(), |ctx, registry| {
            ctx.tasks.spawn("envoy", driver.run(ctx.tasks.stop().cancelled_owned()));
            let cache = gateway::start(ctx, registry, wake, gateway);
            started = Some(rest::start(ctx, registry, &cache, config));
        })?;
        let rest = started.context("it was started")??.plain.context("it listens")?;
        let site = Self { provider, process, rest, _folder: folder };
        site.provide().await?;
        Ok(site)
    }

    async fn provide(&self) -> anyhow::Result<()> {
        self.provider.provider().await?;
        let [a, b, ..] = fresh_address().octets();
        let c = SITES.fetch_add(1, Ordering::Relaxed);
        let spec = json!({ "subnet": format!("{a}.{b}.{c}.0/24"), "pool": format!("{a}.{b}.{c}.200-{a}.{b}.{c}.249") });
        self.provider.create::<ServicePrefix>("egw", "default", spec).await?;
        self.provider.account("acme").await?;
        let users = format!("tenant:{}", bcrypt::hash(PASSWORD, 4)?);
        let mut secret =
            Secret { data: Some([("auth".to_owned(), ByteString(users.into_bytes()))].into()), ..Secret::default() };
        secret.metadata.name = Some("api-users".to_owned());
        self.provider.of::<Secret>("egw-acme").create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    fn client(&self, tenant: &World) -> anyhow::Result<Options> {
        let url = format!("http://{}/api/egw/accounts/acme/groups/sample", self.rest);
        Ok(Options { url: GroupUrl::parse(&url)?, ..tenant.options()? })
    }

    async fn load_balancers(&self) -> anyhow::Result<Vec<LoadBalancer>> {
        Ok(self.provider.of::<LoadBalancer>("egw-acme").list(&ListParams::default()).await?.items)
    }

    /// Waits until the provider has nothing of the tenant.
    async fn is_empty(&self) -> anyhow::Result<()> {
        eventually("nothing is left at the provider", async || {
            let endpoints = self.provider.of::<Endpoint>("egw-acme").list(&ListParams::default()).await?;
            Ok(self.load_balancers().await?.is_empty() && endpoints.items.is_empty())
        })
        .await?;
        self.provider.nothing_is_claimed().await
    }
}

/// A pod: it answers each connection with its name.
async fn pod(address: Ipv4Addr, name: &'static str) -> anyhow::Result<JoinSet<()>> {
    let listener = TcpListener::bind((address, 8080)).await?;
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 512];
            if stream.read(&mut request).await.is_ok() {
                let answer =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{name}", name.len());
                drop(stream.write_all(answer.as_bytes()).await);
            }
        }
    });
    Ok(serving)
}

/// What answers a request, if something does.
async fn get(address: &str) -> anyhow::Result<String> {
    let address = SocketAddr::new(address.parse()?, 80);
    let call = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer.rsplit("\r\n").next().unwrap_or_default().to_owned())
    };
    Ok(timeout(Duration::from_secs(10), call).await??)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_the_address_of_a_service_is_answered_by_the_tenants_pod() -> anyhow::Result<()> {
    let (site, tenant) = (Site::start().await?, World::new(Backend::Embedded).await?);
    let client = tenant.operator_with(site.client(&tenant)?).await?;
    let (first, second) = (fresh_address(), fresh_address());
    let _pods = (pod(first, "first").await?, pod(second, "second").await?);
    let (first, second) = (first.to_string(), second.to_string());
    tenant.service("web").await?;
    tenant.pods("web", &[(&first, "n1")]).await?;
    let address = tenant.announced("web").await?;
    eventually("the first pod answers", async || Ok(get(&address).await.is_ok_and(|name| name == "first"))).await?;

    // its pods are replaced, and no request fails
    tenant.pods("web", &[(&first, "n1"), (&second, "n2")]).await?;
    eventually("the second pod answers, too", async || Ok(get(&address).await? == "second")).await?;
    tenant.pods("web", &[(&second, "n2")]).await?;
    eventually("only the second pod answers", async || {
        for _ in 0..5 {
            if get(&address).await? != "second" {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await?;

    tenant.delete("web").await?;
    tenant.gone("web").await?;
    site.is_empty().await?;
    ensure!(get(&address).await.is_err(), "nobody listens at {address} any more");
    client.process.stop().await?;
    site.process.stop().await?;
    Ok(())
}

async fn deletions_in_any_order_leave_nothing_on_either_side(backend: Backend) -> anyhow::Result<()> {
    let (site, tenant) = (Site::start().await?, World::new(backend).await?);
    let client = tenant.operator_with(site.client(&tenant)?).await?;
    for name in ["one", "two"] {
        tenant.service(name).await?;
        tenant.pods(name, &[("10.244.0.1", "n1"), ("10.244.0.2", "n2")]).await?;
        tenant.announced(name).await?;
    }
    ensure!(site.load_balancers().await?.len() == 2, "{:?}", site.load_balancers().await?);

    // the provider's object first: it is announced again, since the Service still asks for it
    let gone = site.load_balancers().await?.remove(0);
    site.provider.delete::<LoadBalancer>("egw-acme", &gone.name_any()).await?;
    eventually("it is announced again", async || {
        let again = site.load_balancers().await?.into_iter().find(|one| one.name_any() == gone.name_any());
        Ok(again.is_some_and(|again| again.uid() != gone.uid() && !again.spec.public_address.is_empty()))
    })
    .await?;

    // a Service while the client does not run, then the client, then the other Service
    client.process.stop().await?;
    tenant.delete("one").await?;
    let client = tenant.operator_with(site.client(&tenant)?).await?;
    tenant.gone("one").await?;
    tenant.announced("two").await?;
    tenant.delete("two").await?;
    tenant.gone("two").await?;
    site.is_empty().await?;

    // the whole account, while a Service is announced: the provider keeps nothing of it
    tenant.service("three").await?;
    tenant.announced("three").await?;
    let confirmed = json!({ "metadata": { "annotations": { "portolan.dev/delete-with-contents": "true" } } });
    let patch = kube::api::Patch::Merge(confirmed);
    site.provider.of::<Account>("egw").patch("acme", &kube::api::PatchParams::default(), &patch).await?;
    site.provider.delete::<Account>("egw", "acme").await?;
    site.provider.gone::<Account>("egw", "acme").await?;
    site.provider.nothing_is_claimed().await?;
    client.process.stop().await?;
    site.process.stop().await?;
    Ok(())
}
