//! Socket addresses in the kernel's own form, so that no packet pays for a conversion.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An IPv4 or IPv6 socket address as the kernel reads and writes it.
#[derive(Clone, Copy)]
pub struct SockAddr {
    raw: libc::sockaddr_in6,
}

const FAMILY_V4: libc::sa_family_t = libc::AF_INET as libc::sa_family_t;
const FAMILY_V6: libc::sa_family_t = libc::AF_INET6 as libc::sa_family_t;

impl SockAddr {
    /// An empty address, for the kernel to write into.
    pub const EMPTY: Self = Self {
        raw: libc::sockaddr_in6 {
            sin6_family: 0,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
            sin6_scope_id: 0,
        },
    };

    /// Size of the room that [`SockAddr::EMPTY`] gives.
    pub const ROOM: libc::socklen_t = size_of::<libc::sockaddr_in6>() as libc::socklen_t;

    /// Bytes of the address that count.
    pub const fn size(&self) -> libc::socklen_t {
        if self.raw.sin6_family == FAMILY_V4 { size_of::<libc::sockaddr_in>() as libc::socklen_t } else { Self::ROOM }
    }

    pub const fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.raw).cast()
    }

    pub const fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.raw).cast()
    }

    /// Address (IPv4-mapped for IPv4) and port: the peer part of a flow key.
    pub fn key(&self) -> (u128, u16) {
        let port = u16::from_be(self.raw.sin6_port);
        if self.raw.sin6_family == FAMILY_V4 {
            // an IPv4 address is where `sockaddr_in6` has its flow information
            let v4 = u32::from_be(self.raw.sin6_flowinfo);
            (0xffff_0000_0000 | u128::from(v4), port)
        } else {
            (u128::from_be_bytes(self.raw.sin6_addr.s6_addr), port)
        }
    }

    /// The address as `SocketAddr`; IPv4-mapped IPv6 becomes IPv4.
    pub fn to_std(self) -> SocketAddr {
        let (bits, port) = self.key();
        let v6 = Ipv6Addr::from(bits);
        match v6.to_ipv4_mapped() {
            Some(v4) => SocketAddr::V4(SocketAddrV4::new(v4, port)),
            None => SocketAddr::V6(SocketAddrV6::new(v6, port, 0, self.raw.sin6_scope_id)),
        }
    }
}

impl From<SocketAddr> for SockAddr {
    fn from(addr: SocketAddr) -> Self {
        let mut raw = Self::EMPTY.raw;
        match addr {
            SocketAddr::V4(v4) => {
                raw.sin6_family = FAMILY_V4;
                raw.sin6_port = v4.port().to_be();
                raw.sin6_flowinfo = u32::from(*v4.ip()).to_be();
            }
            SocketAddr::V6(v6) => {
                raw.sin6_family = FAMILY_V6;
                raw.sin6_port = v6.port().to_be();
                raw.sin6_addr.s6_addr = v6.ip().octets();
                raw.sin6_scope_id = v6.scope_id();
            }
        }
        Self { raw }
    }
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
pub fn plain(addr: SocketAddr) -> SocketAddr {
    SockAddr::from(addr).to_std()
}

impl Default for SockAddr {
    fn default() -> Self {
        SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_kernels_form() {
        for text in ["127.0.0.1:80", "[fd00::1]:65535", "0.0.0.0:0"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(SockAddr::from(addr).to_std(), addr);
        }
    }

    #[test]
    fn an_ipv4_mapped_address_is_the_same_peer() {
        let dressed: SocketAddr = "[::ffff:10.0.0.1]:5".parse().unwrap();
        let bare: SocketAddr = "10.0.0.1:5".parse().unwrap();
        assert_eq!(SockAddr::from(dressed).key(), SockAddr::from(bare).key());
        assert_eq!(plain(dressed), bare);
    }
}
