//! A forwarder that does nothing else: 64 datagrams in, a table by port, connected sockets, 64 out.

use portolan_proxy::io::sys::{BATCH, Gather, RecvBatch};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// recvmmsg and sendmmsg.
    Plain,
    /// Datagrams of one flow within a batch leave as one.
    Grouping,
    /// Also received as one.
    Coalesced,
}

pub(crate) struct Bare {
    sink: u16,
    variant: Variant,
    table: Vec<RawFd>,
    sockets: Vec<UdpSocket>,
}

impl Bare {
    /// Starts the thread; returns its port and thread id.
    pub(crate) fn start(variant: Variant, sink: u16) -> (u16, u32) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let port = socket.local_addr().expect("bound").port();
        let before = super::load::threads();
        let name = format!("bare-{}", variant as u8);
        let own = name.clone();
        std::thread::Builder::new()
            .name(name)
            .spawn(move || Self { sink, variant, table: vec![-1; 65_536], sockets: Vec::new() }.run(&socket))
            .expect("a thread");
        let thread = super::load::thread_named(&before, &own);
        super::load::pin_thread(thread, 1);
        (port, thread)
    }

    fn run(mut self, socket: &UdpSocket) {
        if self.variant == Variant::Coalesced {
            portolan_proxy::io::sys::coalesce(socket.as_raw_fd());
        }
        let mut batch = RecvBatch::new(true).expect("memory");
        let mut gather = Gather::default();
        let mut epoll = portolan_proxy::io::sys::Epoll::new(4).expect("epoll");
        epoll.add(socket.as_raw_fd(), 1, portolan_proxy::io::sys::READ).expect("watched");
        let mut segments = [0; BATCH];
        let mut to = [0; BATCH];
        loop {
            epoll.wait(-1).expect("readiness");
            let Ok(count) = batch.receive(socket.as_raw_fd(), 0) else { continue };
            let mut drops = 0;
            for i in 0..count {
                segments[i] = batch.take(i, &mut drops).segment;
                to[i] = self.upstream(batch.from(i).key().1);
            }
            if self.variant == Variant::Plain {
                Self::send_runs(&batch, &segments, &to[..count], &mut gather);
            } else {
                Self::send_groups(&batch, &segments, &mut to[..count], &mut gather);
            }
        }
    }

    /// One sendmmsg per run of datagrams for one socket.
    fn send_runs(batch: &RecvBatch, segments: &[usize], to: &[RawFd], gather: &mut Gather) {
        for (i, fd) in to.iter().enumerate() {
            // SAFETY: the batch is not received into before the flush.
            unsafe { gather.push(batch.data(i), segments[i], None, false, 0) };
            if to.get(i + 1) != Some(fd) {
                gather.flush(*fd);
            }
        }
    }

    fn send_groups(batch: &RecvBatch, segments: &[usize], to: &mut [RawFd], gather: &mut Gather) {
        for first in 0..to.len() {
            let fd = std::mem::replace(&mut to[first], -1);
            if fd < 0 {
                continue;
            }
            for i in first..to.len() {
                if i == first || to[i] == fd {
                    to[i] = -1;
                    // SAFETY: the batch is not received into before the flush.
                    unsafe { gather.push(batch.data(i), segments[i], None, true, 0) };
                }
            }
            gather.flush(fd);
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
