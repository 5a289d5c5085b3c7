//! Who gets in, and what an open API does about strangers.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use portolan_proxy::rest::exchange::{Client, Request};
use portolan_proxy::rest::options::{Options, OptionsError};
use portolan_proxy::rest::server::{self, Listen};
use portolan_proxy::rest::{Access, Api, Settings};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;

use super::client::{Call, Proxy};
use super::engine::Memory;

const API: &str = "{listeners: [{name: api, spec: {protocol: HTTP, port: 1234}, rules: [{action: {apply: more}}]}, \
                    {name: other, spec: {protocol: HTTP, port: 1235}, rules: [{action: {route: r}}]}], \
                    rulelists: [{name: more, rules: [{action: {apply: more}}, {action: {route: {destination: {spec: {protocol: L7mpController}}}}}]}]}";

fn guarded() -> (tempfile::TempDir, Proxy) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    fs::write(&file, "reader read\nwriter write\n").unwrap();
    let access = Access::new(Some(&file), false, false).unwrap();
    let proxy = Proxy::start_with(API, access, Settings::default());
    (dir, proxy)
}

#[test]
fn a_token_opens_the_api_as_far_as_its_role() {
    let (_dir, proxy) = guarded();
    let ask = |line: &str, token: Option<&str>, body: &str| {
        let mut headers = vec![("Content-Type", "application/json".to_owned())];
        headers.extend(token.map(|token| ("Authorization", format!("Bearer {token}"))));
        proxy.connect().send(&Call { line, headers, body: body.as_bytes().to_vec() })
    };
    let cluster = json!({"cluster": {"name": "c", "spec": {"protocol": "Echo"}}}).to_string();
    let stranger = ask("GET /api/v1/admin", None, "");
    assert_eq!((stranger.status, stranger.header("Www-Authenticate")), (401, Some("Bearer realm=\"portolan\"")));
    assert_eq!(ask("GET /api/v1/admin", Some("nobody"), "").status, 401);
    assert_eq!(ask("GET /metrics", None, "").status, 401);
    assert_eq!(ask("GET /nosuch", None, "").status, 401);
    assert_eq!(ask("GET /api/v1/admin", Some("reader"), "").status, 200);
    assert_eq!(ask("POST /api/v1/clusters", Some("reader"), &cluster).status, 403);
    assert_eq!(ask("POST /api/v1/clusters", Some("writer"), &cluster).status, 200);
    assert_eq!(ask("GET /livez", None, "").status, 200);
    assert_eq!(ask("GET /readyz", None, "").status, 200);
}

#[test]
fn a_proxy_that_waits_for_its_operator_is_ready_once_it_was_programmed() {
    let settings = Settings { ready_when_programmed: true, ..Settings::default() };
    let proxy = Proxy::start_with(API, Access::new(None, false, false).unwrap(), settings);
    assert_eq!(proxy.ask("GET /readyz", None).status, 503);
    assert_eq!(proxy.ask("GET /api/v2/config", None).status, 200);
    let cluster = json!({"cluster": {"name": "c", "spec": {"protocol": "Echo"}}});
    assert_eq!(proxy.ask("POST /api/v1/clusters", Some(json!({"cluster": {}}))).status, 400);
    let rehearsal = json!({"owner": "o", "dry_run": true, "ops": [{"op": "put", "kind": "cluster", "name": "c",
        "object": {"spec": {"protocol": "Echo"}}}]});
    assert_eq!(proxy.ask("POST /api/v2/apply", Some(rehearsal)).status, 200);
    assert_eq!(proxy.ask("GET /readyz", None).status, 503, "reads, refusals and rehearsals change nothing");
    assert_eq!(proxy.ask("POST /api/v1/clusters", Some(cluster)).status, 200);
    assert_eq!(proxy.ask("GET /readyz", None).status, 200);
}

#[test]
fn an_open_api_stays_on_loopback_and_a_guarded_one_goes_where_it_is_told() {
    let open = Proxy::start(API, false);
    assert!(open.engine.snapshot().listeners.get("api").unwrap().loopback_only);
    assert!(!open.engine.snapshot().listeners.get("other").unwrap().loopback_only);
    assert_eq!(open.ask("GET /api/v1/listeners/api", None).json()["spec"], json!({"protocol": "HTTP", "port": 1234}));

    let (_dir, guarded) = guarded();
    assert!(!guarded.engine.snapshot().listeners.get("api").unwrap().loopback_only);
    let insecure = Proxy::start_with(API, Access::new(None, false, true).unwrap(), Settings::default());
    assert!(!insecure.engine.snapshot().listeners.get("api").unwrap().loopback_only);
}

#[test]
fn an_open_api_refuses_remote_clients_on_every_path() {
    let proxy = Proxy::start(API, false);
    let from = |address: &str| {
        let client = Client { address: address.parse().ok(), certified: false };
        let request =
            Request { method: "GET".to_owned(), target: "/api/v1/admin".to_owned(), client, ..Request::default() };
        proxy.api.handle(&request).status
    };
    assert_eq!((from("10.0.0.9"), from("127.0.0.1"), from("::1")), (403, 200, 200));
}

#[test]
fn a_prometheus_cluster_gets_the_metrics_without_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    fs::write(&file, "secret write\n").unwrap();
    let (api_handler, queue) = server::api_queue();
    let access = Access::new(Some(&file), false, false).unwrap();
    let api = Arc::new(Api::new(Arc::new(Memory::default()), access, Settings::default()));
    let _running = server::start(api, queue, None).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    api_handler.metrics(Box::new(move |response| sender.send(response).unwrap()));
    let response = receiver.recv_timeout(std::time::Duration::from_secs(20)).expect("an answer");
    assert_eq!(response.status, 200);
    assert!(String::from_utf8_lossy(&response.body).contains("\nportolan_proxy_sessions 0\n"));
}

#[test]
fn no_session_may_be_led_to_the_api() {
    let proxy = Proxy::start(API, false);
    let policy = || proxy.engine.snapshot().admin.endpoint_policy.clone();
    let loopback = "127.0.0.1".parse().unwrap();
    assert!(policy().check(loopback, proxy.address().port()).is_err(), "its own port");
    assert!(policy().check(loopback, 1234).is_err(), "a listener that leads to it");
    assert_eq!(policy().check(loopback, 1235), Ok(()));
    proxy.ask("DELETE /api/v1/listeners/api?force=true", None);
    assert_eq!(policy().check(loopback, 1234), Ok(()));
}

#[test]
fn the_apis_own_port_is_moved_to_loopback_unless_it_is_guarded() {
    let options = Options { api: Some("0.0.0.0:0".parse().unwrap()), ..Options::default() };
    let bound = |options: &Options| Listen::new(options, &options.access().unwrap()).unwrap().map(|it| it.address);
    assert_eq!(bound(&options), Some("127.0.0.1:0".parse().unwrap()));
    assert_eq!(
        bound(&Options { api: Some("[::]:0".parse().unwrap()), ..Options::default() }),
        Some("[::1]:0".parse().unwrap())
    );
    assert_eq!(bound(&Options { insecure: true, ..options.clone() }), Some("0.0.0.0:0".parse().unwrap()));
    assert_eq!(bound(&Options { no_api: true, ..options }), None);
}

#[test]
fn options_that_do_not_fit_together_are_refused() {
    let nothing = Options::default().validate();
    assert!(matches!(nothing, Err(OptionsError::Nothing)));
    let inline = Options { inline: Some("{}".to_owned()), ..Options::default() };
    assert!(inline.validate().is_ok());
    let half = Options { certificate: Some("x".into()), ..inline.clone() };
    assert!(matches!(half.validate(), Err(OptionsError::IncompleteTls)));
    let broken = Options { inline: Some("{\"a\":".to_owned()), ..inline };
    assert!(broken.static_config().unwrap_err().to_string().starts_with("cannot parse --inline: EOF"));
}

#[test]
fn without_an_api_only_health_and_metrics_answer() {
    let proxy = Proxy::start_with("{}", Access::default(), Settings { enabled: false, ..Settings::default() });
    assert_eq!(proxy.ask("GET /api/v1/admin", None).status, 404);
    assert_eq!(proxy.ask("GET /metrics", None).status, 200);
}

#[test]
fn a_client_certificate_of_our_authority_gets_in_and_another_does_not() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (certificate, key) = ours.sign("localhost");
    let options = Options {
        api: Some("127.0.0.1:0".parse().unwrap()),
        certificate: Some(path("cert", &certificate)),
        key: Some(path("key", &key)),
        client_authority: Some(path("ca", &ours.certificate)),
        ..Options::default()
    };
    options.validate().unwrap();
    let access = options.access().unwrap();
    let listen = Listen::new(&options, &access).unwrap();
    let api = Arc::new(Api::new(Arc::new(Memory::default()), access, Settings::default()));
    let running = server::start(api, server::api_queue().1, listen).unwrap();
    let address = running.address.unwrap();

    let answer = ask_over_tls(address, &ours, Some(&ours)).expect("ours gets in");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(ask_over_tls(address, &ours, Some(&theirs)).is_err());
    assert!(ask_over_tls(address, &ours, None).is_err());
}

struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

fn ask_over_tls(address: SocketAddr, trusted: &Authority, client: Option<&Authority>) -> std::io::Result<String> {
    let stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20)))?;
    let mut stream = StreamOwned::new(tls_client(trusted, client), stream);
    stream.write_all(b"GET /api/v1/admin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn tls_client(trusted: &Authority, client: Option<&Authority>) -> ClientConnection {
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(der(&trusted.certificate)).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let (certificate, key) = authority.sign("operator");
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![der(&certificate)], key).unwrap()
        }
    };
    ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap()
}
