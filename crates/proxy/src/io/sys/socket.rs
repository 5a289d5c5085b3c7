//! Internet sockets: made, bound, connected and set up without blocking.

use super::addr::{SockAddr, plain};
use super::call::{borrow, check, check_len, get_option, set_option};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType, acceptfrom_with,
    getpeername, getsockname, recv, sendmsg, shutdown, socket_with,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Socket buffers asked for; the kernel grants what `net.core.{r,w}mem_max` allows.
const BUFFER: i32 = 4 << 20;

const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// Whether a socket's set-up may touch its buffers; benchmarks compare with the system's default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffers {
    Large,
    System,
}

/// Which other sockets may be bound to the same address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    None,
    /// None when it is bound; afterwards those of [`Self::Joins`]. So a port of another process is refused, even one that
    /// shares its port itself.
    First,
    /// Those of the same user that share too.
    Joins,
}

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

fn new_socket(addr: &SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(socket_with(family, kind, FLAGS, None)?)
}

/// Binds a listening socket.
fn bind_shared(fd: RawFd, addr: SocketAddr, sharing: Sharing) -> io::Result<()> {
    let share = || set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1);
    if sharing == Sharing::Joins {
        share()?;
    }
    bind(fd, addr)?;
    if sharing == Sharing::First {
        share()?;
    }
    Ok(())
}

fn bind(fd: RawFd, addr: SocketAddr) -> io::Result<()> {
    Ok(rustix::net::bind(borrow(fd), &addr)?)
}

/// A UDP socket that listens.
pub fn udp_listener(addr: SocketAddr, sharing: Sharing, buffers: Buffers) -> io::Result<OwnedFd> {
    let socket = new_socket(&addr, SocketType::DGRAM)?;
    let fd = socket.as_raw_fd();
    if addr.is_ipv6() {
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    if buffers == Buffers::Large {
        large_buffers(fd);
    }
    coalesce(fd);
    bind_shared(fd, addr, sharing)?;
    Ok(socket)
}

fn large_buffers(fd: RawFd) {
    // A refusal leaves the default, which only costs drops at peaks, and these are counted.
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER).ok();
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER).ok();
}

/// Datagrams dropped because the socket's queue was full, since it was created. Polled now and then: the kernel could also
/// report it with each datagram, at a cost per datagram.
pub fn dropped_by_kernel(fd: RawFd) -> u32 {
    const DROPS: usize = 8; // `SK_MEMINFO_DROPS`
    let mut figures = [0u32; DROPS + 1];
    let mut len = size_of_val(&figures) as libc::socklen_t;
    // SAFETY: room for as many figures as the length says.
    let asked =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, figures.as_mut_ptr().cast(), &raw mut len) };
    if asked == 0 { figures[DROPS] } else { 0 }
}

/// Lets the kernel hand over datagrams of one flow joined; old kernels refuse, and hand them over singly.
pub fn coalesce(fd: RawFd) {
    set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1).ok();
}

/// A UDP socket connected to `to`, from `from` if given, marked with `dscp` if given. Whether it is worth to have
/// datagrams joined shows only later: see [`coalesce`].
pub fn udp_connected(to: SocketAddr, from: Option<SocketAddr>, dscp: Option<u8>) -> io::Result<OwnedFd> {
    let socket = new_socket(&to, SocketType::DGRAM)?;
    if let Some(dscp) = dscp {
        set_dscp(socket.as_raw_fd(), dscp);
    }
    if let Some(from) = from {
        bind(socket.as_raw_fd(), from)?;
    }
    connect(socket.as_raw_fd(), to)?;
    Ok(socket)
}

/// Starts a TCP connection, its first packet marked like the rest; its outcome is reported by writability and
/// [`connect_error`].
pub fn tcp_connecting(to: SocketAddr, from: Option<SocketAddr>, dscp: Option<u8>) -> io::Result<OwnedFd> {
    let socket = new_socket(&to, SocketType::STREAM)?;
    let fd = socket.as_raw_fd();
    no_delay(fd);
    enable_keep_alive(fd);
    if let Some(dscp) = dscp {
        set_dscp(fd, dscp);
    }
    if let Some(from) = from {
        set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        bind(fd, from)?;
    }
    match connect(fd, to) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}

fn connect(fd: RawFd, to: SocketAddr) -> io::Result<()> {
    Ok(rustix::net::connect(borrow(fd), &to)?)
}

/// Small writes leave at once.
pub fn no_delay(fd: RawFd) {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1).ok();
}

/// Enables keep-alive after a minute of silence, with a timeout of another minute, so that vanished peers do not keep
/// their sessions for ever.
fn enable_keep_alive(fd: RawFd) {
    set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1).ok();
    for (name, value) in [(libc::TCP_KEEPIDLE, 60), (libc::TCP_KEEPINTVL, 10), (libc::TCP_KEEPCNT, 6)] {
        set_option(fd, libc::IPPROTO_TCP, name, value).ok();
    }
}

/// What a connection attempt came to.
pub fn connect_error(fd: RawFd) -> Option<io::Error> {
    match get_option(fd, libc::SOL_SOCKET, libc::SO_ERROR) {
        Ok(0) => None,
        Ok(code) => Some(io::Error::from_raw_os_error(code)),
        Err(error) => Some(error),
    }
}

/// A TCP socket that listens.
pub fn tcp_listener(addr: SocketAddr, sharing: Sharing) -> io::Result<OwnedFd> {
    let socket = new_socket(&addr, SocketType::STREAM)?;
    let fd = socket.as_raw_fd();
    if addr.is_ipv6() {
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    // what is accepted has these options as well
    no_delay(fd);
    enable_keep_alive(fd);
    bind_shared(fd, addr, sharing)?;
    listen(fd)?;
    Ok(socket)
}

pub(super) fn listen(fd: RawFd) -> io::Result<()> {
    Ok(rustix::net::listen(borrow(fd), 4096)?)
}

/// Takes one connection off a listening TCP socket.
pub fn accept_tcp(fd: RawFd) -> io::Result<(OwnedFd, SockAddr)> {
    let (socket, from) = acceptfrom_with(borrow(fd), FLAGS)?;
    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
    Ok((socket, from.map_or(SockAddr::EMPTY, SockAddr::from)))
}

/// The address a socket is bound to.
pub fn local_address(fd: RawFd) -> io::Result<SocketAddr> {
    let at = SocketAddr::try_from(getsockname(borrow(fd))?)?;
    Ok(plain(at))
}

/// The address a socket is connected to.
pub fn peer_address(fd: RawFd) -> io::Result<SocketAddr> {
    let at = getpeername(borrow(fd))?.ok_or(Errno::NOTCONN)?;
    Ok(plain(SocketAddr::try_from(at)?))
}

/// Reads what is there; 0 is the end of a stream.
pub fn receive(fd: RawFd, into: &mut [u8]) -> io::Result<usize> {
    let (len, _) = recv(borrow(fd), into, RecvFlags::DONTWAIT)?;
    Ok(len)
}

/// Writes what fits, without a signal when the peer is gone.
pub fn send(fd: RawFd, data: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(borrow(fd), data, SEND)?)
}

/// Writes two pieces as one message, or what fits of them into a stream.
pub fn send_two(fd: RawFd, head: &[u8], body: &[u8]) -> io::Result<usize> {
    let parts = [io::IoSlice::new(head), io::IoSlice::new(body)];
    Ok(sendmsg(borrow(fd), &parts, &mut SendAncillaryBuffer::default(), SEND)?)
}

/// Sends one datagram to `to`.
pub fn send_to(fd: RawFd, data: &[u8], to: &SockAddr) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: live memory and a live address of the lengths given.
    check_len(unsafe { libc::sendto(fd, data.as_ptr().cast(), data.len(), flags, to.as_ptr(), to.size()) })
}

/// Says that nothing more will be written.
pub fn end_writing(fd: RawFd) {
    // an error means that the peer is gone already
    shutdown(borrow(fd), Shutdown::Write).ok();
}

/// Marks outgoing packets with a differentiated-services code point.
pub fn set_dscp(fd: RawFd, dscp: u8) {
    let field = i32::from(dscp) << 2;
    set_option(fd, libc::IPPROTO_IP, libc::IP_TOS, field).ok();
    set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, field).ok();
}

/// Lets the code points of incoming packets be read, where the kernel can.
pub fn receive_dscp(fd: RawFd) {
    set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1).ok();
    set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1).ok();
}

/// The code point that a connection came in with.
pub fn connection_dscp(fd: RawFd, v4: bool) -> Option<u8> {
    let (level, name) = if v4 { (libc::IPPROTO_IP, 9) } else { (libc::IPPROTO_IPV6, 6) };
    let mut options = [0u8; 256];
    let mut len = options.len() as libc::socklen_t;
    // SAFETY: live memory of the length given. The options are IP_PKTOPTIONS and IPV6_2292PKTOPTIONS.
    check(unsafe { libc::getsockopt(fd, level, name, options.as_mut_ptr().cast(), &raw mut len) }).ok()?;
    super::batch::traffic_class(options.get(..len as usize)?)
}

/// Whether an address is one of this machine.
pub fn is_own_address(address: std::net::IpAddr) -> bool {
    address.is_loopback() || std::net::UdpSocket::bind((address, 0)).is_ok()
}

/// Whether the error only says "not now".
pub fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Whether the error says that the other end is down or cannot be reached.
pub fn is_peers_fault(error: &io::Error) -> bool {
    let codes = [libc::ECONNREFUSED, libc::ECONNRESET, libc::EHOSTUNREACH, libc::ENETUNREACH, libc::ETIMEDOUT];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// The kernel's name of an error, as programs print it: `ECONNREFUSED`.
pub fn error_name(error: &io::Error) -> String {
    let name = match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => "ECONNREFUSED",
        Some(libc::ECONNRESET) => "ECONNRESET",
        Some(libc::EADDRINUSE) => "EADDRINUSE",
        Some(libc::EADDRNOTAVAIL) => "EADDRNOTAVAIL",
        Some(libc::EACCES) => "EACCES",
        Some(libc::EPIPE) => "EPIPE",
        Some(libc::EHOSTUNREACH) => "EHOSTUNREACH",
        Some(libc::ENETUNREACH) => "ENETUNREACH",
        Some(libc::ETIMEDOUT) => "ETIMEDOUT",
        Some(libc::ENOENT) => "ENOENT",
        Some(libc::ENOTDIR) => "ENOTDIR",
        Some(libc::EMFILE) => "EMFILE",
        Some(libc::EAFNOSUPPORT) => "EAFNOSUPPORT",
        Some(libc::EINVAL) => "EINVAL",
        Some(libc::ENAMETOOLONG) => "ENAMETOOLONG",
        Some(code) => return format!("errno {code}"),
        None => return error.to_string(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_connection_have_no_delay_and_keep_alive() {
        let listener = tcp_listener("127.0.0.1:0".parse().unwrap(), Sharing::None).unwrap();
        let at = local_address(listener.as_raw_fd()).unwrap();
        let client = tcp_connecting(at, None, None).unwrap();
        let accepted = loop {
            match accept_tcp(listener.as_raw_fd()) {
                Ok((socket, _)) => break socket,
                Err(error) => assert!(would_block(&error), "{error}"),
            }
        };
        for socket in [client, accepted] {
            let fd = socket.as_raw_fd();
            assert_eq!(get_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY).unwrap(), 1);
            assert_eq!(get_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE).unwrap(), 1);
            assert_eq!(get_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE).unwrap(), 60);
        }
    }
}
