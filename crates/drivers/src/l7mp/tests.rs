use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{CallError, Credentials, ProxyClient, ProxyIdentity};

/// What a proxy is told to answer to one request, and whether it then closes the connection.
struct Said {
    head: &'static str,
    body: String,
    close: bool,
}

fn said(head: &'static str, body: &Value) -> Said {
    Said { head, body: body.to_string(), close: false }
}

/// A proxy while it plays its part.
struct Playing {
    address: SocketAddr,
    heard: mpsc::Receiver<String>,
    _task: JoinSet<anyhow::Result<()>>,
}

/// A proxy that answers as told and hands on the requests that it read, headers and all.
async fn proxy(answers: Vec<Said>) -> anyhow::Result<Playing> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (heard, requests) = mpsc::channel(16);
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut answers = answers.into_iter().peekable();
        while answers.peek().is_some() {
            let (mut stream, _) = listener.accept().await?;
            while let Some(answer) = answers.peek() {
                let Some(request) = read(&mut stream).await? else { break };
                heard.send(request).await?;
                let length = answer.body.len();
                let text = format!("HTTP/1.1 {}\r\nContent-Length: {length}\r\n\r\n{}", answer.head, answer.body);
                stream.write_all(text.as_bytes()).await?;
                if answers.next().is_some_and(|answer| answer.close) {
                    break;
                }
            }
        }
        anyhow::Ok(())
    });
    Ok(Playing { address, heard: requests, _task: task })
}

async fn read(stream: &mut TcpStream) -> anyhow::Result<Option<String>> {
    let mut text = String::new();
    let mut piece = [0; 4096];
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .to_lowercase()
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ").and_then(|length| length.parse::<usize>().ok()));
            if body.len() >= length.unwrap_or_default() {
                return Ok(Some(text));
            }
        }
        match stream.read(&mut piece).await? {
            0 => return Ok(None),
            length => text.push_str(std::str::from_utf8(&piece[..length])?),
        }
    }
}

fn with_token() -> Credentials {
    Credentials { token: Some(Arc::from("secret")), ..Credentials::default() }
}

#[tokio::test]
async fn a_token_is_shown_only_to_a_proxy_that_asks_as_ours_does() -> anyhow::Result<()> {
    let denied = "401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"portolan\"";
    let ours = json!({ "version": "0.5.7", "portolan": { "instance": "i-1" } });
    let mut playing = proxy(vec![said(denied, &json!({})), said("200 OK", &ours)]).await?;
    let flavour = ProxyClient::new(playing.address, with_token()).identify().await?;
    assert_eq!(flavour, ProxyIdentity::Portolan { instance: "i-1".into() });
    assert!(!playing.heard.recv().await.context("first request")?.to_lowercase().contains("authorization"));
    assert!(playing.heard.recv().await.context("second request")?.contains("Bearer secret"));

    let theirs = json!({ "version": "0.5.7", "strict": true });
    let mut playing = proxy(vec![said("200 OK", &theirs)]).await?;
    let flavour = ProxyClient::new(playing.address, with_token()).identify().await?;
    assert_eq!(flavour, ProxyIdentity::L7mp { version: "0.5.7".into(), strict: true });
    assert!(!playing.heard.recv().await.context("only request")?.to_lowercase().contains("authorization"));
    Ok(())
}

#[tokio::test]
async fn what_a_refusal_means_is_read_from_its_content() -> anyhow::Result<()> {
    let contents = [
        "Cannot add cluster: Cluster \"c\" already defined",
        "Not Found",
        "Cannot delete Route: Unknown Route \"r\"",
        "Cannot read properties of undefined (reading 'origin')",
        "Cannot add route: Invalid destination",
    ];
    let answers = contents.map(|content| said("400 Bad Request", &json!({ "status": 400, "content": content })));
    let playing = proxy(answers.into()).await?;
    let proxy = ProxyClient::new(playing.address, Credentials::default());
    let mut read = Vec::new();
    for _ in contents {
        let failed = proxy.call(Method::DELETE, "/api/v1/routes/r", None).await.expect_err("it refuses");
        read.push((failed.is_already_defined(), failed.is_not_found(), failed.is_stale_session()));
    }
    let expected =
        [(true, false, false), (false, true, false), (false, true, false), (false, false, true), (false, false, false)];
    assert_eq!(read, expected);
    Ok(())
}

#[tokio::test]
async fn calls_share_a_connection_and_one_closed_meanwhile_is_opened_again() -> anyhow::Result<()> {
    let closing = Said { close: true, ..said("200 OK", &json!({ "status": 200 })) };
    let answers = vec![said("200 OK", &json!([])), closing, said("200 OK", &json!(["third"]))];
    let mut playing = proxy(answers).await?;
    let proxy = ProxyClient::new(playing.address, Credentials::default());
    assert_eq!(proxy.get("/api/v1/listeners").await?, json!([]));
    let cluster = json!({ "cluster": { "name": "c" } });
    proxy.call(Method::POST, "/api/v1/clusters", Some(&cluster)).await?;
    assert_eq!(proxy.get("/api/v1/rules").await?, json!(["third"]));
    playing.heard.recv().await.context("GET")?;
    let post = playing.heard.recv().await.context("POST")?.to_lowercase();
    assert!(post.contains("content-type: application/json\r\n"), "{post}");
    assert!(post.ends_with(&cluster.to_string()), "{post}");
    Ok(())
}

#[tokio::test]
async fn a_redirect_is_not_followed() -> anyhow::Result<()> {
    let playing = proxy(vec![said("302 Found\r\nLocation: http://127.0.0.1:1/", &json!({}))]).await?;
    let failed =
        ProxyClient::new(playing.address, Credentials::default()).get("/api/v1/admin").await.expect_err("it redirects");
    assert!(matches!(failed, CallError::Rejected { status, .. } if status.is_redirection()), "{failed}");
    Ok(())
}

#[tokio::test]
async fn a_proxy_that_is_not_there_or_breaks_off_is_told_apart() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let proxy = ProxyClient::new(address, Credentials::default());
    let cut = async move {
        let (mut stream, _) = listener.accept().await?;
        read(&mut stream).await
    };
    let (failed, cut) = tokio::join!(proxy.get("/api/v1/admin"), cut);
    cut?;
    let failed = failed.expect_err("it breaks off");
    assert!(matches!(failed, CallError::ConnectionLost(_)), "{failed}");
    let failed = proxy.get("/api/v1/admin").await.expect_err("nobody listens");
    assert!(matches!(failed, CallError::Unreachable(_)), "{failed}");
    Ok(())
}
