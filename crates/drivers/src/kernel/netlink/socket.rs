//! A netlink socket: one request at a time, each with its answer.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{
    Timeout, set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force, set_socket_timeout,
};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, getsockname, recv, send, socket_with,
};

use super::wire::{self, ACK, DUMP, Message};
use crate::kernel::KernelError;

/// The kernel answers within microseconds; whoever waits longer has lost the answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// A batch is one datagram: 100,000 elements take some 5 MB.
const BUFFER: usize = 256 << 20;
/// The kernel fills datagrams of dumps to at most 32 KiB.
const DATAGRAM: usize = 1 << 16;
const ATTEMPTS: u32 = 20;

#[expect(clippy::cast_possible_truncation, reason = "a number is some bytes")]
const SIZE: libc::socklen_t = size_of::<libc::c_int>() as libc::socklen_t;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const INTERRUPTED: u16 = 0x10;

/// Links, addresses, routes, rules and neighbours: protocol 0.
pub(super) const ROUTE: Option<Protocol> = None;
/// Nftables and conntrack.
pub(super) const NETFILTER: Option<Protocol> = Some(rustix::net::netlink::NETFILTER);

pub(super) struct Socket {
    descriptor: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket in the network namespace of this thread.
    pub(super) fn open(protocol: Option<Protocol>, groups: u32) -> Result<Self, KernelError> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)
            .map_err(failed("socket"))?;
        bind(&socket, &SocketAddrNetlink::new(0, groups)).map_err(failed("bind"))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_LIMIT)).map_err(failed("setsockopt"))?;
        // Beyond the limit for ordinary users; what follows fails with a clear error where it is too small.
        set_socket_send_buffer_size_force(&socket, BUFFER).map_err(failed("setsockopt"))?;
        set_socket_recv_buffer_size_force(&socket, BUFFER).map_err(failed("setsockopt"))?;
        Ok(Self { descriptor: socket, sequence: 0, buffer: vec![0; DATAGRAM] })
    }

    /// Opens a socket on which the kernel applies the filters of dumps.
    pub(super) fn open_strict(protocol: Option<Protocol>) -> Result<Self, KernelError> {
        let socket = Self::open(protocol, 0)?;
        let on: libc::c_int = 1;
        // SAFETY: the descriptor is open as long as `socket`, and the option is read from a `c_int` that outlives the
        // call, whose size is given with it.
        let result = unsafe {
            libc::setsockopt(
                socket.descriptor.as_raw_fd(),
                libc::SOL_NETLINK,
                libc::NETLINK_GET_STRICT_CHK,
                (&raw const on).cast(),
                SIZE,
            )
        };
        if result != 0 {
            return Err(KernelError::Socket { call: "setsockopt", cause: last_error() });
        }
        Ok(socket)
    }

    /// The number by which the kernel names this socket as a cause.
    pub(super) fn port(&self) -> Result<u32, KernelError> {
        let address = getsockname(&self.descriptor).map_err(failed("getsockname"))?;
        SocketAddrNetlink::try_from(address).map(|address| address.pid()).map_err(failed("getsockname"))
    }

    /// Makes one change.
    pub(super) fn change(&mut self, what: &str, message: Message) -> Result<(), KernelError> {
        let sequence = self.send(&Message { flags: message.flags | ACK, ..message })?;
        self.answer(sequence, &mut |_| {}).map_err(|cause| refused(what, cause))
    }

    /// Removes one thing; that it is gone already is a success.
    pub(super) fn remove(&mut self, what: &str, message: Message) -> Result<(), KernelError> {
        match self.change(what, message) {
            Err(KernelError::Refused {
                cause: Errno::NOENT | Errno::SRCH | Errno::ADDRNOTAVAIL | Errno::NODEV,
                ..
            }) => Ok(()),
            result => result,
        }
    }

    /// Reads all that a request gives, from the beginning if it changes meanwhile.
    pub(super) fn dump<T>(
        &mut self,
        what: &'static str,
        message: &Message,
        read: impl Fn(&wire::Received<'_>) -> Option<T>,
    ) -> Result<Vec<T>, KernelError> {
        let message = Message { flags: message.flags | DUMP, ..message.clone() };
        for _ in 0..ATTEMPTS {
            let sequence = self.send(&message)?;
            let (mut found, mut is_torn, mut is_malformed) = (Vec::new(), false, false);
            let result = self.answer(sequence, &mut |received| {
                is_torn |= received.flags & INTERRUPTED != 0;
                match read(received) {
                    Some(one) => found.push(one),
                    None => is_malformed = true,
                }
            });
            match result {
                Ok(()) if is_torn => {}
                Err(Answer::Refused(Errno::INTR)) => {}
                Ok(()) if is_malformed => return Err(KernelError::Malformed { what }),
                Ok(()) => return Ok(found),
                Err(cause) => return Err(refused(what, cause)),
            }
        }
        Err(KernelError::Unsettled { what, times: ATTEMPTS })
    }

    /// Makes several changes, of which the kernel does all or none: between two messages that mark the batch.
    pub(super) fn batch(
        &mut self,
        what: &str,
        begin: &Message,
        messages: Vec<Message>,
        end: &Message,
    ) -> Result<(), KernelError> {
        let Some(last) = messages.len().checked_sub(1) else { return Ok(()) };
        let mut bytes = Vec::new();
        let first = self.next_sequence();
        begin.write(first, &mut bytes);
        let mut sequence = first;
        for (index, mut message) in messages.into_iter().enumerate() {
            message.flags |= if index == last { ACK } else { 0 };
            sequence = self.next_sequence();
            message.write(sequence, &mut bytes);
        }
        let next = self.next_sequence();
        end.write(next, &mut bytes);
        self.send_bytes(&bytes)?;
        self.outcome(first, sequence).map_err(|(at, cause)| {
            let place =
                if at == first { String::new() } else { format!(" (message {} of {})", at - first, sequence - first) };
            refused(&format!("{what}{place}"), cause)
        })
    }

    /// The next datagram.
    pub(super) fn receive(&mut self) -> Result<&[u8], KernelError> {
        let length = self.receive_length()?;
        Ok(&self.buffer[..length])
    }

    fn send(&mut self, message: &Message) -> Result<u32, KernelError> {
        let sequence = self.next_sequence();
        let mut bytes = Vec::new();
        message.write(sequence, &mut bytes);
        self.send_bytes(&bytes)?;
        Ok(sequence)
    }

    fn send_bytes(&self, bytes: &[u8]) -> Result<(), KernelError> {
        loop {
            match send(&self.descriptor, bytes, SendFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(cause) => return Err(KernelError::Socket { call: "send", cause }),
            }
        }
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    fn receive_length(&mut self) -> Result<usize, KernelError> {
        loop {
            match recv(&self.descriptor, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((length, _)) => return Ok(length),
                Err(Errno::INTR) => {}
                Err(cause) => return Err(KernelError::Socket { call: "recv", cause }),
            }
        }
    }

    /// Reads what belongs to a request, up to its end.
    fn answer(&mut self, sequence: u32, each: &mut dyn FnMut(&wire::Received<'_>)) -> Result<(), Answer> {
        loop {
            let length = self.receive_length().map_err(Answer::Lost)?;
            for received in wire::messages(&self.buffer[..length]).filter(|message| message.sequence == sequence) {
                match received.kind {
                    ERROR | DONE => return code(&received).map_or(Ok(()), |cause| Err(Answer::Refused(cause))),
                    _ => each(&received),
                }
            }
        }
    }

    /// Reads the acknowledgement of a batch's last message, and the first refusal before it.
    fn outcome(&mut self, first: u32, last: u32) -> Result<(), (u32, Answer)> {
        let mut refusal = None;
        loop {
            let length = self.receive_length().map_err(|error| (first, Answer::Lost(error)))?;
            for received in wire::messages(&self.buffer[..length]) {
                let sequence = received.sequence;
                if received.kind != ERROR || !(first..=last).contains(&sequence) {
                    continue;
                }
                if let Some(cause) = code(&received) {
                    refusal.get_or_insert((sequence, Answer::Refused(cause)));
                }
                // The batch as a whole was refused, and nothing follows.
                if sequence == last || (sequence == first && refusal.is_some()) {
                    return refusal.map_or(Ok(()), Err);
                }
            }
        }
    }
}

/// Waits until sockets have something to receive, and says which.
pub(super) fn wait_for_any<const N: usize>(sockets: [&Socket; N], at_most: Duration) -> Result<[bool; N], KernelError> {
    let limit = Timespec::try_from(at_most).map_err(|_| KernelError::Socket { call: "poll", cause: Errno::INVAL })?;
    let mut polled = sockets.map(|socket| PollFd::new(&socket.descriptor, PollFlags::IN));
    match poll(&mut polled, Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => Ok(polled.map(|polled| !polled.revents().is_empty())),
        Err(cause) => Err(KernelError::Socket { call: "poll", cause }),
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Why there is no good answer.
#[derive(Debug)]
enum Answer {
    Refused(Errno),
    Lost(KernelError),
}

fn refused(what: &str, answer: Answer) -> KernelError {
    match answer {
        Answer::Refused(cause) => KernelError::Refused { what: what.to_owned(), cause },
        Answer::Lost(error) => error,
    }
}

/// The error number of an answer; None for an acknowledgement.
fn code(received: &wire::Received<'_>) -> Option<Errno> {
    let number = wire::u32_at(received.body, 0)?.cast_signed();
    (number != 0).then(|| Errno::from_raw_os_error(-number))
}

fn failed(call: &'static str) -> impl Fn(Errno) -> KernelError {
    move |cause| KernelError::Socket { call, cause }
}

fn last_error() -> Errno {
    let error = std::io::Error::last_os_error();
    debug_assert_ne!(error.kind(), ErrorKind::Interrupted, "setting an option does not wait");
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
