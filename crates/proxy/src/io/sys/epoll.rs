//! Readiness: epoll and the eventfd that wakes a worker.

use super::call::borrow;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A set of descriptors watched by one worker.
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<Event>,
}

/// One descriptor that is ready, by the token it was added with.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    pub token: u64,
    pub readable: bool,
    pub writable: bool,
    pub failed: bool,
}

pub const READ: u32 = EventFlags::IN.bits();
pub const WRITE: u32 = EventFlags::OUT.bits();
/// Neither: a failure is reported all the same, but not again and again until it is handled.
pub const FAILURES_ONCE: u32 = EventFlags::ET.bits();

impl Epoll {
    pub fn new(capacity: usize) -> io::Result<Self> {
        Ok(Self { fd: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(capacity) })
    }

    pub fn add(&self, fd: RawFd, token: u64, interest: u32) -> io::Result<()> {
        Ok(epoll::add(&self.fd, borrow(fd), EventData::new_u64(token), EventFlags::from_bits_retain(interest))?)
    }

    pub fn change(&self, fd: RawFd, token: u64, interest: u32) -> io::Result<()> {
        Ok(epoll::modify(&self.fd, borrow(fd), EventData::new_u64(token), EventFlags::from_bits_retain(interest))?)
    }

    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        Ok(epoll::delete(&self.fd, borrow(fd))?)
    }

    /// Waits for readiness, at most `timeout_ms` (negative: for ever); returns how many are ready.
    pub fn wait(&mut self, timeout_ms: i32) -> io::Result<usize> {
        let limit = u32::try_from(timeout_ms)
            .ok()
            .map(|ms| Timespec { tv_sec: i64::from(ms / 1000), tv_nsec: i64::from(ms % 1000 * 1_000_000) });
        self.events.clear();
        match epoll::wait(&self.fd, spare_capacity(&mut self.events), limit.as_ref()) {
            Ok(ready) => Ok(ready),
            Err(rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// The `i`-th descriptor of the last [`Epoll::wait`].
    pub fn ready(&self, i: usize) -> Ready {
        let Event { flags, data } = self.events[i];
        let failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        Ready {
            token: data.u64(),
            readable: flags.contains(EventFlags::IN) || failed,
            writable: flags.contains(EventFlags::OUT),
            failed,
        }
    }
}

/// Wakes one worker out of its wait.
pub struct WakeUp(OwnedFd);

impl WakeUp {
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub fn wake(&self) {
        // EAGAIN: the counter is full, so a wake-up is pending already
        rustix::io::write(&self.0, &1_u64.to_ne_bytes()).ok();
    }

    pub fn clear(&self) {
        // EAGAIN: there was nothing to clear
        rustix::io::read(&self.0, &mut [0; 8]).ok();
    }
}

impl AsRawFd for WakeUp {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
