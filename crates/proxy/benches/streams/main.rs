//! CPU time of streams and of new sessions through one worker.
//!
//! Absolute figures: CPU seconds per gigabyte, frames per CPU-second, microseconds per session.
#![expect(
    unsafe_code,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    reason = "a benchmark: shared helpers with raw socket calls, and a table on stdout"
)]

#[expect(dead_code, reason = "the load generator of the UDP benchmark is not used here")]
#[path = "../udp/load.rs"]
mod load;

use portolan_proxy::config::engine::{Ending, Engine, SessionFilter};
use portolan_proxy::config::json::Json;
use portolan_proxy::io::sys::{Buffers, pin_to};
use portolan_proxy::io::{DataPlane, Options};
use portolan_proxy::proto::ws::{Opcode, handshake, write_frame};
use portolan_proxy::rest::{Access, Api, Settings};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

struct Ours {
    plane: Arc<DataPlane>,
    thread: u32,
    api: Api,
}

fn main() {
    pin_to(0);
    let ours = Ours::start();
    tcp(&ours, 65_536);
    tcp(&ours, 1200);
    for size in [64, 1200] {
        websocket(&ours, size, false);
        websocket(&ours, size, true);
    }
    new_sessions(&ours, 4000);
    ours.plane.stop();
}

impl Ours {
    fn start() -> Self {
        let before = load::threads();
        let options = Options { workers: 1, buffers: Buffers::Large, ..Options::default() };
        let plane = DataPlane::start(options).expect("workers start");
        let access = Access::new(None, false, true).expect("no files are read");
        let api = Api::new(Arc::clone(&plane) as _, access, Settings::default());
        let thread = load::thread_named(&before, "proxy-0");
        load::pin_thread(thread, 1);
        Self { plane, thread, api }
    }

    fn listen(&self, protocol: &str, route: &Value) -> u16 {
        let port = load::free_port();
        let listener = json!({ "name": "l", "spec": { "protocol": protocol, "port": port, "address": "127.0.0.1" },
            "rules": [{ "action": { "route": route } }] });
        self.api.load(&Json::from(&json!({ "listeners": [listener] }))).expect("a good config");
        port
    }
}

fn cluster(protocol: &str, port: u16) -> Value {
    json!({ "spec": { "protocol": protocol, "port": port }, "endpoints": [{ "spec": { "address": "127.0.0.1" } }] })
}

/// A server that reads and counts bytes after `greet`.
fn byte_sink(greet: impl Fn(&mut TcpStream) + Send + 'static) -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        pin_to(0);
        for mut stream in listener.incoming().map_while(Result::ok) {
            greet(&mut stream);
            let mut buffer = vec![0; 1 << 20];
            while let Ok(n) = stream.read(&mut buffer) {
                if n == 0 {
                    break;
                }
                counted.fetch_add(n as u64, Relaxed);
            }
        }
    });
    (port, count)
}

/// Writes `data` for two seconds; returns bytes delivered and the worker's CPU nanoseconds.
fn push(stream: &mut TcpStream, data: &[u8], count: &AtomicU64, thread: u32) -> (u64, u64) {
    let (began, cpu, arrived) = (Instant::now(), load::cpu_ns(thread), count.load(Relaxed));
    while began.elapsed() < Duration::from_secs(2) {
        stream.write_all(data).expect("the proxy reads");
    }
    std::thread::sleep(Duration::from_millis(100));
    (count.load(Relaxed) - arrived, load::cpu_ns(thread) - cpu)
}

fn tcp(ours: &Ours, size: usize) {
    let (sink, count) = byte_sink(|_| ());
    let port = ours.listen("TCP", &json!({ "destination": cluster("TCP", sink) }));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_nodelay(true).expect("set");
    let (bytes, cpu) = push(&mut stream, &vec![7; size], &count, ours.thread);
    let per_gb = cpu as f64 / bytes as f64;
    println!("TCP, {size} byte writes: {per_gb:.3} CPU-s per GB, {:.2} GB/s", bytes as f64 / 2e9);
}

fn websocket(ours: &Ours, size: usize, decoded: bool) {
    let (sink, count) = byte_sink(|stream| {
        let head = read_head(stream);
        let accepted = handshake::accept(&head, &[]).expect("a handshake");
        stream.write_all(accepted.response.as_bytes()).expect("written");
    });
    let ingress = if decoded { json!([{ "spec": { "protocol": "Metric" } }]) } else { json!([]) };
    let route = json!({ "ingress": ingress, "destination": cluster("WebSocket", sink) });
    let port = ours.listen("WebSocket", &route);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    let request = handshake::Request { host: "x".into(), path: "/".into(), ..handshake::Request::default() };
    stream.write_all(&request.to_bytes([1; 16])).expect("written");
    read_head(&mut stream);
    std::thread::sleep(Duration::from_millis(50));
    let mut frames = Vec::new();
    let mut frame = 0;
    while frames.len() < 65_536 {
        let start = frames.len();
        write_frame(&mut frames, Opcode::Binary, &vec![7; size], Some([1, 2, 3, 4]));
        frame = frames.len() - start;
    }
    let (bytes, cpu) = push(&mut stream, &frames, &count, ours.thread);
    let count = bytes as f64 / frame as f64;
    let how = if decoded { "decoded and encoded" } else { "passed through" };
    println!("WebSocket {how}, {size} bytes: {:.2} M frames per CPU-second", count / cpu as f64 * 1e3);
}

fn read_head(stream: &mut TcpStream) -> portolan_proxy::proto::http1::Head {
    let mut read = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte).expect("a head");
        read.push(byte[0]);
        let parsed =
            portolan_proxy::proto::http1::parse_head(&read, portolan_proxy::proto::http1::HeadLimits::default())
                .expect("a good head");
        if let Some((head, _)) = parsed {
            return head;
        }
    }
}

fn new_sessions(ours: &Ours, clients: usize) {
    let sink = load::Sink::start(false);
    let port = ours.listen("UDP", &json!({ "destination": cluster("UDP", sink.port) }));
    let memory = resident();
    for round in 0..3 {
        let sockets: Vec<UdpSocket> = (0..clients).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port")).collect();
        let (cpu, arrived) = (load::cpu_ns(ours.thread), sink.count.load(Relaxed));
        for (i, socket) in sockets.iter().enumerate() {
            socket.send_to(b"first", ("127.0.0.1", port)).expect("sent");
            if i % 50 == 49 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        std::thread::sleep(Duration::from_millis(500));
        let cost = (load::cpu_ns(ours.thread) - cpu) as f64 / clients as f64 / 1000.0;
        let lost = clients as u64 - (sink.count.load(Relaxed) - arrived);
        let grown = resident().saturating_sub(memory) / clients;
        println!(
            "new UDP sessions, round {round}: {cost:.1} us CPU each, {lost} first packets lost, {grown} bytes of memory each"
        );
        let drops: Vec<_> = ours.plane.stats().drops.into_iter().filter(|(_, n)| *n > 0).collect();
        println!("  dropped so far: {drops:?}");
        ours.plane.end(&SessionFilter::default(), Ending::End("done"));
    }
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}
