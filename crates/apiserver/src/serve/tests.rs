use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use kube::config::{KubeConfigOptions, Kubeconfig};
use portolan_certs::SignedCertificate;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::*;
use crate::auth::kubeconfig;

const WATCH: &str = "/api/v1/namespaces?watch=1";

struct Running {
    url: String,
    address: SocketAddr,
    kubeconfig: String,
    ca: String,
    client: SignedCertificate,
    stop: CancellationToken,
    tasks: TaskTracker,
}

async fn start(change: impl FnOnce(&mut Options)) -> Running {
    let mut options = Options::new(([127, 0, 0, 1], 0).into());
    change(&mut options);
    let server = Server::bind(options).await.unwrap();
    let client = server.authority().client("alice", "system:masters", Timestamp::now()).unwrap();
    let ca = server.authority().certificate().to_owned();
    let running = Running {
        url: server.url(),
        address: server.address(),
        kubeconfig: kubeconfig::render("portolan", &server.url(), &ca, &client, "a-token"),
        ca,
        client,
        stop: CancellationToken::new(),
        tasks: TaskTracker::new(),
    };
    running.tasks.spawn(server.run(ApiServer::memory().await, running.stop.clone()));
    running.tasks.close();
    running
}

async fn client(kubeconfig: &str) -> kube::Client {
    let config = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// Who the server says that this kubeconfig's holder is.
async fn whoami(kubeconfig: &str) -> String {
    let review = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews").body(b"{}".to_vec()).unwrap();
    let answer: serde_json::Value = client(kubeconfig).await.request(review).await.unwrap();
    answer["status"]["userInfo"]["username"].as_str().unwrap_or_default().to_owned()
}

/// A TLS connection, with a client certificate or without one.
async fn connect(
    running: &Running,
    protocol: &str,
    client: Option<&SignedCertificate>,
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(portolan_certs::roots(&running.ca).unwrap());
    let mut config = match client {
        None => config.with_no_client_auth(),
        Some(signed) => {
            let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![signed.der().unwrap()], key).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(running.address).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
}

fn get(path: &str) -> http::Request<Vec<u8>> {
    http::Request::get(path).body(Vec::new()).unwrap()
}

#[tokio::test]
async fn a_kubeconfig_brings_its_user_to_the_service() {
    let running = start(|_| {}).await;

    assert_eq!(whoami(&running.kubeconfig).await, "alice");
    assert!(running.url.starts_with("https://127.0.0.1:"));
    running.stop.cancel();
    running.tasks.wait().await;
}

#[tokio::test]
async fn both_versions_of_http_are_spoken_and_a_certificate_is_optional() {
    let running = start(|_| {}).await;

    let mut one = connect(&running, "http/1.1", None).await;
    one.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    one.read_to_string(&mut text).await.unwrap();
    assert!(text.ends_with("\r\n\r\nok"), "{text}");

    let two = connect(&running, "h2", None).await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(Spawner(running.tasks.clone()), TokioIo::new(two)).await.unwrap();
    running.tasks.spawn(async move { connection.await.unwrap() });
    let request = Request::get("https://localhost/livez").body(Full::<Bytes>::default()).unwrap();
    let body = sender.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "ok");
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let (ours, theirs) = (start(|_| {}).await, start(|_| {}).await);
    let mut config = Kubeconfig::from_yaml(&theirs.kubeconfig).unwrap();
    config.clusters = Kubeconfig::from_yaml(&ours.kubeconfig).unwrap().clusters;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();

    let answer = kube::Client::try_from(config).unwrap().request::<serde_json::Value>(get("/version")).await;

    assert!(answer.is_err());
}

#[tokio::test]
async fn a_kubeconfig_outlives_a_restart_and_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let first = start(|options| options.data_dir = Some(folder.path().to_owned())).await;
    // one of before, open to all
    std::fs::write(&path, &first.kubeconfig).unwrap();
    assert!(kubeconfig::write(&path, "portolan", &first.kubeconfig).unwrap());
    first.stop.cancel();
    first.tasks.wait().await;

    let second =
        start(|options| (options.data_dir, options.listen) = (Some(folder.path().to_owned()), first.address)).await;
    let kept = std::fs::read_to_string(&path).unwrap();
    assert_eq!(whoami(&kept).await, "alice");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no drafts are left behind");
    second.stop.cancel();
}

#[tokio::test]
async fn a_stop_ends_watches_at_once() {
    let running = start(|options| options.stop_within = Duration::from_secs(30)).await;
    for protocol in ["http/1.1", "h2"] {
        let stream = connect(&running, protocol, Some(&running.client)).await;
        if protocol == "h2" {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(Spawner(running.tasks.clone()), TokioIo::new(stream))
                    .await
                    .unwrap();
            running.tasks.spawn(async move { drop(connection.await) });
            let request = Request::get(format!("https://localhost{WATCH}")).body(Full::<Bytes>::default()).unwrap();
            let mut body = sender.send_request(request).await.unwrap().into_body();
            let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(first.starts_with(b"{\"type\":\"ADDED\""), "{first:?}");
            running.tasks.spawn(async move { assert!(body.collect().await.is_ok(), "it ends without an error") });
        } else {
            let mut stream = stream;
            stream.write_all(format!("GET {WATCH} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
            let mut seen = vec![0; 4096];
            let length = stream.read(&mut seen).await.unwrap();
            assert!(length > 0);
            running.tasks.spawn(async move {
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).await.unwrap();
                assert!(rest.ends_with(b"0\r\n\r\n"), "the last chunk says that it is the last");
            });
        }
    }

    let begin = Instant::now();
    running.stop.cancel();
    running.tasks.wait().await;

    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn who_sends_nothing_is_cut_off_and_makes_room() {
    let running = start(|options| {
        options.head_timeout = Duration::from_millis(300);
        options.max_connections = 2;
    })
    .await;
    // One never starts the handshake, one never ends its request head.
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    let mut slow = connect(&running, "http/1.1", None).await;
    slow.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();

    assert_eq!(whoami(&running.kubeconfig).await, "alice");
    assert_eq!(silent.read(&mut [0; 16]).await.unwrap(), 0);
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).await.ok();
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&rest));
}
