//! Counts what arrives outside, by source.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with, sockopt};

use super::{elsewhere_addresses, outside_addresses};
use crate::NetworkNamespace;

/// How often the thread looks whether it should end.
const INTERVAL: Duration = Duration::from_millis(20);
const BUFFER: usize = 64 << 20;
const ICMPV6: u8 = 58;

/// Reads frames until it is asked what it saw.
pub struct Sniffer {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Result<Seen, Errno>>,
}

/// A kind of packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packet {
    pub source: IpAddr,
    /// The protocol above IP.
    pub protocol: u8,
}

/// What arrived for the outside's own addresses.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// From sources that were expected.
    pub expected: u64,
    /// From all others.
    pub leaks: BTreeMap<Packet, u64>,
    /// Which MAC addresses said of an IP address that it is there, by ARP or neighbour advertisements, and how often.
    pub claims: BTreeMap<IpAddr, BTreeMap<[u8; 6], u64>>,
}

impl Sniffer {
    pub(super) fn start(network: &NetworkNamespace, expected: BTreeSet<IpAddr>) -> anyhow::Result<Self> {
        let open = || socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, Some(eth::ALL));
        let socket = network.enter(open).context("a packet socket")?;
        sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(INTERVAL))?;
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let read = move || read(&socket, &expected, &is_over);
        Ok(Self { ends, thread: std::thread::Builder::new().name("sniffer".into()).spawn(read)? })
    }

    /// What arrived since the start: all that the kernel has delivered is counted.
    pub fn finish(self) -> anyhow::Result<Seen> {
        self.ends.store(true, Ordering::Release);
        let seen = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        seen.context("reading a packet socket failed")
    }
}

fn read(socket: &OwnedFd, expected: &BTreeSet<IpAddr>, ends: &AtomicBool) -> Result<Seen, Errno> {
    let (mut seen, mut buffer) = (Seen::default(), vec![0; 1 << 16]);
    loop {
        let is_last = ends.load(Ordering::Acquire);
        match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((length, _)) => {
                let frame = &buffer[..length];
                if let Some((address, mac)) = claim(frame) {
                    *seen.claims.entry(address).or_default().entry(mac).or_default() += 1;
                }
                match packet(frame) {
                    None => {}
                    Some(packet) if expected.contains(&packet.source) => seen.expected += 1,
                    Some(packet) => *seen.leaks.entry(packet).or_default() += 1,
                }
            }
            Err(Errno::AGAIN) if is_last => return Ok(seen),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// What a frame says of who has an address.
fn claim(frame: &[u8]) -> Option<(IpAddr, [u8; 6])> {
    const ADVERTISEMENT: u8 = 136;
    let sender = frame.get(6..12)?.try_into().ok()?;
    match frame.get(12..14)? {
        [0x08, 0x06] => Some((<[u8; 4]>::try_from(frame.get(28..32)?).ok()?.into(), sender)),
        [0x86, 0xdd] if frame.get(20) == Some(&ICMPV6) && frame.get(54) == Some(&ADVERTISEMENT) => {
            Some((<[u8; 16]>::try_from(frame.get(62..78)?).ok()?.into(), sender))
        }
        _ => None,
    }
}

/// The packet of a frame, if it is for the outside's own addresses and no neighbour discovery.
fn packet(frame: &[u8]) -> Option<Packet> {
    let body = frame.get(14..)?;
    let (packet, destination) = match frame.get(12..14)? {
        [0x08, 0x00] => {
            let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(body.get(at..at + 4)?).ok()?));
            (Packet { source: address(12)?.into(), protocol: *body.get(9)? }, IpAddr::from(address(16)?))
        }
        [0x86, 0xdd] => {
            let address = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(body.get(at..at + 16)?).ok()?));
            let protocol = *body.get(6)?;
            if protocol == ICMPV6 && (133..=137).contains(body.get(40)?) {
                return None;
            }
            (Packet { source: address(8)?.into(), protocol }, IpAddr::from(address(24)?))
        }
        _ => return None,
    };
    let is_ours = outside_addresses().into_iter().chain(elsewhere_addresses()).any(|own| own == destination);
    is_ours.then_some(packet)
}
