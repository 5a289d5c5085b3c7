//! Unix-domain sockets of all three types.

use super::call::{check, check_len};
use super::socket::{connect_error, listen};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The type of a Unix-domain socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnixKind {
    Stream,
    SeqPacket,
    Datagram,
}

/// Who is at the other end of a connected Unix socket.
#[derive(Clone, Copy, Debug)]
pub struct PeerCredentials {
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Clone, Copy)]
struct UnixAddr {
    raw: libc::sockaddr_un,
    len: libc::socklen_t,
}

const PATH_AT: usize = std::mem::offset_of!(libc::sockaddr_un, sun_path);

impl UnixAddr {
    const EMPTY: Self = Self {
        raw: libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] },
        len: size_of::<libc::sockaddr_un>() as libc::socklen_t,
    };

    fn new(path: &Path) -> io::Result<Self> {
        let bytes = path.as_os_str().as_bytes();
        let mut addr = Self::EMPTY;
        if bytes.is_empty() || bytes.len() >= addr.raw.sun_path.len() || bytes.contains(&0) {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        for (to, from) in addr.raw.sun_path.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        addr.len = (PATH_AT + bytes.len() + 1) as libc::socklen_t;
        Ok(addr)
    }

    fn path(&self) -> Option<PathBuf> {
        let used = (self.len as usize).saturating_sub(PATH_AT).min(self.raw.sun_path.len());
        let bytes: Vec<u8> = self.raw.sun_path[..used].iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
        (!bytes.is_empty()).then(|| PathBuf::from(std::ffi::OsStr::from_bytes(&bytes)))
    }

    const fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.raw).cast()
    }
}

fn new_unix(kind: UnixKind) -> io::Result<OwnedFd> {
    let kind = match kind {
        UnixKind::Stream => libc::SOCK_STREAM,
        UnixKind::SeqPacket => libc::SOCK_SEQPACKET,
        UnixKind::Datagram => libc::SOCK_DGRAM,
    };
    let flags = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointer is passed; a non-negative result is a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_UNIX, flags, 0))?) })
}

/// A Unix socket that listens at `path`; a file that nobody answers on is removed first.
pub fn unix_listener(path: &Path, kind: UnixKind, mode: Option<u32>) -> io::Result<OwnedFd> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    if let Ok(found) = std::fs::symlink_metadata(path)
        && found.file_type().is_socket()
        && !answers(path)
    {
        std::fs::remove_file(path)?;
    }
    let socket = new_unix(kind)?;
    let addr = UnixAddr::new(path)?;
    // SAFETY: a live address of the length given.
    check(unsafe { libc::bind(socket.as_raw_fd(), addr.as_ptr(), addr.len) })?;
    if let Some(mode) = mode {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    if kind != UnixKind::Datagram {
        listen(socket.as_raw_fd())?;
    }
    Ok(socket)
}

/// Whether somebody listens at `path`, with whatever type.
fn answers(path: &Path) -> bool {
    [UnixKind::Stream, UnixKind::SeqPacket, UnixKind::Datagram]
        .into_iter()
        .any(|kind| unix_connected(path, kind).is_ok())
}

/// A Unix socket connected to `path`; Unix connects at once or not at all.
pub fn unix_connected(path: &Path, kind: UnixKind) -> io::Result<OwnedFd> {
    let socket = new_unix(kind)?;
    let addr = UnixAddr::new(path)?;
    if kind == UnixKind::Datagram {
        autobind(socket.as_raw_fd())?;
    }
    // SAFETY: a live address of the length given.
    check(unsafe { libc::connect(socket.as_raw_fd(), addr.as_ptr(), addr.len) })?;
    match connect_error(socket.as_raw_fd()) {
        None => Ok(socket),
        Some(error) => Err(error),
    }
}

/// Gives a datagram socket a name of the kernel's choice, so that answers find it.
fn autobind(fd: RawFd) -> io::Result<()> {
    let addr = UnixAddr::EMPTY;
    let family_only = size_of::<libc::sa_family_t>() as libc::socklen_t;
    // SAFETY: a live address, of which only the family is read.
    check(unsafe { libc::bind(fd, addr.as_ptr(), family_only) }).map(drop)
}

/// Takes one connection off a listening Unix socket.
pub fn accept_unix(fd: RawFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: null asks for no address; a non-negative result is a fresh descriptor.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), flags))?)) }
}

/// Process, user and group of the peer at the time it connected.
pub fn peer_credentials(fd: RawFd) -> Option<PeerCredentials> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to live locals of the sizes given.
    let got =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast(), &raw mut len) };
    (got == 0).then_some(PeerCredentials { pid: found.pid, uid: found.uid, gid: found.gid })
}

/// The name of a peer that sends datagrams: a path, or a name outside the file system.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct UnixPeer(Box<[u8]>);

impl UnixPeer {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Peers without a name cannot be answered.
    pub fn is_unnamed(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads one datagram and who sent it.
pub fn receive_from_unix(fd: RawFd, into: &mut [u8]) -> io::Result<(usize, UnixPeer)> {
    let mut from = UnixAddr::EMPTY;
    let room = into.len();
    // SAFETY: live memory and room for an address, of the lengths given.
    let n = check_len(unsafe {
        let data = into.as_mut_ptr().cast();
        libc::recvfrom(fd, data, room, libc::MSG_DONTWAIT, (&raw mut from.raw).cast(), &raw mut from.len)
    })?;
    let used = (from.len as usize).saturating_sub(PATH_AT).min(from.raw.sun_path.len());
    Ok((n, UnixPeer(from.raw.sun_path[..used].iter().map(|&c| c as u8).collect())))
}

/// Sends one datagram to a peer that has sent one.
pub fn send_to_unix(fd: RawFd, data: &[u8], to: &UnixPeer) -> io::Result<usize> {
    let mut addr = UnixAddr::EMPTY;
    for (room, byte) in addr.raw.sun_path.iter_mut().zip(&to.0) {
        *room = *byte as libc::c_char;
    }
    addr.len = (PATH_AT + to.0.len()) as libc::socklen_t;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: live memory and a live address of the lengths given.
    check_len(unsafe { libc::sendto(fd, data.as_ptr().cast(), data.len(), flags, addr.as_ptr(), addr.len) })
}

/// The path a Unix socket is bound to.
pub fn unix_path(fd: RawFd) -> Option<PathBuf> {
    let mut at = UnixAddr::EMPTY;
    // SAFETY: room for an address of the length given.
    let got = unsafe { libc::getsockname(fd, (&raw mut at.raw).cast(), &raw mut at.len) };
    (got == 0).then(|| at.path()).flatten()
}
