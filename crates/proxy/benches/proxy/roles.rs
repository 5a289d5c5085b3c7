//! What this program is when a benchmark starts it as a contestant.

use crate::bare::{Bare, Variant};
use crate::place;
use anyhow::{Context as _, bail};
use portolan_proxy::config::engine::{Ending, Engine as _, Page, SessionFilter};
use portolan_proxy::config::json::Json;
use portolan_proxy::io::sys::Buffers;
use portolan_proxy::io::{DataPlane, Options};
use portolan_proxy::rest::{Access, Api, Settings};
use std::io::{BufRead as _, Write as _};
use std::net::{TcpListener, TcpStream};
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
    let config: serde_json::Value = serde_json::from_str(config)?;
    api.load(&Json::from(&config)).map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
    obey(|order| match order {
        "end sessions" => plane.end(&SessionFilter::default(), Ending::End("done")).to_string(),
        "list sessions" => {
            let (began, page) = (Instant::now(), Page { limit: Some(100), ..Page::default() });
            let listed = plane.sessions(&SessionFilter::default(), &page).sessions.len();
            assert_eq!(listed, 100, "the page is full");
            began.elapsed().as_micros().to_string()
        }
        _ => "unknown".to_owned(),
    })?;
    plane.stop();
    Ok(())
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
