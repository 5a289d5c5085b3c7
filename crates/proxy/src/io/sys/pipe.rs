//! Moving bytes from socket to socket inside the kernel.

use super::call::borrow;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A pipe that holds bytes on their way between two sockets.
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
    size: usize,
}

const FLAGS: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);

impl Pipe {
    /// A pipe of about `size` bytes; if the size is refused, it has the kernel's default.
    pub fn new(size: usize) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let size = fcntl_setpipe_size(&write, size).unwrap_or(65_536);
        Ok(Self { read, write, held: 0, size })
    }

    /// The higher of its descriptors.
    pub fn last_descriptor(&self) -> RawFd {
        self.read.as_raw_fd().max(self.write.as_raw_fd())
    }

    /// Bytes inside.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Takes bytes out of `from`; 0 is its end.
    pub fn fill(&mut self, from: RawFd) -> io::Result<usize> {
        let n = splice(borrow(from), None, &self.write, None, self.size, FLAGS)?;
        self.held += n;
        Ok(n)
    }

    /// Puts bytes into `to`.
    pub fn drain(&mut self, to: RawFd) -> io::Result<usize> {
        let n = splice(&self.read, None, borrow(to), None, self.held, FLAGS)?;
        self.held -= n.min(self.held);
        Ok(n)
    }
}
