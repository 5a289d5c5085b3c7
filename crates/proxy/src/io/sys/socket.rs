//! Internet sockets: made, bound, connected and set up without blocking.

use super::addr::SockAddr;
use super::call::{check, check_len, get_option, set_option};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Socket buffers asked for; the kernel grants what `net.core.{r,w}mem_max` allows.
const BUFFER: i32 = 4 << 20;

/// Whether a socket's set-up may touch its buffers; benchmarks compare with the system's default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffers {
    Large,
    System,
}

fn new_socket(domain: i32, kind: i32) -> io::Result<OwnedFd> {
    let flags = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointer is passed; a non-negative result is a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(check(libc::socket(domain, flags, 0))?) })
}

const fn domain(addr: &SocketAddr) -> i32 {
    if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

fn bind(fd: RawFd, addr: SocketAddr) -> io::Result<()> {
    let addr = SockAddr::from(addr);
    // SAFETY: a live address of the length given.
    check(unsafe { libc::bind(fd, addr.as_ptr(), addr.size()) }).map(drop)
}

/// A UDP socket that listens, one of several on its port if `shared`.
pub fn udp_listener(addr: SocketAddr, shared: bool, buffers: Buffers) -> io::Result<OwnedFd> {
    let socket = new_socket(domain(&addr), libc::SOCK_DGRAM)?;
    let fd = socket.as_raw_fd();
    if addr.is_ipv6() {
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    if shared {
        set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    if buffers == Buffers::Large {
        large_buffers(fd);
    }
    coalesce(fd);
    bind(fd, addr)?;
    Ok(socket)
}

fn large_buffers(fd: RawFd) {
    // A refusal leaves the default, which only costs drops at peaks, and these are counted.
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER).ok();
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER).ok();
}

/// Datagrams that found a socket's queue full, since it was made. Asked for once in a while: the kernel can also
/// tell with each datagram, which each of them would pay for.
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
    let socket = new_socket(domain(&to), libc::SOCK_DGRAM)?;
    if let Some(dscp) = dscp {
        set_dscp(socket.as_raw_fd(), dscp);
    }
    if let Some(from) = from {
        bind(socket.as_raw_fd(), from)?;
    }
    connect(socket.as_raw_fd(), to)?;
    Ok(socket)
}

/// Starts a TCP connection, its first packet marked like the rest; whether it stands is told by writability and
/// [`connect_error`].
pub fn tcp_connecting(to: SocketAddr, from: Option<SocketAddr>, dscp: Option<u8>) -> io::Result<OwnedFd> {
    let socket = new_socket(domain(&to), libc::SOCK_STREAM)?;
    let fd = socket.as_raw_fd();
    no_delay(fd);
    ask_silent_peers(fd);
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
    let addr = SockAddr::from(to);
    // SAFETY: a live address of the length given.
    check(unsafe { libc::connect(fd, addr.as_ptr(), addr.size()) }).map(drop)
}

/// Small writes leave at once.
pub fn no_delay(fd: RawFd) {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1).ok();
}

/// A peer that is silent for a minute is asked whether it is there, and given up after another: one that vanished
/// without a word would keep its session for ever.
fn ask_silent_peers(fd: RawFd) {
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

/// A TCP socket that listens, one of several on its port if `shared`.
pub fn tcp_listener(addr: SocketAddr, shared: bool) -> io::Result<OwnedFd> {
    let socket = new_socket(domain(&addr), libc::SOCK_STREAM)?;
    let fd = socket.as_raw_fd();
    if addr.is_ipv6() {
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if shared {
        set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    // what is accepted has these options as well
    no_delay(fd);
    ask_silent_peers(fd);
    bind(fd, addr)?;
    listen(fd)?;
    Ok(socket)
}

pub(super) fn listen(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointer is passed.
    check(unsafe { libc::listen(fd, 4096) }).map(drop)
}

/// Takes one connection off a listening TCP socket.
pub fn accept_tcp(fd: RawFd) -> io::Result<(OwnedFd, SockAddr)> {
    let mut from = SockAddr::EMPTY;
    let mut len = SockAddr::ROOM;
    // SAFETY: room for an address of the length given; a non-negative result is a fresh descriptor.
    let socket = unsafe {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        OwnedFd::from_raw_fd(check(libc::accept4(fd, from.as_mut_ptr(), &raw mut len, flags))?)
    };
    Ok((socket, from))
}

/// The address a socket is bound to.
pub fn local_address(fd: RawFd) -> io::Result<SocketAddr> {
    let mut at = SockAddr::EMPTY;
    let mut len = SockAddr::ROOM;
    // SAFETY: room for an address of the length given.
    check(unsafe { libc::getsockname(fd, at.as_mut_ptr(), &raw mut len) })?;
    Ok(at.to_std())
}

/// The address a socket is connected to.
pub fn peer_address(fd: RawFd) -> io::Result<SocketAddr> {
    let mut at = SockAddr::EMPTY;
    let mut len = SockAddr::ROOM;
    // SAFETY: room for an address of the length given.
    check(unsafe { libc::getpeername(fd, at.as_mut_ptr(), &raw mut len) })?;
    Ok(at.to_std())
}

/// Reads what is there; 0 is the end of a stream.
pub fn receive(fd: RawFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: live memory of the length given.
    check_len(unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) })
}

/// Writes what fits, without a signal when the peer is gone.
pub fn send(fd: RawFd, data: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: live memory of the length given.
    check_len(unsafe { libc::send(fd, data.as_ptr().cast(), data.len(), flags) })
}

/// Writes two pieces as one message, or what fits of them into a stream.
pub fn send_two(fd: RawFd, head: &[u8], body: &[u8]) -> io::Result<usize> {
    let mut parts = [
        libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
        libc::iovec { iov_base: body.as_ptr().cast_mut().cast(), iov_len: body.len() },
    ];
    // SAFETY: all-zero is a valid msghdr; the parts and the memory behind them outlive the call, which only reads.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = 2;
        check_len(libc::sendmsg(fd, &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL))
    }
}

/// Sends one datagram to `to`.
pub fn send_to(fd: RawFd, data: &[u8], to: &SockAddr) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: live memory and a live address of the lengths given.
    check_len(unsafe { libc::sendto(fd, data.as_ptr().cast(), data.len(), flags, to.as_ptr(), to.size()) })
}

/// Says that nothing more will be written.
pub fn end_writing(fd: RawFd) {
    // SAFETY: no pointer is passed; an error means that the peer is gone already.
    unsafe { libc::shutdown(fd, libc::SHUT_WR) };
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
        Some(code) => return format!("errno {code}"),
        None => return error.to_string(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_connection_are_quick_and_ask_whether_a_silent_peer_is_there() {
        let listener = tcp_listener("127.0.0.1:0".parse().unwrap(), false).unwrap();
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
