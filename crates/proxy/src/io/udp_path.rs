//! The buffers of the UDP packet path: datagrams in by batches, grouped by flow, out with as few calls as possible.

use super::flow::FlowKey;
use super::session::Hot;
use super::sys::{BATCH, Gather, Received, RecvBatch, Sent, SockAddr, send_one};
use super::table::SessionTable;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;

/// Datagrams of one flow within a batch: a chain of buffers.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    pub slot: u32,
    first: u32,
    last: u32,
}

/// A received buffer: its flow, and the slot that the flow had when it arrived.
#[derive(Clone, Copy, Default)]
struct Arrived {
    flow: FlowKey,
    hash: u64,
    slot: Option<u32>,
}

/// Refused clients that are remembered.
const REFUSED: usize = 65_536;

/// Ends a chain.
const END: u32 = u32::MAX;

/// Replies gathered for one listening socket.
#[derive(Default)]
struct ReplyBatch {
    gather: Gather,
    fd: RawFd,
    /// Buffers of `answered` that are in use.
    used: usize,
}

/// Datagrams of a batch of replies.
pub(crate) struct Replies {
    pub messages: usize,
    pub packets: u64,
    pub bytes: u64,
}

/// Buffers and groups of the batch in work.
pub(crate) struct UdpPath {
    received: RecvBatch,
    answered: RecvBatch,
    to_upstream: Gather,
    replies: ReplyBatch,
    batch: u32,
    arrived: [Arrived; BATCH],
    groups: Vec<Group>,
    next_in_group: [u32; BATCH],
    segments: [u32; BATCH],
    /// Clients whose endpoint refused, and until when they are not served.
    refused: BTreeMap<FlowKey, u64>,
}

impl UdpPath {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            received: RecvBatch::new(true)?,
            answered: RecvBatch::new(false)?,
            to_upstream: Gather::default(),
            replies: ReplyBatch::default(),
            batch: 0,
            arrived: [Arrived::default(); BATCH],
            groups: Vec::with_capacity(BATCH),
            next_in_group: [0; BATCH],
            segments: [0; BATCH],
            refused: BTreeMap::new(),
        })
    }

    /// Receives a batch from a listening socket and looks up its flows; returns the number of buffers, and of datagrams
    /// that arrived coalesced.
    pub(crate) fn receive(&mut self, fd: RawFd, port: u32, sessions: &SessionTable) -> io::Result<(usize, u64)> {
        let count = self.received.receive(fd, 0)?;
        self.batch = self.batch.wrapping_add(1);
        self.groups.clear();
        let mut coalesced = 0;
        for i in 0..count {
            let received = self.received.take(i);
            self.segments[i] = received.segment as u32;
            if received.data.len() > received.segment {
                coalesced += received.datagrams() as u64;
            }
            let (address, peer_port) = self.received.from(i).key();
            let flow = FlowKey::new(address, port, peer_port);
            self.arrived[i] = Arrived { flow, hash: sessions.flow_hash(&flow), slot: None };
        }
        // All flows are looked up before any is handled, so that their cache misses overlap.
        for arrived in &mut self.arrived[..count] {
            arrived.slot = sessions.slot_of(arrived.hash, &arrived.flow);
        }
        Ok((count, coalesced))
    }

    /// The slot that was found for buffer `i`, unless handling an earlier buffer ended its session.
    #[inline]
    pub(crate) fn known_slot(&self, i: usize, sessions: &SessionTable) -> Option<u32> {
        let Arrived { flow, slot, .. } = &self.arrived[i];
        slot.filter(|slot| {
            let hot = &sessions.hot[*slot as usize];
            hot.key == *flow && hot.generation != u32::MAX
        })
    }

    /// Flow and hash of buffer `i`.
    pub(crate) const fn flow(&self, i: usize) -> (FlowKey, u64) {
        (self.arrived[i].flow, self.arrived[i].hash)
    }

    pub(crate) const fn sender(&self, i: usize) -> &SockAddr {
        self.received.from(i)
    }

    pub(crate) fn data(&self, i: usize) -> &[u8] {
        self.received.data(i)
    }

    pub(crate) fn dscp(&self, i: usize) -> Option<u8> {
        self.received.dscp(i)
    }

    /// Adds buffer `i` to the group of its flow.
    #[inline]
    pub(crate) fn add_to_group(&mut self, i: usize, slot: u32, hot: &mut Hot) {
        self.next_in_group[i] = END;
        if hot.batch == self.batch {
            let group = &mut self.groups[hot.group as usize];
            self.next_in_group[group.last as usize] = i as u32;
            group.last = i as u32;
        } else {
            hot.batch = self.batch;
            hot.group = self.groups.len() as u16;
            self.groups.push(Group { slot, first: i as u32, last: i as u32 });
        }
    }

    /// The `at`-th group of the batch.
    pub(crate) fn group(&self, at: usize) -> Option<Group> {
        self.groups.get(at).copied()
    }

    /// Sends the datagrams of a group straight to the endpoint, and counts their bytes.
    #[inline]
    pub(crate) fn send_group(&mut self, group: Group, upstream: RawFd, join: bool) -> (Sent, u64) {
        let first = self.received.data(group.first as usize);
        if group.first == group.last && first.len() <= self.segments[group.first as usize] as usize {
            return (send_one(upstream, first, None), first.len() as u64);
        }
        let (mut bytes, mut at) = (0, group.first);
        while at != END {
            let data = self.received.data(at as usize);
            bytes += data.len() as u64;
            // SAFETY: the buffers of `received` are not touched before the flush below.
            unsafe { self.to_upstream.push(data, self.segments[at as usize] as usize, None, join, 0) };
            at = self.next_in_group[at as usize];
        }
        (self.to_upstream.flush(upstream), bytes)
    }

    /// Copies of the datagrams of a group, for sessions that are not on the fast path.
    pub(crate) fn copy_group(&self, group: Group) -> Vec<Vec<u8>> {
        let mut at = group.first;
        let mut datagrams: Vec<Vec<u8>> = Vec::new();
        while at != END {
            let data = self.received.data(at as usize);
            let received = Received { data, segment: self.segments[at as usize] as usize };
            datagrams.extend(received.split().map(<[u8]>::to_vec));
            at = self.next_in_group[at as usize];
        }
        datagrams
    }

    /// Whether replies for this listening socket can be gathered without a flush.
    #[inline]
    pub(crate) fn has_room_for_replies(&self, fd: RawFd) -> bool {
        self.replies.fd == fd && self.replies.used <= BATCH / 2 && self.replies.gather.has_room()
    }

    /// Begins to gather replies for another listening socket, after a flush.
    pub(crate) fn gather_for(&mut self, fd: RawFd) {
        self.replies.fd = fd;
    }

    /// Receives replies from an endpoint and gathers them for the session's client.
    #[inline]
    pub(crate) fn receive_replies(&mut self, upstream: RawFd, slot: u32, hot: &Hot) -> io::Result<Replies> {
        let start = self.replies.used;
        let count = self.answered.receive(upstream, start)?;
        self.replies.used += count;
        let (mut packets, mut bytes) = (0, 0);
        for i in start..start + count {
            let received = self.answered.take(i);
            packets += received.datagrams() as u64;
            bytes += received.data.len() as u64;
            // SAFETY: buffers of `answered` below `replies.used` are not received into before `flush_replies`.
            unsafe { self.replies.gather.push(received.data, received.segment, Some(&hot.peer), !hot.singly, slot) };
        }
        Ok(Replies { messages: count, packets, bytes })
    }

    /// Sends the replies that were gathered, if there are any.
    #[inline]
    pub(crate) fn flush_replies(&mut self) -> Option<Sent> {
        self.replies.used = 0;
        if self.replies.gather.is_empty() {
            return None;
        }
        Some(self.replies.gather.flush(self.replies.fd))
    }

    /// Receives from an endpoint's socket as copies, for sessions that are not on the fast path; call it after
    /// [`Self::flush_replies`]. Returns the number of buffers and their datagrams.
    pub(crate) fn receive_copies(&mut self, fd: RawFd) -> io::Result<(usize, Vec<Vec<u8>>)> {
        let count = self.answered.receive(fd, 0)?;
        let mut datagrams = Vec::new();
        for i in 0..count {
            datagrams.extend(self.answered.take(i).split().map(<[u8]>::to_vec));
        }
        Ok((count, datagrams))
    }

    /// Does not serve a client for a while, because its endpoint refused.
    pub(crate) fn refuse(&mut self, flow: FlowKey, until_ms: u64) {
        if self.refused.len() < REFUSED || self.refused.contains_key(&flow) {
            self.refused.insert(flow, until_ms);
        }
    }

    pub(crate) fn is_refused(&self, flow: &FlowKey, now_ms: u64) -> bool {
        !self.refused.is_empty() && self.refused.get(flow).is_some_and(|until| *until > now_ms)
    }

    pub(crate) fn expire_refused(&mut self, now_ms: u64) {
        self.refused.retain(|_, until| *until > now_ms);
    }
}
