//! Results and options of system calls.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// Converts the kernel's `-1` to the current error.
pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for calls that return a length.
pub(super) fn check_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sets one integer socket option.
pub fn set_option(fd: i32, level: i32, name: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the option value is a live i32 and `len` is its size.
    check(unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) }).map(drop)
}

/// Reads one integer socket option.
pub fn get_option(fd: i32, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: both pointers are to live locals of the sizes given.
    check(unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) })?;
    Ok(value)
}

/// A descriptor for the time of one call.
pub(super) const fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: callers of this folder pass descriptors of sockets that they own, and keep them open during the call; a
    // wrong number would fail the call with EBADF.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
