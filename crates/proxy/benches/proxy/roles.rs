//! What this program is when a benchmark starts it as a contestant.

use crate::bare::{Bare, Variant};
use crate::place;
use anyhow::{Context as _, bail};
use portolan_proxy::config::engine::{Ending, Engine as _, Page, SessionFilter};
use portolan_proxy::config::json::Json;
use portolan_proxy::io::sys::Buffers;
use portolan_proxy::io::{DataPlane, Options};
use portolan_proxy::rest::exchange::{Client, Request};
use portolan_proxy::rest::{Access, Api, Settings};
use serde_json::{Value, json};
use std::io::{BufRead as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Plays a role until nobody gives orders any more.
pub(crate) fn play(words: &[String]) -> anyhow::Result<()> {
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ours", workers, config] => ours(workers.parse()?, config),
        ["bare", variant, workers, port, sink] => {
            bare(variant.parse()?, workers.parse()?, port.parse()?, sink.parse()?)
        }
        ["splice", port, sink] => {
            let listener = TcpListener::bind(("127.0.0.1", port.parse()?))?;
            let sink: u16 = sink.parse()?;
            std::thread::spawn(move || splice_all(&listener, sink));
            obey(|_| "done".to_owned())
        }
        _ => bail!("`{}` is no role", words.join(" ")),
    }
}

fn bare(variant: Variant, workers: usize, port: u16, sink: u16) -> anyhow::Result<()> {
    // All sockets are there before the first packet, so that none of its flows moves.
    let all: Vec<Bare> = (0..workers).map(|_| Bare::new(variant, port, sink)).collect::<Result<_, _>>()?;
    let mut forget = Vec::new();
    for (processor, bare) in all.into_iter().enumerate() {
        forget.push(bare.forget());
        std::thread::spawn(move || {
            // As ours: a single one stays where this process was put.
            if workers > 1 {
                place::pin(&[processor]);
            }
            bare.run();
        });
    }
    obey(|_| {
        for forget in &forget {
            forget.store(true, Relaxed);
        }
        while forget.iter().any(|forget| forget.load(Relaxed)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        "done".to_owned()
    })
}

fn ours(workers: usize, config: &str) -> anyhow::Result<()> {
    // Each worker on a processor of its own; a single one stays where this process was put.
    let options = Options { workers, pin: workers > 1, buffers: Buffers::System, ..Options::default() };
    let plane = DataPlane::start(options)?;
    let api = Api::new(Arc::clone(&plane) as _, Access::new(None, false, true)?, Settings::default());
    let config: Value = serde_json::from_str(config)?;
    api.load(&Json::from(&config)).map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
    obey(|order| match order {
        "end sessions" => plane.end(&SessionFilter::default(), Ending::End("done")).to_string(),
        "list sessions" => {
            let (began, page) = (Instant::now(), Page { limit: Some(100), ..Page::default() });
            let listed = plane.sessions(&SessionFilter::default(), &page).sessions.len();
            assert_eq!(listed, 100, "the page is full");
            began.elapsed().as_micros().to_string()
        }
        "list all sessions, for a second" => list_for_a_second(&plane).to_string(),
        "change one object, often" => changes(&api, CHANGES, |number| {
            vec![put("cluster", "changed", &json!({ "spec": { "protocol": "UDP", "port": 1 + number % 2 } }))]
        }),
        "change many endpoints, once" => changes(&api, 1, |_| {
            let address = |number: usize| format!("127.{}.{}.1", 1 + number / 200, number % 200);
            let endpoint = |number| {
                let object = json!({ "spec": { "address": address(number) } });
                let mut change = put("endpoint", &format!("e{number}"), &object);
                change["cluster"] = json!("changed");
                change
            };
            (0..ENDPOINTS).map(endpoint).collect()
        }),
        _ => "unknown".to_owned(),
    })?;
    plane.stop();
    Ok(())
}

/// Changes in a row, and endpoints in one change.
pub(crate) const CHANGES: usize = 2000;
pub(crate) const ENDPOINTS: usize = 10_000;

/// Makes so many changes over the API, and says how many microseconds of this thread all of them took.
///
/// Not by the clock on the wall: the worker and the sender fill the processor that this thread shares with them.
fn changes(api: &Api, count: usize, change: impl Fn(usize) -> Vec<Value>) -> String {
    let request = |number| {
        let body = json!({ "owner": "bench", "ops": change(number) }).to_string().into_bytes();
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let client = Client { address: Some(Ipv4Addr::LOCALHOST.into()), certified: false };
        Request { method: "POST".to_owned(), target: "/api/v2/apply".to_owned(), headers, body, client }
    };
    let requests: Vec<Request> = (0..count).map(request).collect();
    let began = own_time();
    for request in &requests {
        let answer = api.handle(request);
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    }
    own_time().saturating_sub(began).as_micros().to_string()
}

/// How long this thread has run.
fn own_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live value that the call fills in.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(done, 0, "every thread has this clock");
    Duration::from_secs(time.tv_sec.cast_unsigned()) + Duration::from_nanos(time.tv_nsec.cast_unsigned())
}

fn put(kind: &str, name: &str, object: &Value) -> Value {
    json!({ "op": "put", "kind": kind, "name": name, "object": object })
}

/// Page by page, over and over; says how many were listed.
fn list_for_a_second(plane: &DataPlane) -> usize {
    let (began, mut listed, mut page) = (Instant::now(), 0, Page { limit: Some(500), from: None });
    while began.elapsed() < Duration::from_secs(1) {
        let found = plane.sessions(&SessionFilter::default(), &page);
        listed += found.sessions.len();
        page.from = found.next;
    }
    listed
}

/// Says that it is ready, then answers each order once it is done.
fn obey(mut order: impl FnMut(&str) -> String) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    for line in std::io::stdin().lock().lines() {
        writeln!(out, "{}", order(&line?))?;
    }
    Ok(())
}

fn splice_all(listener: &TcpListener, sink: u16) {
    for from in listener.incoming().map_while(Result::ok) {
        let Ok(to) = TcpStream::connect(("127.0.0.1", sink)) else { continue };
        to.set_nodelay(true).ok();
        if let Err(error) = splice(&from, &to) {
            writeln!(std::io::stderr(), "the splice loop ended: {error}").ok();
        }
    }
}

/// Bytes of one connection through a pipe to another, until the first ends.
fn splice(from: &TcpStream, to: &TcpStream) -> anyhow::Result<()> {
    const ROOM: usize = 256 * 1024;
    const PIPE: libc::c_int = 256 * 1024;
    let (out, inn) = std::io::pipe()?;
    let step = |from: i32, to: i32, room: usize| {
        let flags = libc::SPLICE_F_MOVE;
        // SAFETY: no memory is passed: both offsets are null, as sockets and pipes have none.
        let moved = unsafe { libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), room, flags) };
        usize::try_from(moved).context("splice failed")
    };
    // SAFETY: an integer argument; a refusal leaves a smaller pipe.
    unsafe { libc::fcntl(inn.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE) };
    loop {
        let mut waiting = step(from.as_raw_fd(), inn.as_raw_fd(), ROOM)?;
        if waiting == 0 {
            return Ok(());
        }
        while waiting > 0 {
            waiting -= step(out.as_raw_fd(), to.as_raw_fd(), waiting)?;
        }
    }
}
