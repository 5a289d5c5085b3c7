//! Dropping root privileges.

use super::call::check;
use std::io;

/// Who a process runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub user: u32,
    pub group: u32,
}

/// The capability to open ports below 1024.
const NET_BIND_SERVICE: u32 = 1 << 10;

/// `_LINUX_CAPABILITY_VERSION_3`: 64 capabilities in two words.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    thread: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Capabilities {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Whether the process may do everything.
pub fn is_root() -> bool {
    // SAFETY: no pointer is passed, and the call cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Switches to another user permanently: without supplementary groups, and without capabilities except to open low ports,
/// if the process has that.
///
/// Rights belong to threads, and later ones inherit them, so it is refused once there is more than one.
pub fn become_user(identity: Identity) -> io::Result<()> {
    if !std::fs::read_to_string("/proc/self/status")?.lines().any(|line| line == "Threads:\t1") {
        return Err(io::Error::other("other threads would keep their privileges"));
    }
    let Identity { user, group } = identity;
    // SAFETY: no pointers are passed but a list of no groups.
    unsafe {
        check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0))?;
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(group, group, group))?;
        check(libc::setresuid(user, user, user))?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
    }
    keep_low_ports()
}

fn keep_low_ports() -> io::Result<()> {
    let mut header = Header { version: VERSION, thread: 0 };
    let mut words = [Capabilities::default(); 2];
    // SAFETY: a live header, and the two words of capabilities of its version.
    check_call(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) })?;
    let kept = words[0].permitted & NET_BIND_SERVICE;
    let words = [Capabilities { effective: kept, permitted: kept, inheritable: 0 }, Capabilities::default()];
    // SAFETY: as above; the call only reads.
    check_call(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, words.as_ptr()) })
}

fn check_call(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
