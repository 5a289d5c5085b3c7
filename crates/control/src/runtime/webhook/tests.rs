//! The server over real sockets, called by a TLS client made by hand.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::admission::AdmissionRequest;
use portolan_certs::CertificateAuthority;
use prometheus_client::registry::Registry;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::metrics::Metrics;
use super::server::{self, MAX_BODY, Resolver, Server};
use super::{Denied, PURPOSE, Warnings, Webhooks};
use crate::runtime::authority::{Authority, Facts, Schedule};
use crate::runtime::tasks::Tasks;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn good_calls_are_answered_and_bad_ones_refused_on_the_same_connection() {
    let served = Served::start(None, Duration::ZERO);
    let mut caller = served.caller().await.unwrap();
    let body = review("allowed").to_string();
    for (status, head) in [
        (200, "POST /validate HTTP/1.1\r\ncontent-type: application/json"),
        (200, "POST /validate?timeout=10s HTTP/1.1\r\ncontent-type: application/json; charset=utf-8"),
        (404, "POST /elsewhere HTTP/1.1\r\ncontent-type: application/json"),
        (405, "GET /validate HTTP/1.1\r\ncontent-type: application/json"),
        (415, "POST /validate HTTP/1.1\r\ncontent-type: text/yaml"),
        (415, "POST /validate HTTP/1.1\r\nno-type: here"),
        (200, "POST /validate HTTP/1.1\r\ncontent-type: application/json"),
    ] {
        let answer = caller.send(head, &body).await.unwrap();
        assert_eq!(answer.status, status, "{head}: {}", answer.body);
    }
    let answer = caller.post("/validate", "garbage").await.unwrap();
    assert_eq!((answer.status, answer.body.contains("not an AdmissionReview")), (400, true), "{}", answer.body);
    let answer = caller.post("/validate", &review("panic").to_string()).await.unwrap();
    assert_eq!(answer.status, 500, "{}", answer.body);
    assert!(!caller.review("denied").await.unwrap());
    assert!(caller.review("allowed").await.unwrap());

    let metrics = served.metrics();
    for line in [
        r#"portolan_webhook_requests_total{path="/validate",outcome="Allowed"} 4"#,
        r#"portolan_webhook_requests_total{path="/validate",outcome="Denied"} 1"#,
        r#"portolan_webhook_requests_total{path="/validate",outcome="Malformed"} 4"#,
        r#"portolan_webhook_requests_total{path="/validate",outcome="Panicked"} 1"#,
        r#"portolan_webhook_requests_total{path="other",outcome="Malformed"} 1"#,
        r#"portolan_webhook_request_duration_seconds_count{path="/validate"} 10"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn a_body_may_hold_two_large_objects_but_has_a_limit() {
    let served = Served::start(None, Duration::ZERO);
    let mut large = review("allowed");
    for object in ["object", "oldObject"] {
        large["request"][object] = large["request"]["object"].clone();
        large["request"][object]["data"]["padding"] = json!("x".repeat(3 << 20));
    }
    let answer = served.caller().await.unwrap().post("/validate", &large.to_string()).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    let too_large = " ".repeat(MAX_BODY + 1);
    let answer = served.caller().await.unwrap().post("/validate", &too_large).await.unwrap();
    assert_eq!(answer.status, 413, "{}", answer.body);
}

#[tokio::test]
async fn strangers_on_the_port_harm_nobody() {
    let served = Served::start(None, Duration::ZERO);
    let mut strangers = Vec::new();
    for bytes in [&b"GET / HTTP/1.1\r\nhost: plain\r\n\r\n"[..], &[0xff; 4096], &[0x16, 3, 1, 0xff, 0xff]] {
        let mut stranger = TcpStream::connect(served.address).await.unwrap();
        stranger.write_all(bytes).await.unwrap();
        strangers.push(stranger);
    }
    strangers.push(TcpStream::connect(served.address).await.unwrap());
    assert!(served.caller().await.unwrap().review("allowed").await.unwrap());
    // Those who spoke no TLS are turned away; the silent one has time until the handshake's deadline.
    for stranger in &mut strangers[..3] {
        let mut rest = Vec::new();
        tokio::time::timeout(SOON, stranger.read_to_end(&mut rest)).await.unwrap().ok();
    }
    let metrics = served.metrics();
    assert!(metrics.contains("portolan_webhook_handshake_failures_total 3"), "{metrics}");
}

#[tokio::test]
async fn a_server_without_a_certificate_refuses_politely_until_it_has_one() {
    let served = Served::unserved().listen(None, Duration::ZERO);
    assert!(served.caller().await.is_err());
    served.serve(&served.authority);
    assert!(served.caller().await.unwrap().review("allowed").await.unwrap());
}

#[tokio::test]
async fn with_a_client_ca_only_its_certificates_are_heard() {
    let (api_server_ca, stranger_ca) = (client_ca(), client_ca());
    let served = Served::start(Some(&api_server_ca.certificate), Duration::ZERO);
    let bundle = served.authority.bundle();
    for (who, identity) in [("nobody", None), ("a stranger", Some(client_of(&stranger_ca)))] {
        let refused = async { Caller::connect(served.address, &bundle, identity).await?.review("allowed").await };
        refused.await.expect_err(who);
    }
    let mut caller = Caller::connect(served.address, &bundle, Some(client_of(&api_server_ca))).await.unwrap();
    assert!(caller.review("allowed").await.unwrap());

    let error = server::tls(Arc::default(), Some("no certificate here")).unwrap_err();
    assert_eq!(error.reason(), "InvalidClientCa");
}

/// The lock stands for the settle time: a bundle counts as published when every handshake under the one before
/// is over. Certificates change without it, in the middle of handshakes and requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_authority_rotates_under_200_requests_and_none_fails() {
    let served = Arc::new(Served::start(None, Duration::ZERO));
    let bundle = Arc::new(tokio::sync::RwLock::new(served.authority.bundle()));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (served, bundle) = (served.clone(), bundle.clone());
        callers.spawn(async move {
            let mut kept = Caller::connect(served.address, &bundle.read().await, None).await.unwrap();
            for _ in 0..25 {
                let mut fresh = {
                    let bundle = bundle.read().await;
                    Caller::connect(served.address, &bundle, None).await.unwrap()
                };
                assert!(fresh.review("allowed").await.unwrap());
                assert!(!kept.review("denied").await.unwrap());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
    }

    let schedule = Schedule { settle: Duration::ZERO, retire: Duration::ZERO, ..Schedule::default() };
    let mut authority = served.authority.clone();
    let mut rotations = 0;
    while !callers.is_empty() {
        let step =
            authority.step(Timestamp::now(), Facts { published: true, rotate: true }, PURPOSE, &schedule).unwrap();
        authority = step.expect("every stage is over at once");
        served.serve(&authority);
        *bundle.write().await = authority.bundle();
        rotations += usize::from(authority.stage.name() == "Retiring");
        while let Some(caller) = callers.try_join_next() {
            caller.unwrap();
        }
    }
    assert!(rotations >= 3, "only {rotations} rotations happened meanwhile");
}

#[tokio::test]
async fn a_stop_is_announced_to_callers_before_their_connection_closes() {
    let served = Served::start(None, Duration::from_secs(1));
    let mut caller = served.caller().await.unwrap();
    let answer = caller.post("/validate", &review("allowed").to_string()).await.unwrap();
    assert!(!answer.head.contains("connection: close"), "{}", answer.head);

    served.tasks.stop().cancel();
    let answer = caller.post("/validate", &review("allowed").to_string()).await.unwrap();
    assert_eq!((answer.status, answer.head.contains("connection: close")), (200, true), "{}", answer.head);
    assert!(served.caller().await.unwrap().review("allowed").await.unwrap(), "those who do not know yet are served");

    let (tasks, address) = (served.tasks.clone(), served.address);
    assert!(tasks.drain(SOON).await.is_empty());
    TcpStream::connect(address).await.unwrap_err();
}

/// A server, with the means to call it.
struct Served {
    address: SocketAddr,
    resolver: Arc<Resolver>,
    authority: Authority,
    registry: Registry,
    tasks: Tasks,
}

impl Served {
    fn start(client_ca: Option<&str>, linger: Duration) -> Self {
        let served = Self::unserved().listen(client_ca, linger);
        served.serve(&served.authority);
        served
    }

    fn unserved() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            resolver: Arc::default(),
            authority: Authority::new(Timestamp::now(), PURPOSE, &Schedule::default()).unwrap(),
            registry: Registry::default(),
            tasks: Tasks::new(),
        }
    }

    fn listen(mut self, client_ca: Option<&str>, linger: Duration) -> Self {
        let listener = super::bind(self.address).unwrap();
        self.address = listener.local_addr().unwrap();
        let tls = server::tls(self.resolver.clone(), client_ca).unwrap();
        let metrics = Metrics::new(&mut self.registry);
        let server = Server { listener, tls, webhooks: Arc::new(webhooks()), metrics, linger };
        self.tasks.spawn("webhook server", server.run(self.tasks.stop()));
        self
    }

    fn serve(&self, authority: &Authority) {
        let names = ["127.0.0.1".to_owned()];
        let serving =
            authority.current.sign_server("test", &names, Timestamp::now(), Schedule::default().serving).unwrap();
        self.resolver.set(serving.certified_key().unwrap());
    }

    async fn caller(&self) -> io::Result<Caller> {
        Caller::connect(self.address, &self.authority.bundle(), None).await
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }
}

/// One kept connection that speaks HTTP/1.1, like an API server that calls a Service.
struct Caller {
    stream: TlsStream<TcpStream>,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Caller {
    async fn connect(address: SocketAddr, bundle: &str, identity: Option<Identity>) -> io::Result<Self> {
        let config = ClientConfig::builder_with_provider(Arc::new(portolan_certs::provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(portolan_certs::roots(bundle).unwrap());
        let mut config = match identity {
            Some((chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TcpStream::connect(address).await?;
        let connected = TlsConnector::from(Arc::new(config)).connect(ServerName::from(address.ip()), stream);
        Ok(Self { stream: tokio::time::timeout(SOON, connected).await?? })
    }

    /// Sends a review and tells whether it was allowed.
    async fn review(&mut self, case: &str) -> io::Result<bool> {
        let answer = self.post("/validate", &review(case).to_string()).await?;
        let body: Value = serde_json::from_str(&answer.body)?;
        body["response"]["allowed"].as_bool().ok_or(io::ErrorKind::InvalidData.into())
    }

    async fn post(&mut self, path: &str, body: &str) -> io::Result<Answer> {
        self.send(&format!("POST {path} HTTP/1.1\r\ncontent-type: application/json"), body).await
    }

    async fn send(&mut self, head: &str, body: &str) -> io::Result<Answer> {
        let request = format!("{head}\r\nhost: hooks\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        // A server may answer and close before it has read all.
        let sent = self.stream.write_all(request.as_bytes()).await;
        match tokio::time::timeout(SOON, self.read()).await? {
            Ok(answer) => Ok(answer),
            Err(error) => Err(sent.err().unwrap_or(error)),
        }
    }

    async fn read(&mut self) -> io::Result<Answer> {
        let mut received = Vec::new();
        loop {
            if self.stream.read_buf(&mut received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let text = String::from_utf8_lossy(&received);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
            if body.len() >= length.parse().expect("a number") {
                let status = head[9..12].parse().expect("a status");
                return Ok(Answer { status, head: head.to_owned(), body: body.to_owned() });
            }
        }
    }
}

fn webhooks() -> Webhooks {
    Webhooks::new().validate("/validate", |request: &AdmissionRequest<ConfigMap>| match request.name.as_str() {
        "allowed" => Ok(Warnings::new()),
        "panic" => panic!("on purpose"),
        name => Err(Denied::forbidden(format!("{name} may not be"))),
    })
}

fn review(case: &str) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": case,
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "name": case,
            "operation": "UPDATE",
            "userInfo": {},
            "object": {"metadata": {"name": case}, "data": {}},
        },
    })
}

fn client_ca() -> CertificateAuthority {
    CertificateAuthority::new("test", Timestamp::now(), Duration::from_hours(1)).unwrap()
}

fn client_of(ca: &CertificateAuthority) -> Identity {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, ca.name.as_str());
    let issuer = Issuer::new(params, KeyPair::from_pem(&ca.key).unwrap());
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).unwrap();
    (vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
}
