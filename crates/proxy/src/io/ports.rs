//! The ports that one worker serves.

use super::loop_detection::Family;
use super::port::{BindAddress, Port};
use super::stats::{Drop, WorkerStats};
use super::sys;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A port that this worker serves.
pub(crate) struct OpenPort {
    pub port: Arc<Port>,
    pub fd: RawFd,
    pub detached: bool,
    /// The kernel's drop counter when it was last read.
    pub drops: u32,
    /// The DSCP of incoming packets is read.
    pub reads_dscp: bool,
}

/// Open ports by id.
#[derive(Default)]
pub(crate) struct Ports {
    open: BTreeMap<u32, OpenPort>,
    /// The addresses of those ports that have one.
    listening: BTreeMap<(Family, u16), Vec<IpAddr>>,
}

impl Ports {
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&OpenPort> {
        self.open.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut OpenPort> {
        self.open.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &OpenPort> {
        self.open.values()
    }

    pub(crate) fn add(&mut self, open: OpenPort) {
        if let Some((family, at)) = open.port.bind_address.end() {
            self.listening.entry((family, open.port.local.port())).or_default().push(at.ip());
        }
        self.open.insert(open.port.id, open);
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<OpenPort> {
        let open = self.open.remove(&id)?;
        if let Some((family, at)) = open.port.bind_address.end()
            && let Some(bound) = self.listening.get_mut(&(family, open.port.local.port()))
        {
            bound.retain(|address| *address != at.ip());
        }
        Some(open)
    }

    /// Whether a port only waits for its last session.
    pub(crate) fn has_detached(&self) -> bool {
        self.open.values().any(|open| open.detached)
    }

    /// Detached ports without sessions.
    pub(crate) fn unused(&self) -> Vec<u32> {
        let unused = |open: &&OpenPort| open.detached && open.port.sessions.load(Relaxed) == 0;
        self.open.values().filter(unused).map(|open| open.port.id).collect()
    }

    pub(crate) fn is_unused(&self, id: u32) -> bool {
        self.open.get(&id).is_some_and(|open| open.detached && open.port.sessions.load(Relaxed) == 0)
    }

    /// Whether an address is one that this proxy listens on.
    pub(crate) fn listens_on(&self, family: Family, address: SocketAddr) -> bool {
        let Some(bound) = self.listening.get(&(family, address.port())) else { return false };
        let ip = address.ip().to_canonical();
        let reaches = |bound: &IpAddr| *bound == ip || (bound.is_unspecified() && bound.is_ipv4() == ip.is_ipv4());
        // whether an address is local is checked last: it takes a socket to find out
        bound.iter().any(reaches) && (bound.contains(&ip) || sys::is_own_address(ip))
    }

    /// Adds the drops that the kernel counted since the last call.
    pub(crate) fn count_kernel_drops(&mut self, stats: &WorkerStats) {
        for open in self.open.values_mut().filter(|open| matches!(open.port.bind_address, BindAddress::Udp(_))) {
            let drops = sys::dropped_by_kernel(open.fd);
            stats.drop_packets(Drop::KernelQueue, u64::from(drops.wrapping_sub(open.drops)));
            open.drops = drops;
        }
    }
}
