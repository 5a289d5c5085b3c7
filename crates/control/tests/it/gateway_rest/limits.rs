//! Bodies, rates, slow clients.

use std::time::Duration;

use anyhow::ensure;
use http::Method;
use portolan_control::gateway::rest::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::harness::{Site, basic};
use crate::harness::{Backend, on_both_servers};

on_both_servers!(an_account_that_asks_too_often_is_429, bodies_are_limited, slow_clients_are_cut_off);

async fn bodies_are_limited(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    let account = site.account("acme").await?;
    let path = format!("/accounts/{account}/groups/sample/services");
    let large = format!("{{\"service\":\"{}\"}}", "x".repeat(256 << 10));
    let answer = site.send(Method::POST, &path, large).await?.is(413)?;
    ensure!(answer.reason() == "TooLarge", "{answer:?}");
    // one that only says how large it is
    let head = format!(
        "POST /api/egw{path} HTTP/1.1\r\nhost: a\r\nauthorization: {}\r\ncontent-length: 1000000000\r\n\r\n",
        basic("bob", "secret")
    );
    let text = raw(&site, &head).await?;
    ensure!(text.starts_with("HTTP/1.1 413"), "{text}");
    // one that never says it
    let head = format!(
        "POST /api/egw{path} HTTP/1.1\r\nhost: a\r\nauthorization: {}\r\ntransfer-encoding: chunked\r\n\r\n",
        basic("bob", "secret")
    );
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let text = raw(&site, &format!("{head}{}", chunk.repeat(5))).await?;
    ensure!(text.starts_with("HTTP/1.1 413"), "{text}");
    site.stop().await
}

/// Sends bytes and reads until the server has answered.
async fn raw(site: &Site, bytes: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(site.at).await?;
    stream.write_all(bytes.as_bytes()).await?;
    let mut answer = vec![0; 4096];
    let length = tokio::time::timeout(Duration::from_mins(1), stream.read(&mut answer)).await??;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

async fn slow_clients_are_cut_off(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    let account = site.account("acme").await?;
    let began = Instant::now();
    let login = basic("bob", "secret");
    let body = format!(
        "POST /api/egw/accounts/{account}/groups/sample/services HTTP/1.1\r\nhost: a\r\nauthorization: {login}\r\ncontent-length: 100\r\n\r\n{{"
    );
    let headers = "GET /api/egw/healthz HTTP/1.1\r\nhost: a\r\nx-slow: ";
    let (body, headers) = tokio::try_join!(raw(&site, &body), raw(&site, headers))?;
    ensure!(body.starts_with("HTTP/1.1 408") && body.contains("RequestTimeout"), "{body}");
    ensure!(headers.is_empty() || headers.starts_with("HTTP/1.1 408"), "{headers}");
    ensure!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    // headers without end
    let endless = format!("GET /api/egw/healthz HTTP/1.1\r\nhost: a\r\n{}", "a: b\r\n".repeat(200_000));
    let refused = raw(&site, &endless).await;
    ensure!(refused.as_ref().map_or(true, |text| text.is_empty() || text.starts_with("HTTP/1.1 4")), "{refused:?}");
    site.get(&format!("/accounts/{account}")).await?.is(200)?;
    site.stop().await
}

async fn an_account_that_asks_too_often_is_429(backend: Backend) -> anyhow::Result<()> {
    let site = Site::with(backend, |config| Config { rate: 1, ..config }).await?;
    let other = site.account("other").await?;
    let account = crate::gateway::harness::World::name("acme");
    site.world.account(&account).await?;
    site.login(&account, &format!("bob:{}\n", super::harness::HASH)).await?;
    let path = format!("/accounts/{account}");
    let all = (0..20).map(|_| site.get(&path));
    let answers = futures::future::try_join_all(all).await?;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.code == 429).collect();
    ensure!(refused.len() >= 10, "{}", refused.len());
    ensure!(refused.iter().all(|one| one.reason() == "TooManyRequests" && one.headers["retry-after"] == "1"));
    // others are not held up by it
    site.seen(&format!("/accounts/{other}")).await?;
    site.stop().await
}
