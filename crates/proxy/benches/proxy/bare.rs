//! The floor: a forwarder that does nothing else. 64 datagrams in, a table by port, connected sockets, and out.
//! What leaves alone leaves by the plainest call, as ours does.

use anyhow::bail;
use portolan_proxy::io::sys::{BATCH, Buffers, Epoll, Gather, READ, RecvBatch, Sharing, set_option, udp_listener};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// recvmmsg and sendmmsg.
    Plain,
    /// Datagrams of a flow are received as one and leave as one.
    Coalescing,
}

impl FromStr for Variant {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> anyhow::Result<Self> {
        Ok(match word {
            "plain" => Self::Plain,
            "coalescing" => Self::Coalescing,
            _ => bail!("`{word}` is no bare forwarder"),
        })
    }
}

/// One worker of the forwarder.
pub(crate) struct Bare {
    socket: OwnedFd,
    sink: u16,
    variant: Variant,
    table: Vec<RawFd>,
    /// Set when all flows are to be forgotten.
    forget: Arc<AtomicBool>,
    sockets: Vec<UdpSocket>,
}

impl Bare {
    pub(crate) fn new(variant: Variant, port: u16, sink: u16) -> anyhow::Result<Self> {
        let socket = udp_listener(SocketAddr::from(([127, 0, 0, 1], port)), Sharing::First, Buffers::System)?;
        let joined = i32::from(variant == Variant::Coalescing);
        set_option(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, joined)?;
        let (table, forget) = (vec![-1; 65_536], Arc::default());
        Ok(Self { socket, sink, variant, table, forget, sockets: Vec::new() })
    }

    /// Setting it makes the forwarder forget its flows; it is cleared when that is done.
    pub(crate) fn forget(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.forget)
    }

    pub(crate) fn run(mut self) {
        let mut batch = RecvBatch::new(true).expect("memory");
        let mut gather = Gather::default();
        let mut epoll = Epoll::new(4).expect("epoll");
        epoll.add(self.socket.as_raw_fd(), 1, READ).expect("watched");
        let mut segments = [0; BATCH];
        let mut to = [0; BATCH];
        loop {
            epoll.wait(20).expect("readiness");
            if self.forget.load(Relaxed) {
                self.sockets.clear();
                self.table.fill(-1);
                self.forget.store(false, Relaxed);
            }
            let Ok(count) = batch.receive(self.socket.as_raw_fd(), 0) else { continue };
            for i in 0..count {
                segments[i] = batch.take(i).segment;
                to[i] = self.upstream(batch.from(i).key().1);
            }
            let join = self.variant == Variant::Coalescing;
            for (i, fd) in to[..count].iter().enumerate() {
                // SAFETY: the batch is not received into before the flush.
                unsafe { gather.push(batch.data(i), segments[i], None, join, 0) };
                if to[..count].get(i + 1) != Some(fd) {
                    gather.flush(*fd);
                }
            }
        }
    }

    fn upstream(&mut self, port: u16) -> RawFd {
        let known = self.table[usize::from(port)];
        if known >= 0 {
            return known;
        }
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.connect(("127.0.0.1", self.sink)).expect("connected");
        let fd = socket.as_raw_fd();
        self.sockets.push(socket);
        self.table[usize::from(port)] = fd;
        fd
    }
}
