use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use portolan_core::gateway_client::{
    ClusterKey, Endpoint, LbName, Port, Protocol, Remote, Seen, ServiceName, TargetPort,
};
use portolan_testkit::TlsFront;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{GatewayClient, GatewayError, GroupUrl, Login, LoginError, MAX_RESPONSE_BYTES};

/// A gateway that answers as it is set up to, and hands on what it was asked.
struct Scripted {
    address: SocketAddr,
    asked: mpsc::Receiver<String>,
    _task: JoinSet<anyhow::Result<()>>,
}

impl Scripted {
    /// Each answer is a head without its length, and a body.
    async fn start(answers: Vec<(&'static str, String)>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (heard, asked) = mpsc::channel(64);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut answers = answers.into_iter().peekable();
            while answers.peek().is_some() {
                let (mut stream, _) = listener.accept().await?;
                while answers.peek().is_some() {
                    let Some(request) = read(&mut stream).await? else { break };
                    heard.send(request).await?;
                    let Some((head, body)) = answers.next() else { break };
                    let text = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len());
                    stream.write_all(text.as_bytes()).await?;
                    // a client that has read enough may be gone
                    drop(stream.write_all(body.as_bytes()).await);
                }
            }
            anyhow::Ok(())
        });
        Ok(Self { address, asked, _task: task })
    }

    fn client(&self) -> anyhow::Result<GatewayClient> {
        let login = Login::Basic { username: "tenant".to_owned(), password: "s3cret".to_owned() };
        let url = format!("http://{}/api/egw/accounts/acme/groups/default", self.address);
        Ok(GatewayClient::new(GroupUrl::parse(&url)?, &login, None)?)
    }

    async fn asked(&mut self) -> anyhow::Result<String> {
        self.asked.recv().await.context("it was asked")
    }
}

async fn read(stream: &mut TcpStream) -> anyhow::Result<Option<String>> {
    let mut text = String::new();
    let mut piece = [0; 4096];
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
            });
            if body.len() >= length.unwrap_or_default() {
                return Ok(Some(text));
            }
        }
        let count = stream.read(&mut piece).await?;
        if count == 0 {
            return Ok(None);
        }
        text.push_str(std::str::from_utf8(&piece[..count])?);
    }
}

fn lb() -> LbName {
    ClusterKey::new("c").name(&ServiceName::new("shop", "web"))
}

fn ports() -> Vec<Port> {
    vec![Port { name: "http".into(), port: 80, protocol: Protocol::Tcp, target: TargetPort::Name("web".into()) }]
}

fn view() -> Value {
    json!({ "service": {
        "metadata": { "name": lb().as_str(), "uid": "u", "resourceVersion": "7" },
        "spec": {
            "service-group": "default", "public-address": "192.0.2.1",
            "public-ports": [{ "name": "http", "port": 80, "protocol": "tcp", "targetPort": "web" }],
        },
    } })
}

fn present() -> Seen {
    Seen::Present(Remote {
        id: "u".into(),
        group: "default".into(),
        address: Some([192, 0, 2, 1].into()),
        ports: ports(),
        endpoints: None,
    })
}

#[tokio::test]
async fn a_created_load_balancer_is_read_where_the_redirect_leads_with_the_login_on_both() -> anyhow::Result<()> {
    let redirect = "302 Found\r\nLocation: /api/egw/accounts/acme/services/x";
    let mut gateway = Scripted::start(vec![(redirect, String::new()), ("200 OK", view().to_string())]).await?;
    let made = gateway.client()?.create(&lb(), &ports(), Some([192, 0, 2, 1].into()), "uid-1").await?;
    assert_eq!(made, present());
    let (posted, got) = (gateway.asked().await?, gateway.asked().await?);
    assert!(posted.starts_with("POST /api/egw/accounts/acme/groups/default/services HTTP/1.1\r\n"), "{posted}");
    assert!(posted.contains("idempotency-key: uid-1\r\n"), "{posted}");
    let body: Value = serde_json::from_str(posted.split("\r\n\r\n").nth(1).unwrap_or_default())?;
    let want = json!({ "service": { "metadata": { "name": lb().as_str() }, "spec": {
        "public-ports": [{ "name": "http", "port": 80, "protocol": "TCP", "targetPort": "web" }],
        "public-address": "192.0.2.1",
    } } });
    assert_eq!(body, want);
    assert!(got.starts_with("GET /api/egw/accounts/acme/services/x HTTP/1.1\r\n"), "{got}");
    for request in [posted, got] {
        assert!(request.contains("authorization: Basic dGVuYW50OnMzY3JldA==\r\n"), "{request}");
    }
    Ok(())
}

#[tokio::test]
async fn the_login_never_goes_to_another_host() -> anyhow::Result<()> {
    for location in ["http://evil.example/x", "//evil.example/x", "https://127.0.0.1/x", "x"] {
        let head: &'static str = Box::leak(format!("302 Found\r\nLocation: {location}").into_boxed_str());
        let gateway = Scripted::start(vec![(head, String::new())]).await?;
        let refused = gateway.client()?.read(&lb()).await;
        assert!(matches!(&refused, Err(GatewayError::InvalidResponse(_))), "{location}: {refused:?}");
    }
    Ok(())
}

#[tokio::test]
async fn only_the_gateways_own_error_says_that_something_is_gone() -> anyhow::Result<()> {
    let typed = json!({ "error": "no such service", "reason": "NotFound", "details": {} }).to_string();
    let gateway = Scripted::start(vec![("404 Not Found", typed), ("404 Not Found", "<html>".to_owned())]).await?;
    let client = gateway.client()?;
    assert_eq!(client.read(&lb()).await, Ok(Seen::Absent));
    let refused = client.read(&lb()).await.err().context("it is no answer of a gateway")?;
    assert!(!refused.is_not_found() && refused.reason() == "GatewayRefused", "{refused}");
    Ok(())
}

#[tokio::test]
async fn errors_are_typed_and_say_how_long_to_wait_and_whom_they_concern() -> anyhow::Result<()> {
    let error = |reason: &str| json!({ "error": "words\u{1b}", "reason": reason }).to_string();
    let gateway = Scripted::start(vec![
        ("503 Service Unavailable\r\nRetry-After: 60", error("PoolExhausted")),
        ("429 Too Many Requests\r\nRetry-After: 2", error("TooManyRequests")),
        ("401 Unauthorized", error("Unauthorized")),
        ("403 Forbidden", error("QuotaExceeded")),
        ("422 Unprocessable Entity", error("not a word; really")),
        ("502 Bad Gateway", String::new()),
    ])
    .await?;
    let client = gateway.client()?;
    let mut found = Vec::new();
    for _ in 0..6 {
        let error = client.create(&lb(), &ports(), None, "k").await.err().context("it is refused")?;
        let wait = error.retry_after().map(|wait| wait.as_secs());
        found.push((error.reason().to_owned(), wait, error.concerns_all(), error.outcome_unknown()));
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }
    let want = [
        ("PoolExhausted", Some(60), false, true),
        ("TooManyRequests", Some(2), true, false),
        ("LoginRefused", None, true, false),
        ("QuotaExceeded", None, false, false),
        ("GatewayRefused", None, false, false),
        ("GatewayUnavailable", None, false, true),
    ];
    assert_eq!(found, want.map(|(reason, wait, all, unknown)| (reason.to_owned(), wait, all, unknown)));
    Ok(())
}

#[tokio::test]
async fn lists_are_read_to_their_last_page_and_ports_are_replaced_in_the_version_that_was_read() -> anyhow::Result<()> {
    let page = |items: Vec<Value>, next: Value| json!({ "link": { "next": next }, "endpoints": items }).to_string();
    let endpoint = |address: &str| {
        let port = json!({ "port": 8080, "protocol": "TCP" });
        json!({ "spec": { "address": address, "node-address": "10.0.0.1", "port": port } })
    };
    let next = json!("/api/egw/accounts/acme/services/x/endpoints?limit=200&continue=t");
    let mut gateway = Scripted::start(vec![
        ("200 OK", page(vec![endpoint("10.1.0.1")], next)),
        ("200 OK", page(vec![json!({ "endpoint": endpoint("10.1.0.2") })], Value::Null)),
        ("200 OK\r\nETag: \"9\"", view().to_string()),
        ("200 OK", view().to_string()),
        ("200 OK", json!({ "created": 1 }).to_string()),
    ])
    .await?;
    let client = gateway.client()?;
    let nodes = client.endpoints(&lb()).await?.context("there are some")?;
    let of =
        |last: u8| Endpoint { address: [10, 1, 0, last].into(), port: 8080, protocol: Protocol::Tcp, name: "".into() };
    assert_eq!(nodes, [([10, 0, 0, 1].into(), BTreeSet::from([of(1), of(2)]))].into());
    assert_eq!(client.update(&lb(), &ports()).await?, present());
    client.put_endpoints(&lb(), "fd00::1".parse()?, &BTreeSet::from([of(1)])).await?;
    let mut asked = Vec::new();
    for _ in 0..5 {
        asked.push(gateway.asked().await?);
    }
    assert!(asked[1].contains("&continue=t HTTP"), "{}", asked[1]);
    assert!(asked[3].starts_with("PUT ") && asked[3].contains("if-match: \"9\"\r\n"), "{}", asked[3]);
    let path = format!("PUT /api/egw/accounts/acme/services/{}/nodes/fd00::1/endpoints HTTP", lb());
    assert!(asked[4].starts_with(&path), "{}", asked[4]);
    let port = json!({ "port": 8080, "protocol": "TCP" });
    let spec = json!({ "address": "10.1.0.1", "node-address": "fd00::1", "port": port });
    let body: Value = serde_json::from_str(asked[4].split("\r\n\r\n").nth(1).unwrap_or_default())?;
    assert_eq!(body, json!({ "endpoints": [{ "spec": spec }] }));
    Ok(())
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_cut_off() -> anyhow::Result<()> {
    let gateway = Scripted::start(vec![("200 OK", " ".repeat(MAX_RESPONSE_BYTES + 1))]).await?;
    let refused = gateway.client()?.read(&lb()).await;
    assert!(matches!(&refused, Err(GatewayError::ConnectionLost(_))), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn tls_trusts_the_bundle_alone() -> anyhow::Result<()> {
    let gateway = Scripted::start(vec![("200 OK", view().to_string())]).await?;
    let front = TlsFront::start(gateway.address).await?;
    let url = GroupUrl::parse(&format!("https://127.0.0.1:{}/api/egw/accounts/acme/groups/default", front.port()))?;
    let login = Login::Token("t".to_owned());
    let unknown = GatewayClient::new(url.clone(), &login, None)?.read(&lb()).await;
    assert!(matches!(&unknown, Err(GatewayError::Unreachable(_))), "{unknown:?}");
    let trusted = GatewayClient::new(url.clone(), &login, Some(front.ca().as_bytes()))?;
    assert_eq!(tokio::time::timeout(Duration::from_secs(30), trusted.read(&lb())).await?, Ok(present()));
    let empty = GatewayClient::new(url, &login, Some(b"")).err();
    assert!(matches!(empty, Some(LoginError::Authority(_))), "{empty:?}");
    Ok(())
}

#[test]
fn a_group_is_known_by_its_url() -> anyhow::Result<()> {
    let url = GroupUrl::parse("https://gw.example/api/egw/accounts/acme/groups/default/")?;
    assert_eq!(url.group(), "default");
    ensure!(GroupUrl::parse("http://127.0.0.1:8080/api/egw/accounts/a/groups/g").is_ok());
    for bad in [
        "gw.example/api/egw/accounts/a/groups/g",
        "ftp://gw.example/accounts/a/groups/g",
        "http://gw.example/api/egw/accounts/a/groups/g",
        "https://user:secret@gw.example/api/egw/accounts/a/groups/g",
        "https://gw.example/api/egw/accounts/a",
        "https://gw.example/api/egw/accounts//groups/g",
        "https://gw.example/api/egw/accounts/a/groups/g/services",
        "https://gw.example/api/egw/accounts/a/groups/..",
        "https://gw.example/api/egw/accounts/a/groups/g?x=y",
    ] {
        let refused = GroupUrl::parse(bad).err().with_context(|| format!("{bad} is refused"))?;
        assert!(!refused.to_string().contains("secret"), "{refused}");
    }
    Ok(())
}

#[test]
fn logins_are_not_printed() {
    let basic = Login::Basic { username: "u".to_owned(), password: "s3cret".to_owned() };
    assert_eq!(format!("{basic:?} {:?}", Login::Token("s3cret".to_owned())), "Basic(u, ***) Token(***)");
    assert_eq!(Login::Token("a\nb".to_owned()).header(), Err(LoginError::Unprintable));
}
