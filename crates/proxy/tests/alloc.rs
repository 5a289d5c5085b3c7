//! The packet path takes no memory: an allocator that counts says so.
#![expect(unsafe_code, reason = "an allocator is an unsafe trait")]

use portolan_proxy::config::json::Json;
use portolan_proxy::io::{DataPlane, Options};
use portolan_proxy::rest::{Access, Api, Settings};
use serde_json::json;
use std::alloc::{GlobalAlloc, Layout, System};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

struct Counting;

static TAKEN: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(1, Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Whether the threads beside the worker have started and sleep: their start takes memory, however late it comes.
fn helpers_rest() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let stats = tasks.map(|task| std::fs::read_to_string(task.path().join("stat")).unwrap_or_default());
    let resting = |stat: &String| ["(proxy-names) S ", "(proxy-log) S "].iter().any(|name| stat.contains(name));
    stats.filter(resting).count() == 5
}

#[test]
fn ten_thousand_packets_of_live_sessions_allocate_nothing() {
    let plane = DataPlane::start(Options { workers: 1, ..Options::default() }).unwrap();
    let upstream = UdpSocket::bind("127.0.0.1:0").unwrap();
    upstream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let cluster = json!({ "spec": { "protocol": "UDP", "port": upstream.local_addr().unwrap().port() },
        "endpoints": [{ "spec": { "address": "127.0.0.1" } }] });
    let listener = json!({ "name": "l", "spec": { "protocol": "UDP", "port": port, "address": "127.0.0.1" },
        "rules": [{ "action": { "route": { "destination": cluster } } }] });
    let api = Api::new(Arc::clone(&plane) as _, Access::new(None, false, true).unwrap(), Settings::default());
    api.load(&Json::from(&json!({ "listeners": [listener] }))).unwrap();
    let clients: Vec<UdpSocket> = (0..8).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let proxy = SocketAddr::from(([127, 0, 0, 1], port));
    let mut buffer = [0; 2048];
    let mut round = |size: usize| {
        for client in &clients {
            client.send_to(&buffer[..size], proxy).unwrap();
        }
        for _ in &clients {
            let (n, from) = upstream.recv_from(&mut buffer).unwrap();
            upstream.send_to(&buffer[..n], from).unwrap();
        }
        for client in &clients {
            client.recv(&mut buffer).unwrap();
        }
    };
    for client in &clients {
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    }
    (0..20).for_each(|_| round(64));
    while !helpers_rest() {
        std::thread::yield_now();
    }
    let (before, began) = (TAKEN.load(Relaxed), Instant::now());
    (0..1250).for_each(|i| round(1 + i % 1200));
    let taken = TAKEN.load(Relaxed) - before;
    assert_eq!(taken, 0, "in {:?}", began.elapsed());
    plane.stop();
}
