//! Detection of routing loops through this proxy.
//!
//! A session may connect to a listener of this proxy on purpose, so hops are counted, not forbidden. A connection to an own
//! listener is recorded with its hops before its first byte is sent, and found again when it is accepted. Between proxies
//! the count is carried as a label.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Maximum hops of a session.
pub(crate) const MAX_HOPS: u8 = 8;

/// What a socket speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Udp,
    Tcp,
}

/// One end of a connection.
pub(crate) type End = (Family, SocketAddr);

/// Our own connections to our own listeners, by the end that they come from.
#[derive(Default)]
pub(crate) struct LoopDetector {
    noted: AtomicUsize,
    hops: Mutex<BTreeMap<End, u8>>,
}

/// A new entry; while it is held, lookups of accepted connections wait.
pub(crate) struct Entry<'a> {
    loops: &'a LoopDetector,
    hops: MutexGuard<'a, BTreeMap<End, u8>>,
}

impl LoopDetector {
    /// Held while connecting, so that the other end is not accepted before it is recorded.
    pub(crate) fn entry(&self) -> Entry<'_> {
        self.noted.fetch_add(1, SeqCst);
        Entry { loops: self, hops: self.hops.lock() }
    }

    pub(crate) fn leave(&self, end: End) {
        if self.hops.lock().remove(&end).is_some() {
            self.noted.fetch_sub(1, SeqCst);
        }
    }

    /// Hops of a client: 0, unless it is an own connection.
    pub(crate) fn hops_of(&self, end: End) -> u8 {
        if self.noted.load(SeqCst) == 0 { 0 } else { self.hops.lock().get(&end).copied().unwrap_or(0) }
    }
}

impl Entry<'_> {
    /// Notes a connection; nothing if there is none.
    pub(crate) fn record(mut self, end: Option<End>, hops: u8) {
        if end.is_none_or(|end| self.hops.insert(end, hops).is_some()) {
            self.loops.noted.fetch_sub(1, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_are_found_while_the_connection_lives() {
        let loops = LoopDetector::default();
        let end = |port| (Family::Tcp, SocketAddr::from(([127, 0, 0, 1], port)));
        loops.entry().record(Some(end(1)), 3);
        loops.entry().record(None, 9);
        assert_eq!((loops.hops_of(end(1)), loops.hops_of(end(2))), (3, 0));
        assert_eq!(loops.hops_of((Family::Udp, end(1).1)), 0);
        loops.leave(end(1));
        loops.leave(end(1));
        assert_eq!((loops.hops_of(end(1)), loops.noted.load(SeqCst)), (0, 0));
    }
}
