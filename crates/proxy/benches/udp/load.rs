//! Paced senders, the sink that counts, and the scheduler's account of threads.

use portolan_proxy::io::sys::{Gather, RecvBatch, coalesce};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A socket that counts what arrives.
pub(crate) struct Sink {
    pub(crate) port: u16,
    pub(crate) count: Arc<AtomicU64>,
}

impl Sink {
    pub(crate) fn start(gro: bool) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        portolan_proxy::io::sys::set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 4 << 20).ok();
        if gro {
            coalesce(socket.as_raw_fd());
        }
        let port = socket.local_addr().expect("bound").port();
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        std::thread::spawn(move || {
            portolan_proxy::io::sys::pin_to(0);
            let mut batch = RecvBatch::new(false).expect("memory");
            let mut epoll = portolan_proxy::io::sys::Epoll::new(4).expect("epoll");
            epoll.add(socket.as_raw_fd(), 1, portolan_proxy::io::sys::READ).expect("watched");
            loop {
                epoll.wait(-1).expect("readiness");
                while let Ok(n) = batch.receive(socket.as_raw_fd(), 0) {
                    let mut drops = 0;
                    let got: usize = (0..n).map(|i| batch.take(i, &mut drops).datagrams()).sum();
                    counted.fetch_add(got as u64, Relaxed);
                }
            }
        });
        Self { port, count }
    }
}

pub(crate) struct Load {
    pub(crate) size: usize,
    pub(crate) burst: usize,
    pub(crate) gso: bool,
    pub(crate) flows: usize,
    /// Packets per second.
    pub(crate) rate: u64,
    pub(crate) time: Duration,
}

pub(crate) struct Measured {
    /// Nanoseconds of the forwarder's CPU time per packet delivered.
    pub(crate) cost: f64,
    /// Share of packets that did not arrive.
    pub(crate) lost: f64,
}

impl Load {
    /// Sends for a while and says what each delivered packet cost the forwarder's thread.
    pub(crate) fn run(&self, port: u16, thread: u32, sink: &Sink) -> Measured {
        let senders: Vec<UdpSocket> =
            (0..self.flows).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port")).collect();
        let data = vec![7u8; self.size];
        for sender in &senders {
            sender.connect(("127.0.0.1", port)).expect("connected");
            sender.send(&data).expect("a warm-up packet leaves");
        }
        std::thread::sleep(Duration::from_millis(50));
        let (cpu, arrived) = (cpu_ns(thread), sink.count.load(Relaxed));
        let sent = self.send(&senders, &data);
        std::thread::sleep(Duration::from_millis(50));
        let delivered = sink.count.load(Relaxed) - arrived;
        let cost = (cpu_ns(thread) - cpu) as f64 / delivered.max(1) as f64;
        Measured { cost, lost: 1.0 - delivered as f64 / sent as f64 }
    }

    fn send(&self, senders: &[UdpSocket], data: &[u8]) -> u64 {
        let mut gather = Gather::default();
        let began = Instant::now();
        let (mut sent, mut flow) = (0u64, 0);
        loop {
            let passed = began.elapsed();
            if passed >= self.time {
                return sent;
            }
            let due = (passed.as_secs_f64() * self.rate as f64) as u64;
            if due < sent + (self.burst * 8) as u64 {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            while sent < due {
                for _ in 0..self.burst {
                    // SAFETY: `data` outlives the flush.
                    unsafe { gather.push(data, data.len(), None, self.gso, 0) };
                }
                gather.flush(senders[flow % senders.len()].as_raw_fd());
                flow += 1;
                sent += self.burst as u64;
            }
        }
    }
}

/// CPU time of a thread by the scheduler's account.
pub(crate) fn cpu_ns(thread: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

pub(crate) fn threads() -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc is mounted");
    tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The thread of this name that was not there before.
pub(crate) fn thread_named(before: &[u32], name: &str) -> u32 {
    loop {
        let named = |thread: &u32| {
            let comm = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
            comm.trim() == name
        };
        if let Some(found) = threads().into_iter().filter(|thread| !before.contains(thread)).find(named) {
            return found;
        }
        std::thread::yield_now();
    }
}

pub(crate) fn pin_thread(thread: u32, processor: usize) {
    // SAFETY: an all-zero cpu_set_t is the empty set, and its own size is passed.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(thread.cast_signed(), size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

pub(crate) fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port()
}
