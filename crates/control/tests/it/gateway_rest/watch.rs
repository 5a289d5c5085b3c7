//! Changes as they happen.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use http::{Method, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use portolan_control::gateway::rest::Config;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use super::harness::{Site, basic, read};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    a_watch_resumes_where_it_ended,
    a_watch_shows_what_is_there_and_what_changes,
    a_watcher_that_does_not_read_is_dropped,
    an_account_has_a_limited_number_of_watches,
);

/// One event.
#[derive(Debug, Clone)]
struct Event {
    name: String,
    id: Option<String>,
    data: Value,
}

struct Events {
    body: Incoming,
    text: String,
}

impl Events {
    async fn open(site: &Site, path: &str, since: Option<&str>) -> anyhow::Result<Self> {
        let login = basic("bob", "secret");
        let mut headers = vec![("authorization", login.as_str())];
        headers.extend(since.map(|since| ("last-event-id", since)));
        let answer: Response<Incoming> = site.open(&headers, Method::GET, path, "").await?;
        if answer.status() != 200 {
            anyhow::bail!("{:?}", read(answer).await?);
        }
        ensure!(answer.headers()["content-type"] == "text/event-stream");
        Ok(Self { body: answer.into_body(), text: String::new() })
    }

    async fn next(&mut self) -> anyhow::Result<Event> {
        loop {
            while let Some((frame, rest)) = self.text.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let Some(name) = field("event: ") else { continue };
                let data = serde_json::from_str(&field("data: ").context("it has data")?)?;
                return Ok(Event { name, id: field("id: "), data });
            }
            let frame = tokio::time::timeout(Duration::from_mins(2), self.body.frame()).await?;
            let frame = frame.context("the watch ended")??;
            if let Some(bytes) = frame.data_ref() {
                self.text.push_str(std::str::from_utf8(bytes)?);
            }
        }
    }

    /// Reads until an event fits.
    async fn until(&mut self, fits: impl Fn(&Event) -> bool) -> anyhow::Result<Event> {
        loop {
            let event = self.next().await?;
            if fits(&event) {
                return Ok(event);
            }
        }
    }
}

fn is(event: &Event, name: &str, kind: &str, object: &str) -> bool {
    event.name == name && event.data[kind]["metadata"]["name"] == object
}

async fn a_watch_shows_what_is_there_and_what_changes(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let other = site.account("other").await?;
    let path = site.service(&account, "one").await?;
    site.service(&other, "foreign").await?;
    let mut all = Events::open(&site, &format!("/accounts/{account}/watch"), None).await?;
    let mut one = Events::open(&site, &format!("{path}/watch"), None).await?;
    let first = all.next().await?;
    ensure!(is(&first, "added", "service", "one") && first.id.is_some(), "{first:?}");
    ensure!(first.data["link"]["self"] == *path, "it is the body of a GET: {first:?}");
    ensure!(is(&one.next().await?, "added", "service", "one"));
    site.service(&account, "two").await?;
    let two = all.until(|event| event.data["service"]["metadata"]["name"] == "two").await?;
    ensure!(two.name == "added", "{two:?}");
    let made = site.endpoint(&path, "10.1.1.1", "10.0.0.1").await?;
    let name = made.rsplit('/').next().context("a path")?.to_owned();
    for events in [&mut all, &mut one] {
        events.until(|event| is(event, "added", "endpoint", &name)).await?;
    }
    site.delete(&made).await?;
    for events in [&mut all, &mut one] {
        let gone = events
            .until(|event| {
                assert!(event.data["service"]["metadata"]["name"] != "foreign", "of another account: {event:?}");
                is(event, "deleted", "endpoint", &name)
            })
            .await?;
        ensure!(gone.data["endpoint"]["spec"]["address"] == "10.1.1.1", "{gone:?}");
    }
    site.stop().await
}

async fn a_watch_resumes_where_it_ended(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let watch = format!("/accounts/{account}/watch");
    let mut events = Events::open(&site, &watch, None).await?;
    let path = site.service(&account, "one").await?;
    site.world.ready(&account, "one").await?;
    let last = site.world.get(&account, "one").await?.metadata.resource_version;
    let seen = events.until(|event| event.id == last).await?;
    drop(events);
    // missed: one is made, one goes
    let made = site.endpoint(&path, "10.1.1.1", "10.0.0.1").await?;
    let name = made.rsplit('/').next().context("a path")?.to_owned();
    site.delete(&made).await?;
    let mut events = Events::open(&site, &watch, seen.id.as_deref()).await?;
    events
        .until(|event| {
            assert!(event.name != "reset", "nothing was forgotten");
            is(event, "added", "endpoint", &name)
        })
        .await?;
    events.until(|event| is(event, "deleted", "endpoint", &name)).await?;
    // too old, or from a future that this server has not seen
    for since in ["1", "18446744073709551615"] {
        let mut events = Events::open(&site, &watch, Some(since)).await?;
        ensure!(events.next().await?.name == "reset");
        ensure!(is(&events.next().await?, "added", "service", "one"));
    }
    let login = basic("bob", "secret");
    let bad = [("authorization", login.as_str()), ("last-event-id", "x")];
    site.send_as(&bad, Method::GET, &watch, "").await?.is(400)?;
    site.stop().await
}

async fn an_account_has_a_limited_number_of_watches(backend: Backend) -> anyhow::Result<()> {
    let site = Site::with(backend, |config| Config { watches: 2, ..config }).await?;
    let account = site.account("acme").await?;
    let other = site.account("other").await?;
    let watch = format!("/accounts/{account}/watch");
    let first = Events::open(&site, &watch, None).await?;
    let _second = Events::open(&site, &watch, None).await?;
    let third = site.get(&watch).await?.is(429)?;
    ensure!(third.reason() == "TooManyWatches", "{third:?}");
    let _of_other = Events::open(&site, &format!("/accounts/{other}/watch"), None).await?;
    drop(first);
    eventually("a place is free again", async || Ok(Events::open(&site, &watch, None).await.is_ok())).await?;
    site.stop().await
}

async fn a_watcher_that_does_not_read_is_dropped(backend: Backend) -> anyhow::Result<()> {
    let site = Site::with(backend, |config| Config { watches: 2, ..config }).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let path = site.service(&account, "one").await?;
    let mut reads = Events::open(&site, &format!("/accounts/{account}/watch"), None).await?;
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    let mut deaf = socket.connect(site.at).await?;
    let request = format!(
        "GET /api/egw/accounts/{account}/watch HTTP/1.1\r\nhost: a\r\nauthorization: {}\r\n\r\n",
        basic("bob", "secret")
    );
    deaf.write_all(request.as_bytes()).await?;
    let watch = format!("/accounts/{account}/watch");
    eventually("both watch", async || {
        let login = basic("bob", "secret");
        let answer = site.open(&[("authorization", &login)], Method::GET, &watch, "").await?;
        Ok(answer.status() == 429)
    })
    .await?;
    // each change is large, as the service has many ports with long names
    let ports = |name: &str| {
        let port = |number: usize| {
            let name = format!("{name:0>8}{}", "n".repeat(55));
            serde_json::json!({ "port": number + 1, "name": name, "appProtocol": "p".repeat(253) })
        };
        serde_json::json!({ "service": { "spec": { "public-ports": (0..100).map(port).collect::<Vec<_>>() } } })
    };
    let change = async {
        let mut round = 0;
        eventually("the one that does not read is dropped", async || {
            for _ in 0..20 {
                round += 1;
                site.put(&path, ports(&round.to_string())).await?.is(200)?;
            }
            // its place is free: the other one still watches
            let login = basic("bob", "secret");
            let answer = site.open(&[("authorization", &login)], Method::GET, &watch, "").await?;
            Ok(answer.status() == 200)
        })
        .await?;
        site.put(&path, ports("last")).await?.is(200)?;
        anyhow::Ok(())
    };
    let read = reads.until(|event| {
        let name = event.data["service"]["spec"]["public-ports"][0]["name"].as_str();
        name.is_some_and(|name| name.starts_with("0000last"))
    });
    tokio::try_join!(change, read)?;
    site.stop().await
}
