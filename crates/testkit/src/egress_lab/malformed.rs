//! Packets that conntrack takes for invalid, or that belong to no flow: what nobody translates leaves as it is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with};

use crate::NetworkNamespace;

/// A kind of such a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// TCP without any flag.
    NullFlags,
    SynFin,
    WrongChecksum,
    /// A RST of no connection.
    StrayRst,
    /// An ICMP error about a packet that was never sent.
    StrayUnreachable,
    /// An ICMP type that asks and answers nothing.
    OddIcmp,
    BrokenSctp,
}

impl Malformed {
    pub const ALL: [Self; 7] = [
        Self::NullFlags,
        Self::SynFin,
        Self::WrongChecksum,
        Self::StrayRst,
        Self::StrayUnreachable,
        Self::OddIcmp,
        Self::BrokenSctp,
    ];

    /// Sends one.
    pub fn send(self, network: &NetworkNamespace, from: IpAddr, to: IpAddr) -> anyhow::Result<()> {
        let (protocol, body) = self.body(from, to);
        let length = u16::try_from(body.len())?;
        let (family, header) = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => (AddressFamily::INET, header4(from, to, protocol, length)),
            (IpAddr::V6(from), IpAddr::V6(to)) => (AddressFamily::INET6, header6(from, to, protocol, length)),
            _ => anyhow::bail!("{from} and {to} are of two versions of IP"),
        };
        let open = || socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::RAW));
        let socket = network.enter(open)?;
        sendto(&socket, &[header, body].concat(), SendFlags::empty(), &SocketAddr::new(to, 0))?;
        Ok(())
    }

    /// The protocol and what follows the IP header.
    fn body(self, from: IpAddr, to: IpAddr) -> (u8, Vec<u8>) {
        const TCP: u8 = 6;
        const SCTP: u8 = 132;
        const SYN: u8 = 2;
        let icmp = if from.is_ipv4() { 1 } else { 58 };
        match self {
            Self::NullFlags => (TCP, tcp(from, to, 5551, 0)),
            Self::SynFin => (TCP, tcp(from, to, 5552, 3)),
            Self::WrongChecksum => {
                let mut segment = tcp(from, to, 5553, SYN);
                segment[16] ^= 0x12;
                (TCP, segment)
            }
            Self::StrayRst => (TCP, tcp(from, to, 5554, 4)),
            Self::StrayUnreachable => {
                let about = match (from, to) {
                    (IpAddr::V4(from), IpAddr::V4(to)) => header4(to, from, 17, 8),
                    (IpAddr::V6(from), IpAddr::V6(to)) => header6(to, from, 17, 8),
                    _ => Vec::new(),
                };
                let kind = if from.is_ipv4() { [3, 3] } else { [1, 4] };
                (icmp, control(from, to, icmp, &[&kind, &[0; 6][..], &about, &[0, 1, 0, 2, 0, 8, 0, 0]].concat()))
            }
            Self::OddIcmp => {
                (icmp, control(from, to, icmp, &[if from.is_ipv4() { 10 } else { 200 }, 0, 0, 0, 0, 0, 0, 0]))
            }
            Self::BrokenSctp => (SCTP, [&[0, 7, 0, 7], &[0; 24][..]].concat()),
        }
    }
}

fn tcp(from: IpAddr, to: IpAddr, port: u16, flags: u8) -> Vec<u8> {
    let [a, b] = port.to_be_bytes();
    let mut segment = vec![a, b, 0x1b, 0x58, 0, 0, 0, 1, 0, 0, 0, 0, 5 << 4, flags, 4, 0, 0, 0, 0, 0];
    let sum = checksum(&[pseudo_header(from, to, 6, 20), segment.clone()].concat());
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

/// An ICMP message with its checksum.
fn control(from: IpAddr, to: IpAddr, protocol: u8, message: &[u8]) -> Vec<u8> {
    let length = u8::try_from(message.len()).expect("a short message");
    let covered = if from.is_ipv4() { Vec::new() } else { pseudo_header(from, to, protocol, length) };
    let sum = checksum(&[&covered, message].concat());
    let mut message = message.to_vec();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, length: u8) -> Vec<u8> {
    let octets = |address| match address {
        IpAddr::V4(address) => Ipv4Addr::octets(&address).to_vec(),
        IpAddr::V6(address) => Ipv6Addr::octets(&address).to_vec(),
    };
    [octets(from), octets(to), vec![0, protocol, 0, length]].concat()
}

fn header4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, length: u16) -> Vec<u8> {
    let [a, b] = (20 + length).to_be_bytes();
    let mut header = [&[0x45, 0, a, b, 0, 77, 0, 0, 64, protocol, 0, 0][..], &from.octets(), &to.octets()].concat();
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

fn header6(from: Ipv6Addr, to: Ipv6Addr, protocol: u8, length: u16) -> Vec<u8> {
    let [a, b] = length.to_be_bytes();
    [&[0x60, 0, 0, 0, a, b, protocol, 64][..], &from.octets(), &to.octets()].concat()
}

/// The checksum of the Internet protocols.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or_default()]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("it was folded to 16 bits")
}
