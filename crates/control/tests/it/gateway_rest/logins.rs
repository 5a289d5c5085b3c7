//! Tokens, certificates and passwords that change.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use http::Method;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use portolan_control::gateway::rest::Config;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::harness::{Site, basic};
use crate::gateway::harness::World;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(certificates_prove_an_account);

/// The embedded server has neither TokenRequest nor TokenReview.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_prove_an_account() -> anyhow::Result<()> {
    let site = Site::new(Backend::Real).await?;
    let own = site.account("own").await?;
    let other = site.account("other").await?;
    let token = async |namespace: &str, audience: &str| -> anyhow::Result<String> {
        let accounts = site.world.of::<ServiceAccount>(namespace);
        let object = serde_json::from_value(json!({ "metadata": { "name": "agent" } }))?;
        accounts.create(&PostParams::default(), &object).await.ok();
        let spec = TokenRequestSpec { audiences: Some(vec![audience.to_owned()]), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let made = accounts.create_token_request("agent", &PostParams::default(), &request).await?;
        made.status.and_then(|status| status.token).context("it has a token")
    };
    let get = async |token: &str, account: &str| {
        let bearer = format!("Bearer {token}");
        site.send_as(&[("authorization", &bearer)], Method::GET, &format!("/accounts/{account}"), "").await
    };
    let good = token(&format!("egw-{own}"), "portolan-gateway").await?;
    get(&good, &own).await?.is(200)?;
    get(&good, &other).await?.is(403)?;
    get(&good, "missing").await?.is(403)?;
    get(&token("egw", "portolan-gateway").await?, &own).await?.is(403)?;
    get(&token(&format!("egw-{own}"), "https://kubernetes.default.svc").await?, &own).await?.is(401)?;
    get("nonsense", &own).await?.is(401)?;
    site.stop().await
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// A certificate and its key.
    fn sign(&self, names: Vec<SanType>, usage: ExtendedKeyUsagePurpose) -> anyhow::Result<(String, String)> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.subject_alt_names = names;
        params.extended_key_usages = vec![usage];
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }

    fn server(&self) -> anyhow::Result<(String, String)> {
        self.sign(vec![SanType::IpAddress([127, 0, 0, 1].into())], ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn client(&self, uri: &str) -> anyhow::Result<(String, String)> {
        self.sign(vec![SanType::URI(uri.try_into()?)], ExtendedKeyUsagePurpose::ClientAuth)
    }
}

fn put(folder: &Path, (certificate, key): &(String, String)) -> anyhow::Result<()> {
    fs::write(folder.join("tls.key"), key)?;
    fs::write(folder.join("tls.crt"), certificate)?;
    Ok(())
}

/// The status line of an answer over TLS, or why there is none.
async fn ask(
    at: SocketAddr,
    ca: &str,
    client: Option<&(String, String)>,
    path: &str,
    login: Option<&str>,
) -> anyhow::Result<u16> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder.with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes())?],
            PrivateKeyDer::from_pem_slice(key.as_bytes())?,
        )?,
    };
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(at).await?;
    let mut stream = connector.connect(ServerName::try_from("127.0.0.1")?, stream).await?;
    let login = login.map(|login| format!("authorization: {login}\r\n")).unwrap_or_default();
    let request = format!("GET /api/egw{path} HTTP/1.1\r\nhost: a\r\n{login}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let text = String::from_utf8_lossy(&answer);
    Ok(text.get(9..12).context("a status line")?.parse()?)
}

async fn certificates_prove_an_account(backend: Backend) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (authority, evil) = (Authority::new()?, Authority::new()?);
    put(folder.path(), &authority.server()?)?;
    fs::write(folder.path().join("ca.crt"), &authority.pem)?;
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let tls = Some((listen, folder.path().to_owned()));
    let reread = Duration::from_millis(50);
    let site = Site::with(backend, |config| Config { tls, reread, ..config }).await?;
    let at = site.tls.context("it listens with TLS")?;
    let own = site.account("own").await?;
    let other = World::name("other");
    let ca = &authority.pem;
    let of_own = authority.client(&format!("egw://account/{own}"))?;
    let path = format!("/accounts/{own}");
    ensure!(ask(at, ca, Some(&of_own), &path, None).await? == 200);
    ensure!(ask(at, ca, Some(&of_own), &format!("/accounts/{other}"), None).await? == 403);
    ensure!(ask(at, ca, None, &path, None).await? == 401);
    ensure!(ask(at, ca, None, &path, Some(&basic("bob", "secret"))).await? == 200);
    for uri in
        ["egw://account/", "egw://unit/egw/lb", &format!("egw://account/{own}/x"), &format!("https://account/{own}")]
    {
        ensure!(ask(at, ca, Some(&authority.client(uri)?), &path, None).await? == 403, "{uri}");
    }
    let forged = evil.client(&format!("egw://account/{own}"))?;
    ensure!(ask(at, ca, Some(&forged), &path, None).await.is_err(), "signed by someone else");
    // the files change: first to what cannot be used, then to another authority
    fs::write(folder.path().join("tls.crt"), "nonsense")?;
    ensure!(ask(at, ca, Some(&of_own), &path, None).await? == 200);
    put(folder.path(), &evil.server()?)?;
    fs::write(folder.path().join("ca.crt"), &evil.pem)?;
    eventually("the new files are used", async || {
        Ok(ask(at, &evil.pem, Some(&forged), &path, None).await.ok() == Some(200))
    })
    .await?;
    ensure!(ask(at, &evil.pem, Some(&of_own), &path, None).await.is_err());
    site.stop().await
}
