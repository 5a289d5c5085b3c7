//! Unix-domain sockets of all three types.

use super::call::borrow;
use super::socket::{connect_error, listen};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, recvfrom,
    sendto, socket_with,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

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

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    if path.as_os_str().is_empty() {
        return Err(Errno::INVAL.into());
    }
    Ok(SocketAddrUnix::new(path)?)
}

fn new_unix(kind: UnixKind) -> io::Result<OwnedFd> {
    let kind = match kind {
        UnixKind::Stream => SocketType::STREAM,
        UnixKind::SeqPacket => SocketType::SEQPACKET,
        UnixKind::Datagram => SocketType::DGRAM,
    };
    Ok(socket_with(AddressFamily::UNIX, kind, FLAGS, None)?)
}

/// A Unix socket that listens at `path`; a stale socket file is removed first.
pub fn unix_listener(path: &Path, kind: UnixKind, mode: Option<u32>) -> io::Result<OwnedFd> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    if let Ok(found) = std::fs::symlink_metadata(path)
        && found.file_type().is_socket()
        && !answers(path)
    {
        std::fs::remove_file(path)?;
    }
    let socket = new_unix(kind)?;
    bind(&socket, &address(path)?)?;
    if let Some(mode) = mode {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    if kind != UnixKind::Datagram {
        listen(socket.as_raw_fd())?;
    }
    Ok(socket)
}

/// Whether a socket of any type listens at `path`.
fn answers(path: &Path) -> bool {
    [UnixKind::Stream, UnixKind::SeqPacket, UnixKind::Datagram]
        .into_iter()
        .any(|kind| unix_connected(path, kind).is_ok())
}

/// A Unix socket connected to `path`; Unix connects at once or not at all.
pub fn unix_connected(path: &Path, kind: UnixKind) -> io::Result<OwnedFd> {
    let socket = new_unix(kind)?;
    let to = address(path)?;
    if kind == UnixKind::Datagram {
        // a name of the kernel's choice, so that replies reach the socket
        bind(&socket, &SocketAddrUnix::new_unnamed())?;
    }
    connect(&socket, &to)?;
    match connect_error(socket.as_raw_fd()) {
        None => Ok(socket),
        Some(error) => Err(error),
    }
}

/// Takes one connection off a listening Unix socket.
pub fn accept_unix(fd: RawFd) -> io::Result<OwnedFd> {
    Ok(accept_with(borrow(fd), FLAGS)?)
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

/// A peer that sends datagrams: a path, or a name outside the file system.
#[derive(Clone, Debug)]
pub struct UnixPeer {
    address: SocketAddrUnix,
    name: Box<[u8]>,
}

impl UnixPeer {
    fn new(address: SocketAddrUnix) -> Self {
        let name = match (address.path_bytes(), address.abstract_name()) {
            (Some(path), _) => path.into(),
            (None, Some(name)) => [&[0], name].concat().into(),
            (None, None) => Box::default(),
        };
        Self { address, name }
    }

    /// The name; one outside the file system begins with a zero byte.
    pub fn bytes(&self) -> &[u8] {
        &self.name
    }

    /// Peers without a name cannot be answered.
    pub fn is_unnamed(&self) -> bool {
        self.name.is_empty()
    }
}

/// Reads one datagram and its sender.
pub fn receive_from_unix(fd: RawFd, into: &mut [u8]) -> io::Result<(usize, UnixPeer)> {
    let (len, _, from) = recvfrom(borrow(fd), into, RecvFlags::DONTWAIT)?;
    let from = from.and_then(|from| SocketAddrUnix::try_from(from).ok());
    Ok((len, UnixPeer::new(from.unwrap_or_else(SocketAddrUnix::new_unnamed))))
}

/// Sends one datagram to a peer that has sent one.
pub fn send_to_unix(fd: RawFd, data: &[u8], to: &UnixPeer) -> io::Result<usize> {
    Ok(sendto(borrow(fd), data, SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to.address)?)
}
