//! State shared by workers: the configuration, session names, and their command queues.

use super::cache_padded::CachePadded;
use super::cluster::{ClusterRuntime, Registry};
use super::command::Command;
use super::log::Sink;
use super::loop_detection::LoopDetector;
use super::resolve::Resolver;
use super::ring::Ring;
use super::slab::Key;
use super::stats::WorkerStats;
use super::stdio::Stdio;
use crate::config::host_mapping::HostMapping;
use crate::config::snapshot::{Names, Snapshot};
use crate::rest::exchange::ApiHandler;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use xxhash_rust::xxh3::xxh3_64;

/// The configuration in force, with its clusters put together.
#[derive(Default)]
pub(crate) struct CurrentConfig {
    pub snapshot: Arc<Snapshot>,
    pub clusters: Names<ClusterRuntime>,
}

pub(crate) struct Shared {
    pub current: ArcSwap<CurrentConfig>,
    /// Of what is in force: cheap to look at once per loop.
    pub generation: AtomicU64,
    pub registry: Registry,
    pub names: SessionNames,
    pub counts: CachePadded<Counts>,
    /// Sessions that descriptors allow, and the first descriptor that is not for them.
    pub most_sessions: usize,
    pub stats: Vec<Arc<WorkerStats>>,
    pub rings: Vec<Arc<Ring<Command>>>,
    pub api_handler: Option<Arc<dyn ApiHandler>>,
    pub host_mapping: HostMapping,
    pub sink: Sink,
    pub resolver: Resolver,
    pub loops: LoopDetector,
    pub stdio: Arc<Stdio>,
    /// Keys the flow tables.
    pub seed: u64,
    /// Keys the words of farewells, which others get to see.
    pub close_token_seed: u64,
}

/// What every session that comes counts up.
#[derive(Default)]
pub(crate) struct Counts {
    pub sequence: AtomicU64,
    pub active: AtomicUsize,
    /// Connections without a session that deliver their last bytes.
    pub closing: AtomicUsize,
    /// Requests through API listeners.
    pub api_requests: AtomicUsize,
}

/// Which worker has the session of a name. Names are kept as hashes: a session knows its own name. Those of UDP sessions
/// are not here, see [`super::naming`].
#[derive(Default)]
pub(crate) struct SessionNames([Mutex<BTreeMap<u64, SessionLocation>>; 16]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionLocation {
    pub worker: usize,
    pub key: Key,
}

impl SessionNames {
    /// Claims a name for a session, with `_1`, `_2`, ... added if it is taken.
    pub(crate) fn claim(&self, wanted: &str, place: SessionLocation) -> Box<str> {
        if self.take(wanted, place) {
            return wanted.into();
        }
        let mut numbered = (1..u32::MAX).map(|n| format!("{wanted}_{n}"));
        numbered.find(|name| self.take(name, place)).map_or_else(|| wanted.into(), String::into_boxed_str)
    }

    pub(crate) fn release(&self, name: &str) {
        let hash = xxh3_64(name.as_bytes());
        self.part(hash).lock().remove(&hash);
    }

    pub(crate) fn find(&self, name: &str) -> Option<SessionLocation> {
        let hash = xxh3_64(name.as_bytes());
        self.part(hash).lock().get(&hash).copied()
    }

    fn take(&self, name: &str, place: SessionLocation) -> bool {
        let hash = xxh3_64(name.as_bytes());
        match self.part(hash).lock().entry(hash) {
            Entry::Vacant(free) => {
                free.insert(place);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    fn part(&self, hash: u64) -> &Mutex<BTreeMap<u64, SessionLocation>> {
        &self.0[(hash >> 60) as usize]
    }
}

impl Shared {
    pub(crate) fn next_sequence(&self) -> u64 {
        self.counts.sequence.fetch_add(1, Relaxed)
    }

    /// Whether a descriptor is one of those reserved for the API, logs and listeners. The kernel returns the lowest free
    /// number, so the number shows how many are in use.
    pub(crate) fn is_reserved(&self, descriptor: RawFd) -> bool {
        usize::try_from(descriptor).is_ok_and(|number| number >= self.most_sessions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_name_gets_a_number() {
        let names = SessionNames::default();
        let place = SessionLocation { worker: 0, key: Key { slot: 0, generation: 0 } };
        let claim = || names.claim("UNIX:l-0", place);
        assert_eq!([claim(), claim(), claim()].map(String::from), ["UNIX:l-0", "UNIX:l-0_1", "UNIX:l-0_2"]);
        names.release("UNIX:l-0_1");
        assert_eq!((names.find("UNIX:l-0_1"), names.find("UNIX:l-0")), (None, Some(place)));
        assert_eq!(&*claim(), "UNIX:l-0_1");
    }
}
