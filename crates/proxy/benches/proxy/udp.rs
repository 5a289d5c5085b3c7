//! Datagrams: a sender that keeps a pace, and the sink that counts what arrives.
//!
//! Single datagrams come from clients that are elsewhere: a raw socket writes their addresses. Ten thousand sockets of
//! clients on the contestants' processor would take its cache away, as no real client does.

use crate::place;
use anyhow::ensure;
use portolan_proxy::io::sys::{
    Buffers, Gather, RecvBatch, Sharing, SockAddr, coalesce, send_one, set_option, udp_listener,
};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Packets that do not arrive for so long are lost.
const LOST: Duration = Duration::from_secs(1);
/// How long the sender rests while a volley is under way, and the sink between two looks.
const REST: Duration = Duration::from_micros(100);
/// The same for a sink that nothing comes to.
const LONG_REST: Duration = Duration::from_millis(2);

/// A socket that counts the datagrams that arrive.
pub(crate) struct Sink {
    count: Arc<AtomicU64>,
}

impl Sink {
    /// `joined`: whether it takes datagrams of a flow as one, as the kernel offers them.
    pub(crate) fn start(port: u16, joined: bool) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind(("127.0.0.1", port))?;
        if joined {
            coalesce(socket.as_raw_fd());
        }
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        std::thread::spawn(move || count_all(&socket, &counted, place::THEIRS));
        Ok(Self { count })
    }

    /// One for each processor: it gets what is sent there, as the queues of a network card would have it.
    pub(crate) fn split(port: u16) -> anyhow::Result<Vec<Self>> {
        let sink = |processor: &'static usize| {
            let socket = udp_listener(SocketAddr::from(([127, 0, 0, 1], port)), Sharing::First, Buffers::System)?;
            set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_INCOMING_CPU, i32::try_from(*processor)?)?;
            let count = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&count);
            std::thread::spawn(move || count_all(&socket, &counted, from_ref(processor)));
            Ok(Self { count })
        };
        place::ALL.iter().map(sink).collect()
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }
}

fn count_of(sinks: &[Sink]) -> u64 {
    sinks.iter().map(Sink::count).sum()
}

/// Looks again and again instead of waiting: being woken would cost whoever sends, and some more than others.
fn count_all(socket: &impl AsRawFd, counted: &AtomicU64, processors: &[usize]) -> std::io::Result<()> {
    let (mut batch, mut seen) = (RecvBatch::new(false)?, Instant::now());
    place::beside(processors);
    loop {
        while let Ok(n) = batch.receive(socket.as_raw_fd(), 0) {
            let got: usize = (0..n).map(|i| batch.take(i).datagrams()).sum();
            counted.fetch_add(got as u64, Relaxed);
            seen = Instant::now();
        }
        std::thread::sleep(if seen.elapsed() < LONG_REST * 10 { REST } else { LONG_REST });
    }
}

/// What is sent.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) size: usize,
    pub(crate) flows: usize,
    /// Packets of one flow in a row.
    pub(crate) burst: u64,
    /// They leave the sender as one.
    pub(crate) joined: bool,
    /// Packets that are under way at a time.
    pub(crate) volley: u64,
    /// Packets of one turn.
    pub(crate) packets: u64,
}

/// A sender with its flows through one contestant.
pub(crate) struct Load<'a> {
    shape: Shape,
    sink: &'a Sink,
    clients: Clients,
    /// Their numbers, and whose turn it is.
    flows: Vec<usize>,
    next: usize,
    /// Where it sends, and where whoever forwards has its worker.
    processor: &'static [usize],
    pub(crate) sent: u64,
    pub(crate) lost: u64,
}

enum Clients {
    /// A socket each, which can send bursts as one.
    Here(Vec<UdpSocket>, Vec<u8>),
    Elsewhere(Strangers),
}

impl<'a> Load<'a> {
    /// Opens the flows and waits until a packet passes.
    pub(crate) fn new(shape: Shape, port: u16, sink: &'a Sink) -> anyhow::Result<Self> {
        let mut load = Self::of(shape, port, sink, (0..shape.flows).collect())?;
        let mut gather = Gather::default();
        await_passage(from_ref(sink), || load.send_burst(&mut gather))?;
        Ok(load)
    }

    /// A sender beside each worker: with the flows that this worker has, found by where their packets come out.
    pub(crate) fn split(shape: Shape, port: u16, sinks: &'a [Sink], workers: &[usize]) -> anyhow::Result<Vec<Self>> {
        let mut stranger = Strangers::new(port, shape.size)?;
        let mut flows: Vec<Vec<usize>> = vec![Vec::new(); sinks.len()];
        let missing = |flows: &[Vec<usize>]| workers.iter().any(|worker| flows[*worker].len() < shape.flows);
        for client in 0.. {
            if !missing(&flows) {
                break;
            }
            ensure!(client < 50 * shape.flows, "some worker gets no flows");
            let before: Vec<u64> = sinks.iter().map(Sink::count).collect();
            let came = || sinks.iter().zip(&before).position(|(sink, before)| sink.count() > *before);
            let began = Instant::now();
            stranger.send(client);
            let worker = loop {
                if let Some(worker) = came() {
                    break worker;
                }
                ensure!(began.elapsed() < Duration::from_secs(10), "no packet passed within 10 s");
                std::thread::sleep(REST);
            };
            if flows[worker].len() < shape.flows {
                flows[worker].push(client);
            }
        }
        let load = |worker: &usize| {
            let own = Self::of(shape, port, &sinks[*worker], std::mem::take(&mut flows[*worker]))?;
            Ok(Self { processor: from_ref(&place::ALL[*worker]), ..own })
        };
        workers.iter().map(load).collect()
    }

    fn of(shape: Shape, port: u16, sink: &'a Sink, flows: Vec<usize>) -> anyhow::Result<Self> {
        let clients = if shape.burst == 1 {
            Clients::Elsewhere(Strangers::new(port, shape.size)?)
        } else {
            Clients::Here(clients(shape.flows, port)?, vec![7; shape.size])
        };
        Ok(Self { shape, sink, clients, flows, next: 0, processor: place::THEIRS, sent: 0, lost: 0 })
    }

    /// Sends the packets of one turn and says how many arrived.
    pub(crate) fn turn(&mut self) -> u64 {
        let Shape { burst, volley, packets, .. } = self.shape;
        let (mut window, mut gather) = (Window::new(from_ref(self.sink)), Gather::default());
        let mut sent = 0;
        place::beside(self.processor);
        while sent < packets {
            for _ in 0..volley / burst {
                self.send_burst(&mut gather);
            }
            sent += volley;
            window.drain(sent);
        }
        place::apart();
        let lost = window.lost;
        self.sent += sent;
        self.lost += lost;
        sent - lost
    }

    fn send_burst(&mut self, gather: &mut Gather) {
        match &mut self.clients {
            Clients::Here(sockets, data) => {
                for _ in 0..self.shape.burst {
                    // SAFETY: `data` is not touched before the flush.
                    unsafe { gather.push(data, data.len(), None, self.shape.joined, 0) };
                }
                gather.flush(sockets[self.next].as_raw_fd());
            }
            Clients::Elsewhere(strangers) => strangers.send(self.flows[self.next]),
        }
        self.next = (self.next + 1) % self.flows.len();
    }
}

/// Clients that have no socket here.
pub(crate) struct Strangers {
    socket: OwnedFd,
    /// IPv4 and UDP headers, and what is said.
    packet: Vec<u8>,
}

impl Strangers {
    /// The port of the first; the others follow. Nobody answers them, so it may be in use.
    const FIRST: u16 = 20_000;
    const HEADERS: usize = 28;

    pub(crate) fn new(port: u16, size: usize) -> anyhow::Result<Self> {
        // SAFETY: no pointer is passed; a non-negative result is a fresh descriptor.
        let socket = unsafe {
            let socket = libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_RAW);
            ensure!(socket >= 0, "a raw socket was refused ({})", std::io::Error::last_os_error());
            OwnedFd::from_raw_fd(socket)
        };
        let length = |bytes: usize| u16::try_from(bytes).map(u16::to_be_bytes);
        let mut packet = vec![0x45, 0];
        packet.extend(length(Self::HEADERS + size)?);
        // an identification, so that the kernel needs not look for one; time to live; UDP; a sum that it fills in
        packet.extend([0, 1, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1, 0, 0]);
        packet.extend(port.to_be_bytes());
        packet.extend(length(8 + size)?);
        // no sum
        packet.extend([0, 0]);
        packet.resize(Self::HEADERS + size, 7);
        Ok(Self { socket, packet })
    }

    pub(crate) fn send(&mut self, client: usize) {
        let port = Self::FIRST + client as u16;
        self.packet[20..22].copy_from_slice(&port.to_be_bytes());
        let to = SockAddr::from(SocketAddr::from(([127, 0, 0, 1], 0)));
        send_one(self.socket.as_raw_fd(), &self.packet, Some(&to));
    }
}

/// How many packets are under way to some sinks.
pub(crate) struct Window<'a> {
    sinks: &'a [Sink],
    before: u64,
    pub(crate) lost: u64,
    /// What had arrived when it last became more, and when.
    progress: (u64, Instant),
}

impl<'a> Window<'a> {
    pub(crate) fn new(sinks: &'a [Sink]) -> Self {
        Self { sinks, before: count_of(sinks), lost: 0, progress: (0, Instant::now()) }
    }

    /// Waits until all that was sent has arrived or is lost.
    pub(crate) fn drain(&mut self, sent: u64) {
        self.drain_to(sent, 0);
    }

    /// The same, but for so many at most.
    pub(crate) fn drain_to(&mut self, sent: u64, rest: u64) {
        while self.under_way(sent) > rest {
            std::thread::sleep(REST);
        }
    }

    fn under_way(&mut self, sent: u64) -> u64 {
        let arrived = count_of(self.sinks) - self.before;
        let missing = sent.saturating_sub(arrived + self.lost);
        if arrived != self.progress.0 || missing == 0 {
            self.progress = (arrived, Instant::now());
        } else if self.progress.1.elapsed() > LOST {
            self.lost += missing;
            return 0;
        }
        missing
    }
}

/// Sockets that send to a port, each a client of its own.
pub(crate) fn clients(count: usize, port: u16) -> anyhow::Result<Vec<UdpSocket>> {
    let client = |_| {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(("127.0.0.1", port))?;
        Ok(socket)
    };
    (0..count).map(client).collect()
}

/// Sends until something arrives, and waits until nothing more does.
pub(crate) fn await_passage(sinks: &[Sink], mut send: impl FnMut()) -> anyhow::Result<()> {
    let (began, before) = (Instant::now(), count_of(sinks));
    while count_of(sinks) == before {
        ensure!(began.elapsed() < Duration::from_secs(10), "no packet passed within 10 s");
        // nobody may listen yet
        send();
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut seen = before;
    while count_of(sinks) != seen {
        seen = count_of(sinks);
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
