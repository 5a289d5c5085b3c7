//! Random schedules of writes, reads and ends against the model of a relay: bytes come out as they went in, in order and
//! whole, and every end is delivered exactly once and behind the last byte.
//!
//! Each schedule drives a client and an upstream of a real proxy, one step at a time from one thread: it is the schedule,
//! not the machine, that decides what arrives before what.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::struct_excessive_bools,
    reason = "helpers of a test, outside its function"
)]

use portolan_core::hash::SplitMix;
use portolan_proxy::config::engine::Engine;
use portolan_proxy::config::json::Json;
use portolan_proxy::io::{DataPlane, Options};
use portolan_proxy::proto::http1::{Body, Chunks, HeadLimits, parse_head};
use portolan_proxy::proto::json_socket::{ACCEPTED, header_end};
use portolan_proxy::proto::ws::handshake::{Request, accept, confirm};
use portolan_proxy::proto::ws::{Event, Opcode, Reader, Role, close_frame, write_frame};
use portolan_proxy::rest::{Access, Api, Settings};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Schedules per run, and how many of them no other run has had.
const SCHEDULES: u64 = 10_000;
const FRESH: u64 = 2000;
const THREADS: u64 = 4;
/// How long a schedule may take to come to its end.
const LONG: Duration = Duration::from_secs(20);
const MASK: [u8; 4] = [1, 2, 3, 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Protocol {
    Tcp,
    /// Through a chain, so that bytes are not joined inside the kernel.
    Chain,
    Unix,
    Framed,
    WebSocket,
    Http,
    JsonSocket,
}

const CLIENTS: [Protocol; 7] = [
    Protocol::Tcp,
    Protocol::Chain,
    Protocol::Unix,
    Protocol::Framed,
    Protocol::WebSocket,
    Protocol::Http,
    Protocol::JsonSocket,
];
const UPSTREAMS: [Protocol; 5] =
    [Protocol::Tcp, Protocol::Unix, Protocol::Framed, Protocol::WebSocket, Protocol::JsonSocket];

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn prepare(self) -> Self {
        match &self {
            Self::Tcp(stream) => {
                stream.set_nonblocking(true).unwrap();
                stream.set_nodelay(true).unwrap();
            }
            Self::Unix(stream) => stream.set_nonblocking(true).unwrap(),
        }
        self
    }

    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn end(&self) {
        match self {
            Self::Tcp(stream) => drop(stream.shutdown(Shutdown::Write)),
            Self::Unix(stream) => drop(stream.shutdown(Shutdown::Write)),
        }
    }
}

/// One side of a schedule: what it speaks, what it still has to write, and what it got.
struct Side {
    protocol: Protocol,
    role: Role,
    socket: Socket,
    out: Vec<u8>,
    /// Everything given to it to send, without the protocol around it.
    sent: Vec<u8>,
    ended: bool,
    end_written: bool,
    raw: Vec<u8>,
    opened: bool,
    reader: Reader,
    body: Option<Body>,
    got: Vec<u8>,
    /// Ends that it got; one is right.
    ends: usize,
    over: bool,
}

impl Side {
    fn new(protocol: Protocol, role: Role, socket: Socket) -> Self {
        let mut side = Self {
            protocol,
            role,
            socket: socket.prepare(),
            out: Vec::new(),
            sent: Vec::new(),
            ended: false,
            end_written: false,
            raw: Vec::new(),
            opened: false,
            reader: Reader::new(role, 1 << 24),
            body: None,
            got: Vec::new(),
            ends: 0,
            over: false,
        };
        if role == Role::Client {
            match protocol {
                Protocol::WebSocket => {
                    let request = Request { host: "x".into(), path: "/".into(), ..Request::default() };
                    side.out = request.to_bytes([9; 16]);
                }
                Protocol::Http => {
                    side.out = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
                }
                Protocol::JsonSocket => side.out = br#"{"JSONSocketVersion":1}"#.to_vec(),
                Protocol::Tcp | Protocol::Chain | Protocol::Unix | Protocol::Framed => {}
            }
        }
        side
    }

    /// Whether it may send data: a server answers the handshake first.
    fn may_send(&self) -> bool {
        let waits = matches!(self.protocol, Protocol::WebSocket | Protocol::JsonSocket);
        !self.ended && (self.role == Role::Client || !waits || self.opened)
    }

    fn mask(&self) -> Option<[u8; 4]> {
        (self.role == Role::Client).then_some(MASK)
    }

    fn send(&mut self, data: &[u8]) {
        self.sent.extend_from_slice(data);
        let mask = self.mask();
        match self.protocol {
            Protocol::Framed => {
                self.out.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
                self.out.extend_from_slice(data);
            }
            Protocol::WebSocket => write_frame(&mut self.out, Opcode::Binary, data, mask),
            Protocol::Http => {
                self.out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                self.out.extend_from_slice(data);
                self.out.extend_from_slice(b"\r\n");
            }
            Protocol::Tcp | Protocol::Chain | Protocol::Unix | Protocol::JsonSocket => self.out.extend_from_slice(data),
        }
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mask = self.mask();
        match self.protocol {
            Protocol::WebSocket => close_frame(&mut self.out, 1000, "over", mask),
            Protocol::Http => self.out.extend_from_slice(b"0\r\n\r\n"),
            Protocol::Tcp | Protocol::Chain | Protocol::Unix | Protocol::Framed | Protocol::JsonSocket => {}
        }
    }

    /// Writes at most so many bytes of what waits, and the end behind the last.
    fn write(&mut self, most: usize) {
        let piece = &self.out[..most.min(self.out.len())];
        if !piece.is_empty() {
            match self.socket.write(piece) {
                Ok(n) => {
                    self.out.drain(..n);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // the other side has ended everything: its own checks say whether it may have
                Err(_) => self.out.clear(),
            }
        }
        // a WebSocket and a request have ends of their own
        let by_shutdown = !matches!(self.protocol, Protocol::WebSocket | Protocol::Http);
        if self.ended && self.out.is_empty() && !std::mem::replace(&mut self.end_written, true) && by_shutdown {
            self.socket.end();
        }
    }

    /// Reads at most so many bytes.
    fn read(&mut self, most: usize) {
        if self.over {
            return;
        }
        let mut buffer = vec![0; most];
        match self.socket.read(&mut buffer) {
            Ok(0) => {
                self.over = true;
                let by_shutdown = !matches!(self.protocol, Protocol::WebSocket | Protocol::Http);
                self.ends += usize::from(by_shutdown && self.opened_or_plain());
            }
            Ok(n) => {
                self.raw.extend_from_slice(&buffer[..n]);
                self.decode();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.over = true,
        }
    }

    fn opened_or_plain(&self) -> bool {
        self.opened || !matches!(self.protocol, Protocol::JsonSocket)
    }

    fn decode(&mut self) {
        match self.protocol {
            Protocol::Tcp | Protocol::Chain | Protocol::Unix => self.got.append(&mut self.raw),
            Protocol::Framed => {
                while let Some((head, rest)) = self.raw.split_first_chunk::<2>() {
                    let len = usize::from(u16::from_be_bytes(*head));
                    let Some(message) = rest.get(..len) else { return };
                    self.got.extend_from_slice(message);
                    self.raw.drain(..len + 2);
                }
            }
            Protocol::JsonSocket => {
                if !self.opened {
                    let Some(end) = header_end(&self.raw) else { return };
                    self.raw.drain(..end);
                    self.opened = true;
                    if self.role == Role::Server {
                        self.out.extend_from_slice(ACCEPTED.as_bytes());
                    }
                }
                self.got.append(&mut self.raw);
            }
            Protocol::WebSocket => self.decode_frames(),
            Protocol::Http => self.decode_answer(),
        }
    }

    fn decode_frames(&mut self) {
        if !self.opened {
            let Some((head, used)) = parse_head(&self.raw, HeadLimits::default()).unwrap() else { return };
            self.raw.drain(..used);
            self.opened = true;
            if self.role == Role::Server {
                self.out.extend_from_slice(accept(&head, &[]).unwrap().response.as_bytes());
            } else {
                confirm(&head, [9; 16], &[]).unwrap();
            }
        }
        let mut raw = std::mem::take(&mut self.raw);
        let (got, ends) = (&mut self.got, &mut self.ends);
        let read = self.reader.handle_bytes(&mut raw, |event| match event {
            Event::Message { data, .. } => {
                assert_eq!(*ends, 0, "data behind a close");
                got.extend_from_slice(data);
            }
            Event::Close { .. } => *ends += 1,
            Event::Ping(_) | Event::Pong => {}
        });
        read.unwrap();
    }

    fn decode_answer(&mut self) {
        if self.body.is_none() {
            let Some((head, used)) = parse_head(&self.raw, HeadLimits::default()).unwrap() else { return };
            assert_eq!(head.status(), 200);
            self.raw.drain(..used);
            self.body = Some(Body::Chunked(Chunks::default()));
            self.opened = true;
        }
        let Some(body) = &mut self.body else { return };
        let got = &mut self.got;
        let used = body.handle_bytes(&self.raw, |data| got.extend_from_slice(data)).unwrap();
        self.raw.drain(..used);
        if body.is_done() {
            self.ends = self.ends.max(1);
            assert!(self.raw.is_empty(), "bytes behind an answer");
        }
    }
}

enum Upstream {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A proxy with a listener for each pair of protocols, and the upstreams of one thread.
struct World {
    plane: Arc<DataPlane>,
    ports: BTreeMap<(Protocol, Protocol), Address>,
    upstreams: BTreeMap<Protocol, Upstream>,
    _dir: tempfile::TempDir,
}

enum Address {
    Tcp(u16),
    Unix(String),
}

fn spec(protocol: Protocol, port: u16, path: &str) -> Value {
    match protocol {
        Protocol::Tcp | Protocol::Chain => json!({ "protocol": "TCP", "port": port }),
        Protocol::Unix => json!({ "protocol": "UnixDomainSocket", "filename": path }),
        Protocol::Framed => json!({ "protocol": "TCP", "port": port, "framing": "len16" }),
        Protocol::WebSocket => json!({ "protocol": "WebSocket", "port": port }),
        Protocol::Http => json!({ "protocol": "HTTP", "port": port }),
        Protocol::JsonSocket => json!({ "protocol": "JSONSocket", "transport": { "protocol": "TCP", "port": port } }),
    }
}

impl World {
    fn new() -> Self {
        let plane = DataPlane::start(Options { workers: 2, ..Options::default() }).unwrap();
        let access = Access::new(None, false, true).unwrap();
        let api = Api::new(Arc::clone(&plane) as _, access, Settings::default());
        let dir = tempfile::tempdir().unwrap();
        let path = |name: String| dir.path().join(name).display().to_string();
        let (mut upstreams, mut clusters, mut listeners) = (BTreeMap::new(), Vec::new(), Vec::new());
        for out in UPSTREAMS {
            let (cluster, address) = if out == Protocol::Unix {
                let at = path("upstream".into());
                let listener = UnixListener::bind(&at).unwrap();
                listener.set_nonblocking(true).unwrap();
                upstreams.insert(out, Upstream::Unix(listener));
                (json!({ "protocol": "UnixDomainSocket" }), at)
            } else {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                listener.set_nonblocking(true).unwrap();
                let port = listener.local_addr().unwrap().port();
                upstreams.insert(out, Upstream::Tcp(listener));
                (spec(out, port, ""), "127.0.0.1".to_owned())
            };
            let name = format!("{out:?}");
            clusters.push(json!({ "name": name, "spec": cluster, "endpoints": [{ "spec": { "address": address } }] }));
            for into in CLIENTS {
                let at = path(format!("{into:?}-{out:?}"));
                // the kernel chooses the port
                let chain =
                    if into == Protocol::Chain { json!([{ "spec": { "protocol": "Metric" } }]) } else { json!([]) };
                let rules = json!([{ "action": { "route": { "ingress": chain, "destination": name } } }]);
                let name = format!("{into:?}-{out:?}");
                listeners.push(json!({ "name": name, "spec": spec(into, 0, &at), "rules": rules }));
            }
        }
        let dirs = json!([dir.path()]);
        let config = json!({ "admin": { "uds_dirs": dirs }, "clusters": clusters, "listeners": listeners });
        api.load(&Json::from(&config)).unwrap();
        let mut ports = BTreeMap::new();
        for out in UPSTREAMS {
            for into in CLIENTS {
                let name = format!("{into:?}-{out:?}");
                let address = if into == Protocol::Unix {
                    Address::Unix(path(name))
                } else {
                    Address::Tcp(plane.local_address(&name).unwrap().port())
                };
                ports.insert((into, out), address);
            }
        }
        Self { plane, ports, upstreams, _dir: dir }
    }

    fn accept(&self, out: Protocol) -> Option<Socket> {
        match &self.upstreams[&out] {
            Upstream::Tcp(listener) => listener.accept().ok().map(|(stream, _)| Socket::Tcp(stream)),
            Upstream::Unix(listener) => listener.accept().ok().map(|(stream, _)| Socket::Unix(stream)),
        }
    }
}

/// Sizes of messages: mostly small, now and then more than what waits anywhere at once.
fn size(random: &mut SplitMix) -> usize {
    match random.next_u64() % 16 {
        0 => 1,
        1 => 60_000,
        2 => 20_000,
        _ => 1 + (random.next_u64() % 300) as usize,
    }
}

fn run(world: &World, seed: u64) {
    let mut random = SplitMix::new(seed);
    let pick = |random: &mut SplitMix, n: usize| (random.next_u64() % n as u64) as usize;
    let (into, out) = (CLIENTS[pick(&mut random, CLIENTS.len())], UPSTREAMS[pick(&mut random, UPSTREAMS.len())]);
    let what = format!("seed {seed}: {into:?} to {out:?}");
    let socket = match &world.ports[&(into, out)] {
        Address::Tcp(port) => Socket::Tcp(TcpStream::connect(("127.0.0.1", *port)).unwrap()),
        Address::Unix(path) => Socket::Unix(UnixStream::connect(path).unwrap()),
    };
    let mut client = Side::new(into, Role::Client, socket);
    let mut upstream: Option<Side> = None;
    // an upstream WebSocket that closes ends the session, and so does the end of an HTTP answer
    let upstream_second = out == Protocol::WebSocket || into == Protocol::Http;
    let patient = pick(&mut random, 3) == 0;
    for _ in 0..pick(&mut random, 40) {
        let accepts = !patient || random.next_u64().is_multiple_of(4);
        if upstream.is_none() && accepts {
            upstream = world.accept(out).map(|socket| Side::new(out, Role::Server, socket));
        }
        let at_client = upstream.is_none() || random.next_u64().is_multiple_of(2);
        let side = if at_client { &mut client } else { upstream.as_mut().unwrap() };
        let may_end = at_client || !upstream_second || side.ends > 0;
        match random.next_u64() % 8 {
            0 | 1 if side.may_send() => {
                let data: Vec<u8> = (0..size(&mut random)).map(|_| random.next_u64() as u8).collect();
                side.send(&data);
            }
            2..=4 => side.write([1, 7, 100, 1 << 17][(random.next_u64() % 4) as usize]),
            5 | 6 => side.read([1, 100, 1 << 17][(random.next_u64() % 3) as usize]),
            7 if side.may_send() && may_end && random.next_u64().is_multiple_of(3) => side.end(),
            _ => std::thread::yield_now(),
        }
    }
    // to the end, however the two halves end
    let client_first = upstream_second || random.next_u64().is_multiple_of(2);
    let until = Instant::now() + LONG;
    let mut rounds = 0_u32;
    loop {
        if upstream.is_none() {
            upstream = world.accept(out).map(|socket| Side::new(out, Role::Server, socket));
        }
        if client_first {
            client.end();
        }
        client.write(1 << 17);
        client.read(1 << 17);
        if let Some(upstream) = &mut upstream {
            upstream.write(1 << 17);
            upstream.read(1 << 17);
            if upstream.may_send() && (!client_first || upstream.ends > 0) {
                upstream.end();
            }
            if !client_first && client.ends > 0 {
                client.end();
            }
            let (ended, both) = (client.ends > 0 && upstream.ends > 0, client.ended && upstream.ended);
            if ended && both && client.out.is_empty() && upstream.out.is_empty() {
                break;
            }
        }
        if Instant::now() > until {
            let seen = upstream.map(|side| (side.got.len(), side.sent.len(), side.ends, side.ended, side.over));
            panic!(
                "{what}: no end in time; client got {} sent {} ends {} ended {} over {}; upstream {seen:?}",
                client.got.len(),
                client.sent.len(),
                client.ends,
                client.ended,
                client.over
            );
        }
        rounds += 1;
        if rounds > 50 {
            std::thread::sleep(Duration::from_micros(200));
        } else {
            std::thread::yield_now();
        }
    }
    let upstream = upstream.unwrap();
    assert!(upstream.got == client.sent, "{what}: {} of {} bytes went up", upstream.got.len(), client.sent.len());
    assert!(client.got == upstream.sent, "{what}: {} of {} bytes came back", client.got.len(), upstream.sent.len());
    assert_eq!((client.ends, upstream.ends), (1, 1), "{what}: ends");
}

#[test]
fn ten_thousand_schedules_lose_nothing_and_end_once() {
    let fresh = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let world = World::new();
                for number in (thread..SCHEDULES).step_by(THREADS as usize) {
                    let seed = if number < FRESH { fresh.wrapping_add(number) } else { number };
                    run(&world, seed);
                }
                let until = Instant::now() + LONG;
                while world.plane.stats().sessions_active > 0 {
                    assert!(Instant::now() < until, "{} sessions are left", world.plane.stats().sessions_active);
                    std::thread::sleep(Duration::from_millis(5));
                }
                let drops = world.plane.stats().drops;
                assert!(drops.iter().all(|(_, count)| *count == 0), "{drops:?}");
                world.plane.stop();
            });
        }
    });
}
