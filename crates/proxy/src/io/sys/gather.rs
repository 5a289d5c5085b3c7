//! Sending many datagrams with few calls.
//!
//! Datagrams of one flow that are of equal size (the last may be shorter) leave as one `UDP_SEGMENT` message,
//! gathered where they lie; whatever does not fit together leaves in one `sendmmsg`. A datagram alone leaves by the
//! plainest call: the kernel then has no header to read and no control messages to look for.

use super::addr::SockAddr;
use super::call::{check, check_len};
use std::io;
use std::os::fd::RawFd;

/// Datagrams in one segmented message.
const SEGMENTS: usize = 64;
/// Bytes in one segmented message: the largest UDP payload over IPv4.
const BYTES: usize = 65_507;
const MESSAGES: usize = 128;
/// Datagrams up to this size are copied together: that costs less than the kernel's walk over their places.
const SMALL: u32 = 256;
/// Room for copies: a batch of small datagrams.
const COPIES: usize = 64 * SMALL as usize;

/// Messages gathered for one socket.
pub struct Gather {
    iovecs: Vec<libc::iovec>,
    runs: Vec<Run>,
    headers: Box<[libc::mmsghdr; MESSAGES]>,
    control: Box<[SegmentControl; MESSAGES]>,
    copies: Box<[u8; COPIES]>,
}

/// Consecutive datagrams to one peer.
#[derive(Clone, Copy)]
struct Run {
    to: Option<SockAddr>,
    first: u32,
    buffers: u32,
    segment: u32,
    bytes: u32,
    datagrams: u32,
    /// A short datagram was added, which only the last one may be.
    closed: bool,
    tag: u32,
}

/// What became of the gathered messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub datagrams: u64,
    pub dropped: u64,
    /// Datagrams that left inside a segmented message.
    pub segmented: u64,
    /// The route refuses segmented messages.
    pub unsegmented: bool,
    /// The peer of a connected socket is not there, or another error that ends the connection.
    pub broken: Option<i32>,
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct SegmentControl {
    len: usize,
    level: i32,
    kind: i32,
    size: u16,
    pad: [u16; 3],
}

impl Default for Gather {
    fn default() -> Self {
        let control = SegmentControl { len: 18, level: libc::SOL_UDP, kind: libc::UDP_SEGMENT, size: 0, pad: [0; 3] };
        // SAFETY: all-zero is a valid mmsghdr (null pointers, zero lengths).
        let headers = Box::new(unsafe { std::mem::zeroed() });
        Self {
            iovecs: Vec::with_capacity(MESSAGES),
            runs: Vec::with_capacity(MESSAGES),
            headers,
            control: Box::new([control; MESSAGES]),
            copies: Box::new([0; COPIES]),
        }
    }
}

/// Sends one datagram to the socket's peer, or to `to`.
pub fn send_one(fd: RawFd, data: &[u8], to: Option<&SockAddr>) -> Sent {
    let mut sent = Sent::default();
    let (name, len) = to.map_or((std::ptr::null(), 0), |to| (to.as_ptr(), to.size()));
    loop {
        // SAFETY: live memory and a live address, or none, of the lengths given.
        let result = unsafe { libc::sendto(fd, data.as_ptr().cast(), data.len(), libc::MSG_DONTWAIT, name, len) };
        let Err(error) = check_len(result) else {
            sent.datagrams = 1;
            return sent;
        };
        if error.kind() != io::ErrorKind::Interrupted {
            sent.lose(1, &error, to.is_none());
            return sent;
        }
    }
}

impl Gather {
    pub const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether another buffer may be added before a flush.
    pub fn has_room(&self) -> bool {
        self.iovecs.len() < MESSAGES && self.runs.len() < MESSAGES
    }

    /// Adds the datagrams of one buffer (`segment` bytes each) for `to`, joined to the last run where they fit.
    ///
    /// # Safety
    /// `data` must stay where it is, unchanged, until [`Gather::flush`].
    pub unsafe fn push(&mut self, data: &[u8], segment: usize, to: Option<&SockAddr>, join: bool, tag: u32) {
        let datagrams = if data.len() <= segment { 1 } else { data.len().div_ceil(segment) };
        let iovec = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
        self.iovecs.push(iovec);
        if join
            && let Some(run) = self.runs.last_mut()
            && run.tag == tag
            && run.takes(data.len(), segment, datagrams)
        {
            run.add(data.len(), datagrams);
            return;
        }
        self.runs.push(Run {
            to: to.copied(),
            first: (self.iovecs.len() - 1) as u32,
            buffers: 1,
            segment: segment as u32,
            bytes: data.len() as u32,
            datagrams: datagrams as u32,
            closed: data.is_empty() || !data.len().is_multiple_of(segment),
            tag,
        });
    }

    /// Sends everything; errors of one message never hold back the rest.
    pub fn flush(&mut self, fd: RawFd) -> Sent {
        let sent = match self.runs[..] {
            [Run { datagrams: 1, first, ref to, .. }] => {
                let iovec = self.iovecs[first as usize];
                // SAFETY: the bytes that `push` was promised stay alive.
                let data = unsafe { std::slice::from_raw_parts(iovec.iov_base.cast(), iovec.iov_len) };
                send_one(fd, data, to.as_ref())
            }
            _ => self.flush_all(fd),
        };
        self.iovecs.clear();
        self.runs.clear();
        sent
    }

    fn flush_all(&mut self, fd: RawFd) -> Sent {
        let mut sent = Sent::default();
        self.prepare();
        let mut next = 0;
        while next < self.runs.len() {
            let left = &mut self.headers[next..self.runs.len()];
            // SAFETY: the headers point at iovecs, control, copies and runs of `self`, unchanged since `prepare`; the
            // data is alive by the contract of `push`.
            let result = unsafe {
                if let [one] = left {
                    check_len(libc::sendmsg(fd, &raw const one.msg_hdr, libc::MSG_DONTWAIT)).map(|_| 1)
                } else {
                    check(libc::sendmmsg(fd, left.as_mut_ptr(), left.len() as u32, libc::MSG_DONTWAIT))
                }
            };
            match result {
                Ok(n) => {
                    for run in &self.runs[next..next + n as usize] {
                        sent.count(run);
                    }
                    next += n as usize;
                }
                Err(error) => next = self.after_error(fd, next, &error, &mut sent),
            }
        }
        sent
    }

    fn prepare(&mut self) {
        self.copy_small();
        for (i, run) in self.runs.iter_mut().enumerate() {
            let header = &mut self.headers[i].msg_hdr;
            header.msg_iov = &raw mut self.iovecs[run.first as usize];
            header.msg_iovlen = run.buffers as usize;
            if let Some(to) = &mut run.to {
                header.msg_name = to.as_mut_ptr().cast();
                header.msg_namelen = to.size();
            } else {
                header.msg_name = std::ptr::null_mut();
                header.msg_namelen = 0;
            }
            if run.datagrams > 1 {
                self.control[i].size = run.segment as u16;
                header.msg_control = (&raw mut self.control[i]).cast();
                header.msg_controllen = size_of::<SegmentControl>();
            } else {
                header.msg_control = std::ptr::null_mut();
                header.msg_controllen = 0;
            }
        }
    }

    /// Lays the datagrams of runs that have many small ones side by side.
    fn copy_small(&mut self) {
        let mut used = 0;
        for run in self.runs.iter_mut().filter(|run| run.buffers > 1 && run.segment <= SMALL) {
            let end = used + run.bytes as usize;
            let Some(room) = self.copies.get_mut(used..end) else { return };
            let parts = &mut self.iovecs[run.first as usize..(run.first + run.buffers) as usize];
            let mut at = 0;
            for part in &*parts {
                // SAFETY: the part is alive by the contract of `push` and no part of `copies`; the parts' lengths
                // add up to `run.bytes`, which is the room's.
                unsafe { std::ptr::copy_nonoverlapping(part.iov_base.cast(), room[at..].as_mut_ptr(), part.iov_len) };
                at += part.iov_len;
            }
            parts[0] = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: at };
            run.buffers = 1;
            used = end;
        }
    }

    /// Decides on the run that failed; returns the one to go on with.
    fn after_error(&mut self, fd: RawFd, at: usize, error: &io::Error, sent: &mut Sent) -> usize {
        let run = self.runs[at];
        match error.raw_os_error().unwrap_or(0) {
            libc::EINTR => return at,
            libc::EIO | libc::EINVAL | libc::EMSGSIZE if run.datagrams > 1 => {
                sent.unsegmented = true;
                self.send_singly(fd, &run, sent);
            }
            libc::EAGAIN => {
                // The socket's buffer is full: the others would fail alike.
                sent.dropped += self.runs[at..].iter().map(|run| u64::from(run.datagrams)).sum::<u64>();
                return self.runs.len();
            }
            _ => sent.lose(u64::from(run.datagrams), error, run.to.is_none()),
        }
        at + 1
    }

    fn send_singly(&self, fd: RawFd, run: &Run, sent: &mut Sent) {
        let (name, len) = run.to.as_ref().map_or((std::ptr::null(), 0), |to| (to.as_ptr(), to.size()));
        let step = (run.segment as usize).max(1);
        for iovec in &self.iovecs[run.first as usize..(run.first + run.buffers) as usize] {
            let mut offset = 0;
            while offset < iovec.iov_len {
                let size = step.min(iovec.iov_len - offset);
                // SAFETY: inside the buffer that `push` was promised stays alive; the name is the run's own.
                let result = unsafe {
                    let data = iovec.iov_base.cast::<u8>().add(offset).cast();
                    libc::sendto(fd, data, size, libc::MSG_DONTWAIT, name, len)
                };
                if check_len(result).is_ok() {
                    sent.datagrams += 1;
                } else {
                    sent.dropped += 1;
                }
                offset += size;
            }
        }
    }
}

impl Run {
    const fn takes(&self, bytes: usize, segment: usize, datagrams: usize) -> bool {
        !self.closed
            && bytes > 0
            && self.datagrams as usize + datagrams <= SEGMENTS
            && self.bytes as usize + bytes <= BYTES
            && (segment == self.segment as usize || (datagrams == 1 && bytes < self.segment as usize))
    }

    const fn add(&mut self, bytes: usize, datagrams: usize) {
        self.buffers += 1;
        self.bytes += bytes as u32;
        self.datagrams += datagrams as u32;
        self.closed = !bytes.is_multiple_of(self.segment as usize);
    }
}

impl Sent {
    /// Counts datagrams that did not leave; an error of a connected socket may mean that the peer is gone.
    fn lose(&mut self, datagrams: u64, error: &io::Error, connected: bool) {
        const GONE: [i32; 5] = [libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::ENETUNREACH, libc::EPIPE, libc::ENOTCONN];
        self.dropped += datagrams;
        if connected && let Some(code) = error.raw_os_error().filter(|code| GONE.contains(code)) {
            self.broken = Some(code);
        }
    }

    const fn count(&mut self, run: &Run) {
        self.datagrams += run.datagrams as u64;
        if run.datagrams > 1 {
            self.segmented += run.datagrams as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    fn pair() -> (UdpSocket, UdpSocket) {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        b.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        (a, b)
    }

    fn lens(b: &UdpSocket, n: usize) -> Vec<usize> {
        let mut buf = vec![0; 65_536];
        (0..n).map(|_| b.recv(&mut buf).unwrap()).collect()
    }

    #[test]
    fn equal_sizes_leave_as_one_message_and_the_last_may_be_shorter() {
        let (a, b) = pair();
        let data = vec![7; 4096];
        let mut gather = Gather::default();
        for len in [100, 100, 100, 40, 100, 0, 100] {
            // SAFETY: `data` outlives the flush.
            unsafe { gather.push(&data[..len], len, None, true, 0) };
        }
        assert_eq!(gather.runs.iter().map(|run| run.datagrams).collect::<Vec<_>>(), [4, 1, 1, 1]);
        let sent = gather.flush(a.as_raw_fd());
        assert_eq!((sent.datagrams, sent.segmented, sent.dropped), (7, 4, 0));
        assert_eq!(lens(&b, 7), [100, 100, 100, 40, 100, 0, 100]);
    }

    #[test]
    fn a_refused_segmented_message_is_sent_singly() {
        let (a, b) = pair();
        let data = vec![7; 4096];
        let mut gather = Gather::default();
        for _ in 0..3 {
            // SAFETY: `data` outlives the flush.
            unsafe { gather.push(&data[..64], 64, None, true, 0) };
        }
        let run = gather.runs[0];
        gather.prepare();
        let mut sent = Sent::default();
        let next = gather.after_error(a.as_raw_fd(), 0, &io::Error::from_raw_os_error(libc::EIO), &mut sent);
        assert_eq!((next, run.datagrams), (1, 3));
        assert_eq!((sent.datagrams, sent.unsegmented), (3, true));
        assert_eq!(lens(&b, 3), [64, 64, 64]);
    }

    #[test]
    fn a_peer_that_is_gone_breaks_the_connection_not_the_batch() {
        let (a, b) = pair();
        drop(b);
        let data = [1; 8];
        let mut gather = Gather::default();
        let mut broken = None;
        for _ in 0..3 {
            // SAFETY: `data` outlives the flush.
            unsafe { gather.push(&data, 8, None, false, 0) };
            broken = broken.or(gather.flush(a.as_raw_fd()).broken);
        }
        assert_eq!(broken, Some(libc::ECONNREFUSED));
    }

    #[test]
    fn a_send_without_room_costs_its_own_datagrams_and_a_full_socket_all_that_are_left() {
        let data = [1; 8];
        for (code, next, dropped) in
            [(libc::ENOBUFS, 2, 1), (libc::ENOMEM, 2, 1), (libc::EAGAIN, 4, 3), (libc::EINTR, 1, 0)]
        {
            let mut gather = Gather::default();
            for _ in 0..4 {
                // SAFETY: `data` outlives the runs, which are never sent.
                unsafe { gather.push(&data, 8, None, false, 0) };
            }
            let mut sent = Sent::default();
            let went_on = gather.after_error(-1, 1, &io::Error::from_raw_os_error(code), &mut sent);
            assert_eq!((went_on, sent.dropped, sent.broken), (next, dropped, None), "errno {code}");
        }
    }
}
