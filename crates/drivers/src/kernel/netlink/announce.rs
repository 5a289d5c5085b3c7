//! Gratuitous ARP and unsolicited neighbour advertisements, as whole frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::kernel::{KernelError, MacAddress};

#[expect(clippy::cast_possible_truncation, reason = "the number of a family is small")]
const FAMILY: libc::sa_family_t = libc::AF_PACKET as libc::sa_family_t;
#[expect(clippy::cast_possible_truncation, reason = "an address is some bytes")]
const SIZE: libc::socklen_t = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
const BROADCAST: [u8; 6] = [0xff; 6];

/// A socket that sends frames and receives none.
pub(super) struct Announcer {
    socket: OwnedFd,
}

impl Announcer {
    pub(super) fn open() -> Result<Self, KernelError> {
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .map_err(|cause| KernelError::Socket { call: "socket", cause })?;
        Ok(Self { socket })
    }

    /// Says on a link that an address is at a MAC address: ARP in both of its forms, as receivers heed one or the other.
    pub(super) fn announce(&self, link: u32, mac: MacAddress, address: IpAddr) -> Result<(), KernelError> {
        match address {
            IpAddr::V4(address) => {
                for operation in [1, 2] {
                    self.send(link, &arp(mac, address, operation))?;
                }
                Ok(())
            }
            IpAddr::V6(address) => self.send(link, &advertisement(mac, address)),
        }
    }

    fn send(&self, link: u32, frame: &[u8]) -> Result<(), KernelError> {
        let [a, b] = [frame[12], frame[13]];
        let to = libc::sockaddr_ll {
            sll_family: FAMILY,
            sll_protocol: u16::from_ne_bytes([a, b]),
            sll_ifindex: link.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the frame is read only within its length, and the address is a whole `sockaddr_ll` whose size is given;
        // both outlive the call, and the kernel keeps neither.
        let sent = unsafe {
            libc::sendto(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), SIZE)
        };
        if sent < 0 {
            let cause = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
            return Err(KernelError::Socket { call: "sendto", cause });
        }
        Ok(())
    }
}

fn arp(MacAddress(mac): MacAddress, address: Ipv4Addr, operation: u8) -> Vec<u8> {
    let request = [0, 1, 8, 0, 6, 4, 0, operation];
    let ip = address.octets();
    let target = if operation == 1 { [0; 6] } else { BROADCAST };
    [&BROADCAST[..], &mac, &[0x08, 0x06], &request, &mac, &ip, &target, &ip].concat()
}

/// To all nodes, with the override flag: caches have the previous owner.
fn advertisement(MacAddress(mac): MacAddress, address: Ipv6Addr) -> Vec<u8> {
    const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    const ICMPV6: u8 = 58;
    let ip = address.octets();
    let mut message = [&[136, 0, 0, 0, 0x20, 0, 0, 0][..], &ip, &[2, 1], &mac].concat();
    let pseudo = [&ip[..], &ALL_NODES.octets(), &[0, 0, 0, 32, 0, 0, 0, ICMPV6], &message].concat();
    message[2..4].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    let header = [&[0x60, 0, 0, 0, 0, 32, ICMPV6, 255][..], &ip, &ALL_NODES.octets()].concat();
    [&[0x33, 0x33, 0, 0, 0, 1][..], &mac, &[0x86, 0xdd], &header, &message].concat()
}

/// The checksum of the Internet protocols over an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let pairs = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = pairs.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("it was folded to 16 bits")
}
