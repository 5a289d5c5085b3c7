//! Receiving many datagrams with one call.

use super::addr::SockAddr;
use super::call::check;
use std::io;
use std::os::fd::RawFd;

/// Datagrams of one call.
pub const BATCH: usize = 64;

/// Room for one datagram, or for 64 KiB of coalesced ones: a smaller buffer would cut them.
const ROOM: usize = 65_536;

/// Distance of two buffers. Not a power of two: 64 equal offsets would share one set of the cache.
const STRIDE: usize = ROOM + 3 * 64;

/// Room for the control messages we ask for: segment size, and traffic class where it is wanted.
const CONTROL: usize = 48;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// Buffers and headers for [`BATCH`] datagrams.
pub struct RecvBatch {
    buffer: Memory,
    names: Box<[SockAddr; BATCH]>,
    control: Box<[Control; BATCH]>,
    /// One per buffer, never changed: the headers point at them.
    _iovecs: Box<[libc::iovec; BATCH]>,
    headers: Box<[libc::mmsghdr; BATCH]>,
    named: bool,
}

/// One buffer's content: a datagram, or several of `segment` bytes of which the last may be shorter.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    pub data: &'a [u8],
    pub segment: usize,
}

impl Received<'_> {
    /// Number of datagrams in the buffer; an empty datagram is one.
    pub const fn datagrams(&self) -> usize {
        if self.data.len() <= self.segment { 1 } else { self.data.len().div_ceil(self.segment) }
    }

    /// The datagrams one by one.
    pub fn split(&self) -> impl Iterator<Item = &[u8]> {
        let step = self.segment.max(1);
        (0..self.datagrams()).map(move |i| &self.data[i * step..self.data.len().min((i + 1) * step)])
    }
}

impl RecvBatch {
    /// `named`: whether senders' addresses are wanted, as on sockets that are not connected.
    pub fn new(named: bool) -> io::Result<Self> {
        let buffer = Memory::new(BATCH * STRIDE)?;
        let mut names = Box::new([SockAddr::EMPTY; BATCH]);
        let mut control = Box::new([Control([0; CONTROL]); BATCH]);
        let mut iovecs = Box::new([libc::iovec { iov_base: std::ptr::null_mut(), iov_len: ROOM }; BATCH]);
        // SAFETY: all-zero is a valid mmsghdr (null pointers, zero lengths).
        let mut headers: Box<[libc::mmsghdr; BATCH]> = Box::new(unsafe { std::mem::zeroed() });
        for i in 0..BATCH {
            iovecs[i].iov_base = buffer.at(i * STRIDE).cast();
            let header = &mut headers[i].msg_hdr;
            header.msg_iov = &raw mut iovecs[i];
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut control[i]).cast();
            header.msg_controllen = CONTROL;
            if named {
                header.msg_name = names[i].as_mut_ptr().cast();
                header.msg_namelen = SockAddr::ROOM;
            }
        }
        Ok(Self { buffer, names, control, _iovecs: iovecs, headers, named })
    }

    /// Receives into the buffers from `start` on and returns how many it filled.
    pub fn receive(&mut self, fd: RawFd, start: usize) -> io::Result<usize> {
        let headers = &mut self.headers[start..];
        let room = headers.len() as libc::c_uint;
        // SAFETY: every header points at its own name, control room and buffer, all owned by `self`, boxed or
        // mapped, and so at fixed addresses for as long as `self` lives.
        let got = unsafe { libc::recvmmsg(fd, headers.as_mut_ptr(), room, libc::MSG_DONTWAIT, std::ptr::null_mut()) };
        Ok(check(got)? as usize)
    }

    /// What buffer `i` holds. Also makes the header ready for its next use, so it is asked once.
    pub fn take(&mut self, i: usize) -> Received<'_> {
        let len = (self.headers[i].msg_len as usize).min(ROOM);
        let used = self.headers[i].msg_hdr.msg_controllen;
        let segment = if used == 0 { None } else { segment_size(&self.control[i].0[..used.min(CONTROL)]) };
        let header = &mut self.headers[i].msg_hdr;
        header.msg_controllen = CONTROL;
        if self.named {
            header.msg_namelen = SockAddr::ROOM;
        }
        Received { data: self.buffer.slice(i * STRIDE, len), segment: segment.unwrap_or(len) }
    }

    /// The bytes of buffer `i` once more.
    pub fn data(&self, i: usize) -> &[u8] {
        self.buffer.slice(i * STRIDE, (self.headers[i].msg_len as usize).min(ROOM))
    }

    /// The DSCP of buffer `i`, if the socket reports it.
    pub fn dscp(&self, i: usize) -> Option<u8> {
        // leftovers of older messages come after those of this datagram, and the first one counts
        traffic_class(&self.control[i].0)
    }

    /// Who sent buffer `i`.
    pub const fn from(&self, i: usize) -> &SockAddr {
        &self.names[i]
    }
}

/// The segment size of a coalesced buffer.
fn segment_size(bytes: &[u8]) -> Option<usize> {
    let mut size = None;
    walk_control(bytes, |level, kind, value| {
        if (level, kind) == (libc::SOL_UDP, libc::UDP_GRO) && value > 0 {
            size = Some(value as usize);
        }
    });
    size
}

/// The upper six bits of the first traffic class among control messages.
pub(super) fn traffic_class(bytes: &[u8]) -> Option<u8> {
    let mut class = None;
    walk_control(bytes, |level, kind, value| {
        if matches!((level, kind), (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)) {
            // One byte for IPv4, an int for IPv6: either way the first byte in memory order of a small number.
            class.get_or_insert(value.to_ne_bytes()[0] >> 2);
        }
    });
    class
}

/// Walks control messages: `cmsghdr` (length, level, type), then data, aligned to eight bytes.
#[inline]
fn walk_control(mut bytes: &[u8], mut see: impl FnMut(i32, i32, u32)) {
    const HEAD: usize = size_of::<libc::cmsghdr>();
    while bytes.len() >= HEAD + 4 {
        let len = usize::from_ne_bytes(bytes[..8].try_into().expect("eight bytes"));
        let level = i32::from_ne_bytes(bytes[8..12].try_into().expect("four bytes"));
        let kind = i32::from_ne_bytes(bytes[12..16].try_into().expect("four bytes"));
        let value = u32::from_ne_bytes(bytes[HEAD..HEAD + 4].try_into().expect("four bytes"));
        see(level, kind, value);
        let step = len.clamp(HEAD, bytes.len()).next_multiple_of(8);
        if step >= bytes.len() {
            return;
        }
        bytes = &bytes[step..];
    }
}

/// Memory from the kernel that costs nothing until it is touched.
struct Memory {
    base: *mut u8,
    len: usize,
}

impl Memory {
    fn new(len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), len })
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len, "offset inside the mapping");
        // SAFETY: the offset is inside the mapping.
        unsafe { self.base.add(offset) }
    }

    fn slice(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset + len <= self.len, "slice inside the mapping");
        // SAFETY: inside the mapping, zero-filled or written by the kernel; the kernel writes only during
        // `receive`, which borrows the batch mutably, so no slice is alive then.
        unsafe { std::slice::from_raw_parts(self.base.add(offset), len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and no slice outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coalesced_buffer_splits_at_its_segment_size() {
        let lens = |len: usize, segment| {
            let data = vec![0; len];
            Received { data: &data, segment }.split().map(<[u8]>::len).collect::<Vec<_>>()
        };
        assert_eq!(lens(10, 4), [4, 4, 2]);
        assert_eq!(lens(8, 4), [4, 4]);
        assert_eq!(lens(3, 3), [3]);
        assert_eq!(lens(0, 0), [0]);
    }

    #[test]
    fn only_a_whole_message_of_the_right_kind_tells_a_segment_size() {
        let message = |level: i32, kind: i32, value: i32| {
            let mut bytes = 20usize.to_ne_bytes().to_vec();
            bytes.extend([level, kind, value, 0].iter().flat_map(|number| number.to_ne_bytes()));
            bytes
        };
        let good = message(libc::SOL_UDP, libc::UDP_GRO, 1200);
        assert_eq!(segment_size(&good), Some(1200));
        assert_eq!(segment_size(&good[..18]), None);
        assert_eq!(segment_size(&message(libc::SOL_UDP, libc::UDP_GRO, 0)), None);
        assert_eq!(segment_size(&message(libc::SOL_SOCKET, libc::SO_TIMESTAMP, 7)), None);
        assert_eq!(segment_size(&[255; CONTROL]), None);
    }
}
