//! Moving bytes from socket to socket inside the kernel.

use super::call::{check, check_len};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A pipe that holds bytes on their way between two sockets.
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
    size: usize,
}

impl Pipe {
    /// A pipe of about `size` bytes; a refused size leaves the kernel's default.
    pub fn new(size: usize) -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for the two descriptors, which nobody else owns afterwards.
        let (read, write) = unsafe {
            check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK))?;
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        // SAFETY: no pointer is passed.
        let got = unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, size as libc::c_int) };
        let size = if got > 0 { got as usize } else { 65_536 };
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
        let n = splice(from, self.write.as_raw_fd(), self.size)?;
        self.held += n;
        Ok(n)
    }

    /// Puts bytes into `to`.
    pub fn drain(&mut self, to: RawFd) -> io::Result<usize> {
        let n = splice(self.read.as_raw_fd(), to, self.held)?;
        self.held -= n.min(self.held);
        Ok(n)
    }
}

fn splice(from: RawFd, to: RawFd, len: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE;
    // SAFETY: null offsets are what pipes and sockets require; no memory of ours is touched.
    check_len(unsafe { libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), len, flags) })
}
