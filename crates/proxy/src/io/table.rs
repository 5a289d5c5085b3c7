//! The sessions of one worker, and the ways to find one.

use super::flow::{FlowKey, FlowTable};
use super::session::{Hot, Session};
use super::session_filter::Ids;
use super::slab::{Key, Slab};
use super::sys::SockAddr;
use crate::config::engine::{SessionDump, Traffic};
use std::collections::{BTreeMap, BTreeSet};

/// Finished sessions that are kept for lists.
const TRACKED: usize = 10_000;

/// A finished session that is still listed.
pub(crate) struct Finished {
    pub until: u64,
    pub sequence: u64,
    pub dump: SessionDump,
    pub ids: Ids,
}

/// Sessions by key, by flow, by Unix peer and in order of creation.
pub(crate) struct SessionTable {
    flows: FlowTable,
    /// What the packet path needs, by slot.
    pub hot: Vec<Hot>,
    sessions: Slab<Box<Session>>,
    by_sequence: BTreeMap<u64, Key>,
    /// Unix datagram peers by port.
    unix_peers: BTreeMap<(u32, Vec<u8>), Key>,
    /// By sequence, and by when their time is over.
    finished: BTreeMap<u64, Finished>,
    expiry: BTreeSet<(u64, u64)>,
}

impl SessionTable {
    /// `seed` keys the hashes of flows.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            flows: FlowTable::new(seed),
            hot: Vec::new(),
            sessions: Slab::default(),
            by_sequence: BTreeMap::new(),
            unix_peers: BTreeMap::new(),
            finished: BTreeMap::new(),
            expiry: BTreeSet::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Session> {
        self.sessions.get(key).map(AsRef::as_ref)
    }

    /// Gives a new session its slot; it stays taken out until [`Self::put`].
    pub(crate) fn admit(&mut self, session: Session, now_ms: u64) -> Option<Box<Session>> {
        let sequence = session.sequence;
        let key = self.sessions.insert(Box::new(session));
        let mut session = self.sessions.take(key)?;
        session.key = key;
        let hot = Hot { upstream: -1, generation: key.generation, seen: now_ms, ..Hot::default() };
        if key.slot as usize == self.hot.len() {
            self.hot.push(hot);
        } else {
            self.hot[key.slot as usize] = hot;
        }
        self.by_sequence.insert(sequence, key);
        Some(session)
    }

    /// Takes a session out to work on it; its slot stays reserved.
    pub(crate) fn take(&mut self, key: Key) -> Option<Box<Session>> {
        self.sessions.take(key)
    }

    pub(crate) fn put(&mut self, session: Box<Session>) {
        self.sessions.put(session.key, session);
    }

    /// Makes a session unreachable by flow, peer and sequence; its slot stays until [`Self::vacate`].
    pub(crate) fn unlink(&mut self, session: &Session) {
        let hot = &mut self.hot[session.key.slot as usize];
        hot.upstream = -1;
        hot.generation = u32::MAX;
        self.by_sequence.remove(&session.sequence);
    }

    pub(crate) fn vacate(&mut self, key: Key) {
        self.sessions.vacate(key);
    }

    /// The key of the session that has a slot now.
    pub(crate) fn key_at(&self, slot: u32) -> Key {
        Key { slot, generation: self.hot[slot as usize].generation }
    }

    /// Whether a key is of the session that has its slot now.
    #[inline]
    pub(crate) fn is_current(&self, key: Key) -> bool {
        self.hot.get(key.slot as usize).is_some_and(|hot| hot.generation == key.generation)
    }

    #[inline]
    pub(crate) fn flow_hash(&self, flow: &FlowKey) -> u64 {
        self.flows.hash(flow)
    }

    /// The slot of a flow, by its hash.
    #[inline]
    pub(crate) fn slot_of(&self, hash: u64, flow: &FlowKey) -> Option<u32> {
        self.flows.get(hash, flow, |slot| self.hot[slot as usize].key)
    }

    /// The session of a flow.
    pub(crate) fn key_of_flow(&self, flow: &FlowKey) -> Option<Key> {
        self.slot_of(self.flow_hash(flow), flow).map(|slot| self.key_at(slot))
    }

    pub(crate) fn add_flow(&mut self, flow: &FlowKey, hash: u64, slot: u32, peer: &SockAddr) {
        self.hot[slot as usize].key = *flow;
        self.hot[slot as usize].peer = *peer;
        self.flows.insert(hash, slot, |slot| self.hot[slot as usize].key);
    }

    pub(crate) fn remove_flow(&mut self, slot: u32) {
        let flow = self.hot[slot as usize].key;
        self.flows.remove(&flow, |slot| self.hot[slot as usize].key);
    }

    pub(crate) fn unix_peer(&self, port: u32, peer: &[u8]) -> Option<Key> {
        self.unix_peers.get(&(port, peer.to_vec())).copied()
    }

    pub(crate) fn add_unix_peer(&mut self, port: u32, peer: &[u8], key: Key) {
        self.unix_peers.insert((port, peer.to_vec()), key);
    }

    pub(crate) fn remove_unix_peer(&mut self, port: u32, peer: &[u8]) {
        self.unix_peers.remove(&(port, peer.to_vec()));
    }

    /// Keys of all sessions, oldest first.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.by_sequence.values().copied().collect()
    }

    /// Sessions from a sequence number on, oldest first.
    pub(crate) fn from(&self, sequence: u64) -> impl Iterator<Item = &Session> {
        self.by_sequence.range(sequence..).filter_map(|(_, key)| self.get(*key))
    }

    /// At most `count` keys from a sequence number on, and where the next slice begins.
    pub(crate) fn slice(&self, sequence: u64, count: usize) -> (Vec<Key>, Option<u64>) {
        let mut slice = self.by_sequence.range(sequence..);
        let keys = slice.by_ref().take(count).map(|(_, key)| *key).collect();
        (keys, slice.next().map(|(at, _)| *at))
    }

    pub(crate) fn traffic(&self, key: Key) -> Traffic {
        let hot = &self.hot[key.slot as usize];
        Traffic {
            packets_in: hot.packets_in,
            packets_out: hot.packets_out,
            bytes_in: hot.bytes_in,
            bytes_out: hot.bytes_out,
        }
    }

    /// Keeps a finished session for lists until its time is over.
    pub(crate) fn track(&mut self, finished: Finished) {
        if self.finished.len() >= TRACKED {
            self.drop_first_finished();
        }
        self.expiry.insert((finished.until, finished.sequence));
        self.finished.insert(finished.sequence, finished);
    }

    fn drop_first_finished(&mut self) {
        if let Some((_, sequence)) = self.expiry.pop_first() {
            self.finished.remove(&sequence);
        }
    }

    /// Finished sessions from a sequence number on, oldest first.
    pub(crate) fn finished_from(&self, sequence: u64) -> impl Iterator<Item = &Finished> {
        self.finished.range(sequence..).map(|(_, finished)| finished)
    }

    pub(crate) fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    pub(crate) fn expire_finished(&mut self, now_ms: u64) {
        while self.expiry.first().is_some_and(|(until, _)| *until <= now_ms) {
            self.drop_first_finished();
        }
    }

    /// Takes over the finished sessions of a worker that is replaced.
    pub(crate) fn adopt_finished(&mut self, before: Self) {
        self.finished = before.finished;
        self.expiry = before.expiry;
    }
}
