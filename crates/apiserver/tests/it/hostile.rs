//! Clients that mean no good: every request here is refused in the way of Kubernetes, and the server goes on.
//!
//! Bytes are written to a TLS stream by hand, for no HTTP client would send them. What is expected was seen on the
//! real server, which takes the same requests here.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::stream::{self, StreamExt as _};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::child::{Child, memory};

const MIB: u64 = 1024 * 1024;
/// How long an answer may take before the server counts as stuck.
const LIMIT: Duration = Duration::from_mins(2);
/// How many levels the deep documents have.
const DEEP: usize = 100_000;
const MAPS: &str = "/api/v1/namespaces/hostile/configmaps";
const TARGET: &str = "/api/v1/namespaces/hostile/configmaps/target";
const JSON: &str = "application/json";

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_server_stands_bad_input() {
    let data = tempfile::tempdir().unwrap();
    let (mut child, _) = Child::start(Some(data.path())).unwrap();
    let server = Server::new(&child.kubeconfig());
    stand(&server, child.program().id(), 200 * MIB).await;
}

/// Sends everything there is, one by one and then the heaviest at once; memory grows by `growth` at most.
async fn stand(server: &Server, process: u32, growth: u64) {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "hostile" } });
    server.expect("a namespace", &post("/api/v1/namespaces", namespace.to_string()), Expected::Served).await;
    server.expect("a target", &post(MAPS, map("target")), Expected::Served).await;
    let peak = memory(process, "VmHWM").unwrap();

    for (name, request, expected) in cases() {
        server.expect(name, &request, expected).await;
    }
    // The connection closes in the middle of a body: nothing of it may remain.
    let cut =
        request("POST", MAPS, &format!("Content-Type: {JSON}\r\nContent-Length: 1000\r\n"), map("cut").as_bytes());
    let outcome = server.send(&cut, true).await;
    assert!(!matches!(outcome, Outcome::Answered { code: 200..400, .. }), "a cut body gives {outcome:?}");
    server.expect("the cut object", &get(&format!("{MAPS}/cut")), Expected::Refused(&[404])).await;

    // Not even TLS.
    for bytes in [&b"GET /api HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"\x16\x03\x01\xff\xffnonsense", &[0; 1_000]] {
        let mut plain = TcpStream::connect(&server.address).await.unwrap();
        plain.write_all(bytes).await.unwrap();
        plain.shutdown().await.unwrap();
        // A reset is an end, too.
        let ended = tokio::time::timeout(LIMIT, plain.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "{} bytes that are no TLS are neither answered nor closed", bytes.len());
    }
    // Requests that begin and never end keep nobody else from being served.
    let mut idle = Vec::new();
    for _ in 0..100 {
        let mut stream = server.connect().await;
        stream.write_all(b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Le").await.unwrap();
        idle.push(stream);
    }
    server.alive().await;
    drop(idle);
    // The heaviest ones, many at a time.
    let heavy = heavy();
    let storm = (0..96).map(|index| {
        let (name, request, expected) = &heavy[index % heavy.len()];
        server.expect(name, request, *expected)
    });
    stream::iter(storm).buffer_unordered(16).for_each(async |()| ()).await;

    server.alive().await;
    let grown = memory(process, "VmHWM").unwrap().saturating_sub(peak);
    assert!(grown <= growth, "the server took {} MiB more at its peak", grown / MIB);
}

/// What a bad request is answered.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// With a Status that has one of these codes.
    Refused(&'static [u16]),
    /// With one of these codes and any body: there is no kind whose rules could apply.
    Plain(&'static [u16]),
    /// HTTP itself is broken: with any error, or by closing the connection.
    Broken,
    /// With success: it looks odd and is allowed.
    Served,
    /// With success where there are limits high enough, as if broken where there are not.
    Limited,
}

type Case = (&'static str, Vec<u8>, Expected);

fn cases() -> Vec<Case> {
    use Expected::Refused;
    let mut cases = heavy();
    // bodies
    let map = map("h");
    for (name, body, codes) in [
        ("no body", "", &[400][..]),
        ("half an object", &map[..map.len() - 5], &[400]),
        ("an array", "[]", &[400]),
        ("a string", "\"x\"", &[400]),
        ("a number too large", "1e999", &[400]),
        ("null", "null", &[400, 422]),
        ("two objects", "{}{}", &[400]),
        ("bytes of zero", "\0\0\0\0", &[400]),
        ("wrong types", r#"{"apiVersion":1,"kind":[],"metadata":"x"}"#, &[400]),
        ("a number as name", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":5,"labels":[1]}}"#, &[400]),
        ("another kind", r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"h"}}"#, &[400]),
        ("no kind", r#"{"metadata":{"name":"H_H"}}"#, &[400, 422]),
    ] {
        cases.push((name, post(MAPS, body), Refused(codes)));
    }
    cases.push(("no UTF-8", post(MAPS, b"{\"a\":\"\xff\xfe\"}"), Refused(&[400, 422])));
    for (name, object) in [
        ("a name with ..", ".."),
        ("a name with /", "a/b"),
        ("a name with capitals", "H_H"),
        ("a name of 10 kB", &"n".repeat(10_000)),
        ("a name with a line", "a\\nb"),
    ] {
        cases.push((name, post(MAPS, map.replace("\"h\"", &format!("\"{object}\""))), Refused(&[422])));
    }
    // as deep as the real server reads; patched, it takes seconds, so this is none of the storm
    let nested = map.replace("}}", &format!("}},\"data\":{{\"k\":{}}}}}", objects(9_000)));
    cases.push(("9,000 levels", post(MAPS, &nested), Refused(&[400])));
    let merge = body("PATCH", TARGET, "application/merge-patch+json", &nested);
    cases.push(("9,000 levels merged", merge, Refused(&[400, 422])));
    cases.push(("another name", body("PUT", &format!("{MAPS}/other"), JSON, &map), Refused(&[400])));
    let aliases = (b'b'..b'k').map(|name| {
        let (name, before) = (char::from(name), char::from(name - 1));
        format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 10].join(","))
    });
    let bomb = format!("a: &a [x,x,x,x,x,x,x,x,x,x]\n{}", aliases.collect::<String>());
    cases.push(("a YAML of a billion", body("POST", MAPS, "application/yaml", bomb), Refused(&[400])));
    for (name, content) in [("text", "text/plain"), ("XML", "application/xml"), ("nonsense as type", ";;;")] {
        cases.push((name, body("POST", MAPS, content, &map), Refused(&[415])));
    }
    let protobuf = body("POST", MAPS, "application/vnd.kubernetes.protobuf", "k8s\0nonsense");
    cases.push(("broken protobuf", protobuf, Refused(&[400, 415])));
    cases.push(("an answer in XML", request("GET", MAPS, "Accept: application/xml\r\n", b""), Refused(&[406])));
    let unzipped = format!("Content-Type: {JSON}\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n");
    cases.push(("no gzip at all", request("POST", MAPS, &unzipped, b"{}x"), Refused(&[400])));
    let options = r#"{"gracePeriodSeconds":"x"}"#;
    cases.push(("odd delete options", body("DELETE", TARGET, JSON, options), Refused(&[400])));
    // patches
    let operations =
        |count| json!(vec![json!({ "op": "test", "path": "/kind", "value": "ConfigMap" }); count]).to_string();
    let pointer = json!([{ "op": "add", "path": "/a".repeat(50_000), "value": 1 }]).to_string();
    for (name, content, patch, codes) in [
        ("an unknown patch", "application/funny-patch+json", "{}", &[415][..]),
        ("a patch of no kind", JSON, "{}", &[415]),
        ("a JSON patch that is none", "application/json-patch+json", "{}", &[400]),
        ("an unknown operation", "application/json-patch+json", r#"[{"op":"explode","path":"/a"}]"#, &[400, 422]),
        ("no pointer", "application/json-patch+json", r#"[{"op":"remove"}]"#, &[400, 422]),
        ("a pointer to nothing", "application/json-patch+json", r#"[{"op":"remove","path":"/no/x"}]"#, &[422]),
        ("a long pointer", "application/json-patch+json", &pointer, &[422]),
        ("20,000 operations", "application/json-patch+json", &operations(20_000), &[413]),
        ("a merge patch that is none", "application/merge-patch+json", "[]", &[400]),
        ("half a merge patch", "application/merge-patch+json", r#"{"data""#, &[400]),
        // the real server calls it its own error
        ("an unknown directive", "application/strategic-merge-patch+json", r#"{"$patch":"explode"}"#, &[400, 500]),
        ("apply by nobody", "application/apply-patch+yaml", &map.replace("\"h\"", "\"target\""), &[422]),
    ] {
        cases.push((name, body("PATCH", TARGET, content, patch), Refused(codes)));
    }
    let half = body("PATCH", &format!("{TARGET}?fieldManager=h"), "application/apply-patch+yaml", &map[..20]);
    cases.push(("half an apply", half, Refused(&[400])));
    // questions
    for (name, query, codes) in [
        ("an open label selector", "labelSelector=a%20in", &[400][..]),
        ("brackets as a label selector", "labelSelector=(((", &[400]),
        ("a label of 10 kB", &format!("labelSelector={}", "a".repeat(10_000)), &[400]),
        ("an unknown field", "fieldSelector=data.x%3D1", &[400]),
        ("half a field selector", "fieldSelector=metadata.name", &[400]),
        ("a limit in words", "limit=ten", &[400]),
        ("a limit too large", "limit=99999999999999999999", &[400]),
        ("a made-up page", "limit=1&continue=nonsense", &[400]),
        ("a revision in words", "resourceVersion=abc", &[400]),
        ("a revision below zero", "resourceVersion=-5", &[400]),
        ("a revision too large", "resourceVersion=999999999999999999999999", &[400]),
        ("an unknown match", "resourceVersion=1&resourceVersionMatch=Never", &[422]),
        // the real server calls it its own error
        ("a watch from words", "watch=1&resourceVersion=abc", &[400, 500]),
        ("initial events unmatched", "watch=1&sendInitialEvents=true", &[422]),
        ("a time in words", "watch=1&timeoutSeconds=x", &[400]),
    ] {
        cases.push((name, get(&format!("{MAPS}?{query}")), Refused(codes)));
    }
    for (name, query) in
        [("odd dry run", "dryRun=Some"), ("odd validation", "fieldValidation=Maybe"), ("a long manager", &manager())]
    {
        cases.push((name, post(&format!("{MAPS}?{query}"), &map), Refused(&[422])));
    }
    let selected = request("DELETE", &format!("{MAPS}?labelSelector=((("), "", b"");
    cases.push(("deleting by brackets", selected, Refused(&[400])));
    // paths
    let long = "n".repeat(10_000);
    for (name, path, expected) in [
        ("out of the tree", "/api/v1/namespaces/hostile/../../../../etc/passwd", Refused(&[404])),
        ("a name of two dots", &format!("{MAPS}/.."), Refused(&[400, 404])),
        ("a name of one dot", &format!("{MAPS}/."), Refused(&[400, 404])),
        ("two dots in code", &format!("{MAPS}/%2e%2e"), Refused(&[400, 404])),
        ("a slash in code", &format!("{MAPS}/a%2fb"), Refused(&[404])),
        ("a namespace with a slash", "/api/v1/namespaces/a%2fb/configmaps", Refused(&[404])),
        ("a name with zero", &format!("{MAPS}/a%00b"), Refused(&[400, 404])),
        ("a name of no UTF-8", &format!("{MAPS}/%ff%fe"), Refused(&[400, 404])),
        ("a broken code", &format!("{MAPS}/%zz"), Expected::Plain(&[400, 404])),
        ("a double slash", "//api/v1/namespaces", Expected::Plain(&[404])),
        ("a double slash within", "/api//v1/namespaces", Refused(&[404])),
        ("an asked name of 10 kB", &format!("{MAPS}/{long}"), Refused(&[404])),
        ("a group of 10 kB", &format!("/apis/{long}/v1/x"), Expected::Plain(&[404])),
        ("a namespace of 10 kB", &format!("/api/v1/namespaces/{long}/configmaps"), Expected::Served),
        ("2,000 steps", &"/api".repeat(2_000), Refused(&[404])),
        ("an unknown subresource", &format!("{TARGET}/nope"), Refused(&[404])),
        ("an unknown resource", "/api/v1/nopes", Refused(&[404])),
        ("a question of 60 kB", &format!("{MAPS}?x={}", "a".repeat(60_000)), Expected::Served),
    ] {
        cases.push((name, get(path), expected));
    }
    for method in ["BREW", "PUT", "TRACE"] {
        cases.push(("a method that is not there", body(method, MAPS, JSON, &map), Refused(&[405])));
    }
    cases.push(("creating by name", post(TARGET, &map), Refused(&[405])));
    // HTTP
    let headers = |count| (0..count).map(|index| format!("X-Header-{index}: {index}\r\n")).collect::<Vec<_>>().concat();
    let lengths = |length: &str| request("POST", MAPS, &format!("Content-Length: {length}\r\n"), map.as_bytes());
    let both = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n";
    cases.extend([
        ("200 headers", request("GET", MAPS, &headers(200), b""), Expected::Limited),
        ("5,000 headers", request("GET", MAPS, &headers(5_000), b""), Expected::Limited),
        ("a header of 2 MB", request("GET", MAPS, &format!("X: {}\r\n", "x".repeat(2_000_000)), b""), Expected::Broken),
        ("a length in words", lengths("abc"), Expected::Broken),
        ("a length below zero", lengths("-5"), Expected::Broken),
        ("two lengths", lengths("3\r\nContent-Length: 4"), Expected::Broken),
        ("a broken chunk", request("POST", MAPS, "Transfer-Encoding: chunked\r\n", b"zz\r\n{}\r\n"), Expected::Broken),
        ("a length and chunks", request("POST", MAPS, both, b"zz\r\n{}\r\n"), Expected::Broken),
        ("a version of the future", b"GET /api HTTP/9.9\r\n\r\n".to_vec(), Expected::Broken),
        ("nonsense", b"\0\x01\x02nonsense\r\n\r\n".to_vec(), Expected::Broken),
        ("a header without a colon", request("GET", MAPS, "nonsense\r\n", b""), Expected::Broken),
        ("a blank in the path", get("/api/v1/a b"), Expected::Broken),
        ("another's name", request("GET", MAPS, "Impersonate-User: bob\r\n", b""), Refused(&[403])),
        ("another's group", request("GET", MAPS, "Impersonate-Group: a\r\n", b""), Refused(&[400, 403])),
    ]);
    cases
}

/// Requests that would take much memory or a deep stack from whoever reads them carelessly.
fn heavy() -> Vec<Case> {
    let (arrays, open) = ("[".repeat(DEEP) + &"]".repeat(DEEP), "[".repeat(DEEP));
    let data = map("h").replace("}}", &format!("}},\"data\":{arrays}}}"));
    let large = map("h").replace("}}", &format!("}},\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(10_000_000)));
    let under = map("h").replace("}}", &format!("}},\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(2_900_000)));
    let chunk = [b"186a0\r\n".to_vec(), vec![b'x'; 100_000], b"\r\n".to_vec()].concat();
    let chunks = [chunk.repeat(100), b"0\r\n\r\n".to_vec()].concat();
    let types = format!("Content-Type: {JSON}\r\n");
    let bomb = gzip_bomb(400_000_000);
    let zipped = format!("{types}Content-Encoding: gzip\r\nContent-Length: {}\r\n", bomb.len());
    let patch = |kind: &str, patch: &str| {
        body("PATCH", &format!("{TARGET}?fieldManager=h"), &format!("application/{kind}"), patch)
    };
    let (deep, refused) = (objects(DEEP), Expected::Refused(&[400]));
    vec![
        ("deep arrays", post(MAPS, data), refused),
        ("deep objects", post(MAPS, &deep), refused),
        ("deep and open", post(MAPS, &open), refused),
        ("deep YAML", body("POST", MAPS, "application/yaml", &open), refused),
        ("a deep merge patch", patch("merge-patch+json", &deep), refused),
        ("a deep strategic patch", patch("strategic-merge-patch+json", &deep), refused),
        ("a deep apply", patch("apply-patch+yaml", &deep), refused),
        ("deep delete options", body("DELETE", TARGET, JSON, &open), refused),
        ("10 MB", post(MAPS, large), Expected::Refused(&[413])),
        ("10 MB in chunks", request("POST", MAPS, &(types + "Transfer-Encoding: chunked\r\n"), &chunks), {
            Expected::Refused(&[413])
        }),
        ("2.9 MB", post(MAPS, under), Expected::Refused(&[422])),
        ("400 MB zipped", request("POST", MAPS, &zipped, &bomb), Expected::Refused(&[400, 413, 415])),
    ]
}

/// Objects in objects.
fn objects(depth: usize) -> String {
    format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))
}

fn map(name: &str) -> String {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } }).to_string()
}

fn manager() -> String {
    format!("fieldManager={}", "m".repeat(1_000))
}

fn get(path: &str) -> Vec<u8> {
    request("GET", path, "", b"")
}

fn post(path: &str, content: impl AsRef<[u8]>) -> Vec<u8> {
    body("POST", path, JSON, content)
}

fn body(method: &str, path: &str, kind: &str, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    request(method, path, &format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", content.len()), content)
}

/// A request as bytes, with [`CREDENTIALS`] among its headers.
fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{CREDENTIALS}\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

/// Becomes the token if there is one: all requests are made before it is known.
const CREDENTIALS: &str = "X-Credentials: here";

/// Blanks without end, as gzip packs them: one, then "the 258 before again" in 13 bits each.
fn gzip_bomb(length: usize) -> Vec<u8> {
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let mut free = 0;
    let mut put = |code: u8, bits: u32| {
        for bit in (0..bits).rev() {
            if free == 0 {
                packed.push(0);
                free = 8;
            }
            *packed.last_mut().unwrap() |= ((code >> bit) & 1) << (8 - free);
            free -= 1;
        }
    };
    put(0b110, 3); // the last block, codes as the standard fixes them
    put(0x30 + b' ', 8);
    for _ in 0..length / 258 {
        put(0b1100_0101, 8); // a length of 258
        put(0, 5); // from one byte back
    }
    put(0, 7);
    packed.extend([0; 8]);
    packed
}

/// What became of a request.
#[derive(Debug)]
enum Outcome {
    Answered {
        code: u16,
        body: String,
    },
    Closed,
    /// Neither in time.
    Silent,
}

/// A server, and the credentials to be let in.
struct Server {
    address: String,
    name: ServerName<'static>,
    tls: TlsConnector,
    token: Option<String>,
}

impl Server {
    fn new(kubeconfig: &Path) -> Self {
        let read: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap();
        let (cluster, user) = (&read["clusters"][0]["cluster"], &read["users"][0]["user"]);
        let decode = |value: &Value| Some(BASE64_STANDARD.decode(value.as_str()?).unwrap());
        let mut roots = rustls::RootCertStore::empty();
        let authority = decode(&cluster["certificate-authority-data"]).unwrap();
        roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_root_certificates(roots);
        let config = match (decode(&user["client-certificate-data"]), decode(&user["client-key-data"])) {
            (Some(chain), Some(key)) => {
                let chain = CertificateDer::pem_slice_iter(&chain).map(Result::unwrap).collect();
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&key).unwrap()).unwrap()
            }
            _ => builder.with_no_client_auth(),
        };
        let address = cluster["server"].as_str().unwrap().strip_prefix("https://").unwrap().to_owned();
        let name = ServerName::try_from(address.rsplit_once(':').unwrap().0.to_owned()).unwrap();
        let token = user["token"].as_str().map(|token| format!("Authorization: Bearer {token}"));
        Self { address, name, tls: TlsConnector::from(Arc::new(config)), token }
    }

    async fn connect(&self) -> tokio_rustls::client::TlsStream<TcpStream> {
        let stream = TcpStream::connect(&self.address).await.unwrap();
        self.tls.connect(self.name.clone(), stream).await.unwrap()
    }

    /// Sends bytes, reading at the same time: an answer may come before the end of a request. `hang_up` ends the
    /// connection from here once all is sent.
    async fn send(&self, request: &[u8], hang_up: bool) -> Outcome {
        let (mut reader, mut writer) = tokio::io::split(self.connect().await);
        let place = request.windows(CREDENTIALS.len()).position(|window| window == CREDENTIALS.as_bytes());
        let sending = async {
            // fails when the server has heard enough
            match (place, &self.token) {
                (Some(place), Some(token)) => {
                    writer.write_all(&request[..place]).await?;
                    writer.write_all(token.as_bytes()).await?;
                    writer.write_all(&request[place + CREDENTIALS.len()..]).await?;
                }
                _ => writer.write_all(request).await?,
            }
            writer.flush().await?;
            if hang_up { writer.shutdown().await } else { Ok(()) }
        };
        let mut answer = Vec::new();
        let exchange = futures::future::join(sending, reader.read_to_end(&mut answer));
        match tokio::time::timeout(LIMIT, exchange).await {
            // a reset after the answer is no news
            Ok((_, _)) => parse(&answer),
            Err(_) => Outcome::Silent,
        }
    }

    async fn expect(&self, name: &str, request: &[u8], expected: Expected) {
        let outcome = self.send(request, false).await;
        let met = match (&outcome, expected) {
            (Outcome::Answered { code, body }, Expected::Refused(codes)) => {
                let status: Value = serde_json::from_str(body).unwrap_or_default();
                codes.contains(code) && status["kind"] == "Status" && status["code"] == *code
            }
            (Outcome::Answered { code, .. }, Expected::Plain(codes)) => codes.contains(code),
            (Outcome::Answered { code, .. }, Expected::Broken) => *code >= 400,
            (Outcome::Answered { code, .. }, Expected::Served) => *code < 300,
            (Outcome::Answered { code, .. }, Expected::Limited) => *code < 300 || *code == 431,
            (Outcome::Closed, Expected::Broken | Expected::Limited) => true,
            (Outcome::Closed, Expected::Refused(_) | Expected::Plain(_) | Expected::Served) | (Outcome::Silent, _) => {
                false
            }
        };
        let shown: String = format!("{outcome:?}").chars().take(400).collect();
        assert!(met, "{name}: expected {expected:?}, got {shown}");
    }

    /// It answers, and it still keeps what it is given.
    async fn alive(&self) {
        self.expect("readiness", &get("/readyz"), Expected::Served).await;
        self.expect("a good object", &post(MAPS, map("good")), Expected::Served).await;
        let good = format!("{MAPS}/good");
        self.expect("reading it", &get(&good), Expected::Served).await;
        self.expect("deleting it", &request("DELETE", &good, "", b""), Expected::Served).await;
    }
}

fn parse(answer: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Outcome::Closed };
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("an answer has a code");
    let chunked = head.to_ascii_lowercase().contains("\r\ntransfer-encoding: chunked");
    Outcome::Answered { code, body: if chunked { unchunked(body.as_bytes()) } else { body.to_owned() } }
}

/// Joins the chunks of a body.
fn unchunked(mut rest: &[u8]) -> String {
    let mut whole = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        let Some(chunk) = rest.get(end + 2..end + 2 + size) else { break };
        whole.extend_from_slice(chunk);
        rest = rest.get(end + 4 + size..).unwrap_or_default();
    }
    String::from_utf8(whole).unwrap()
}
