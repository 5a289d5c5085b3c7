//! Readiness: epoll and the eventfd that wakes a worker.

use super::call::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A set of descriptors watched by one worker.
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

/// One descriptor that is ready, by the token it was added with.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    pub token: u64,
    pub readable: bool,
    pub writable: bool,
    pub failed: bool,
}

pub const READ: u32 = libc::EPOLLIN as u32;
pub const WRITE: u32 = libc::EPOLLOUT as u32;

impl Epoll {
    pub fn new(capacity: usize) -> io::Result<Self> {
        // SAFETY: the call takes no pointer; a non-negative result is a descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        Ok(Self { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; capacity] })
    }

    pub fn add(&self, fd: RawFd, token: u64, interest: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// Adds a descriptor that several workers watch: one of them is woken per event.
    pub fn add_shared(&self, fd: RawFd, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, READ | libc::EPOLLEXCLUSIVE as u32)
    }

    pub fn change(&self, fd: RawFd, token: u64, interest: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// Waits for readiness, at most `timeout_ms` (negative: for ever); returns how many are ready.
    pub fn wait(&mut self, timeout_ms: i32) -> io::Result<usize> {
        let room = self.events.len() as libc::c_int;
        // SAFETY: `events` is a live array of `room` entries.
        let got = unsafe { libc::epoll_wait(self.fd.as_raw_fd(), self.events.as_mut_ptr(), room, timeout_ms) };
        match check(got) {
            Ok(n) => Ok(n as usize),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// The `i`-th descriptor of the last [`Epoll::wait`].
    pub fn ready(&self, i: usize) -> Ready {
        let libc::epoll_event { events, u64: token } = self.events[i];
        let has = |flag: libc::c_int| events & flag as u32 != 0;
        let failed = has(libc::EPOLLERR) || has(libc::EPOLLHUP);
        Ready { token, readable: has(libc::EPOLLIN) || failed, writable: has(libc::EPOLLOUT), failed }
    }

    fn control(&self, op: libc::c_int, fd: RawFd, token: u64, interest: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest, u64: token };
        // SAFETY: `event` is live during the call; the kernel copies it.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), op, fd, &raw mut event) }).map(drop)
    }
}

/// Wakes one worker out of its wait.
pub struct WakeUp(OwnedFd);

impl WakeUp {
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointer is passed; a non-negative result is a fresh descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?) };
        Ok(Self(fd))
    }

    pub fn wake(&self) {
        let one = 1u64;
        // SAFETY: eight live bytes. A full counter (EAGAIN) means a wake-up is pending already.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    pub fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: eight live bytes to write into; EAGAIN means there was nothing to clear.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsRawFd for WakeUp {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
