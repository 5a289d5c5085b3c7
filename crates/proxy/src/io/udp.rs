//! The packet path: datagrams in by batches, grouped by flow, out by as few calls as possible.

use super::circuit::confirm_endpoint;
use super::flow::FlowKey;
use super::link::Link;
use super::session::ServerHandshake;
use super::slab::Key;
use super::stats::Drop;
use super::sys::{BATCH, Received, Sent, SockAddr, coalesce, send_one, would_block};
use super::worker::Worker;
use crate::proto::Message;
use std::os::fd::{AsRawFd, RawFd};

/// Datagrams of one flow within a batch: a chain of buffers.
#[derive(Clone, Copy)]
pub(super) struct Group {
    slot: u32,
    first: u32,
    last: u32,
}

/// A received buffer: whose it is, and the slot that this flow had when it came.
#[derive(Clone, Copy, Default)]
pub(super) struct Arrived {
    key: FlowKey,
    hash: u64,
    slot: Option<u32>,
}

/// Ends a chain.
const END: u32 = u32::MAX;

impl Worker {
    /// A listening UDP socket has datagrams.
    pub(super) fn receive_udp(&mut self, port: u32, fd: RawFd) {
        let Ok(count) = self.received.receive(fd, 0) else { return };
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
            let key = FlowKey::new(address, port, peer_port);
            self.arrived[i] = Arrived { key, hash: self.flows.hash(&key), slot: None };
        }
        self.stats.segments_in.add(coalesced);
        // All flows are looked for before any is worked on: what is not in the cache comes at the same time.
        for arrived in &mut self.arrived[..count] {
            arrived.slot = self.flows.get(arrived.hash, &arrived.key, |slot| self.hot[slot as usize].key);
        }
        for i in 0..count {
            self.assign(port, i);
        }
        for at in 0..self.groups.len() {
            self.forward_group(self.groups[at]);
        }
    }

    /// Makes sure that buffer `i` has a session and adds it to the flow's group.
    fn assign(&mut self, port: u32, i: usize) {
        let Some(slot) = self.known(i).or_else(|| self.open_flow(port, i)) else { return };
        self.next_in_group[i] = END;
        let hot = &mut self.hot[slot as usize];
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

    /// The session that was found for buffer `i`, unless one of the buffers before has ended it.
    fn known(&self, i: usize) -> Option<u32> {
        let Arrived { key, slot, .. } = &self.arrived[i];
        slot.filter(|slot| self.hot[*slot as usize].key == *key && self.hot[*slot as usize].generation != u32::MAX)
    }

    /// Makes a session for buffer `i`, unless one of the buffers before did.
    fn open_flow(&mut self, port: u32, i: usize) -> Option<u32> {
        let Arrived { key, hash, .. } = self.arrived[i];
        let found = self.flows.get(hash, &key, |slot| self.hot[slot as usize].key);
        if found.is_some() || self.is_close_notice(&key, self.received.data(i)) {
            return found;
        }
        let from = *self.received.from(i);
        self.open_udp(key, hash, &from, self.dscp_of(port, i))
    }

    /// The code point of buffer `i`, where the port reads it.
    fn dscp_of(&self, port: u32, i: usize) -> Option<u8> {
        self.ports.get(&port).filter(|open| open.reads_dscp).and_then(|_| self.received.dscp(i))
    }

    fn forward_group(&mut self, group: Group) {
        let hot = &self.hot[group.slot as usize];
        if hot.upstream < 0 {
            return self.forward_group_slowly(group);
        }
        let (upstream, join) = (hot.upstream, !hot.singly);
        let (sent, bytes) = self.send_group(group, upstream, join);
        let hot = &mut self.hot[group.slot as usize];
        let packets = sent.datagrams + sent.dropped;
        hot.seen = self.now.ms;
        hot.packets_in += packets;
        hot.bytes_in += bytes;
        hot.singly |= sent.unsegmented;
        self.stats.packets_in.add(packets);
        self.stats.bytes_in.add(bytes);
        self.stats.segments_out.add(sent.segmented);
        if sent.dropped > 0 {
            self.count_drop(Drop::Send, sent.dropped);
        }
        if let Some(code) = sent.broken {
            let key = Key { slot: group.slot, generation: self.hot[group.slot as usize].generation };
            self.drop_stage(key, 1, &std::io::Error::from_raw_os_error(code), "sendmsg");
        }
    }

    /// Sends the datagrams of a group straight to the endpoint, and counts their bytes.
    fn send_group(&mut self, group: Group, upstream: RawFd, join: bool) -> (Sent, u64) {
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

    /// Message by message through the session's stages.
    fn forward_group_slowly(&mut self, group: Group) {
        let generation = self.hot[group.slot as usize].generation;
        let key = Key { slot: group.slot, generation };
        let mut at = group.first;
        // Copies let the session be worked on; this is not the fast path.
        let mut datagrams: Vec<Vec<u8>> = Vec::new();
        while at != END {
            let data = self.received.data(at as usize);
            let received = Received { data, segment: self.segments[at as usize] as usize };
            datagrams.extend(received.split().map(<[u8]>::to_vec));
            at = self.next_in_group[at as usize];
        }
        let Some(session) = self.sessions.get(key) else { return };
        let sizes: Vec<usize> = datagrams.iter().map(Vec::len).collect();
        let passing = &datagrams[self.apply_rate_limits(session, &sizes)];
        self.with_session(key, |worker, session| {
            worker.gathering(session, |worker, session| {
                for datagram in passing {
                    worker.handle_source(session, Message::binary(datagram));
                }
            });
        });
    }

    /// The socket of a UDP stage has datagrams, or an error.
    pub(super) fn receive_answers(&mut self, key: Key, at: usize) {
        let hot = &self.hot[key.slot as usize];
        if hot.generation != key.generation {
            return;
        }
        if hot.upstream < 0 {
            return self.receive_slowly(key, at);
        }
        let (upstream, listener) = (hot.upstream, hot.key.listener);
        let Some(port) = self.ports.get(&listener) else { return };
        if self.replies.fd != port.fd || self.replies.used > BATCH / 2 || !self.replies.gather.has_room() {
            let fd = port.fd;
            self.flush_replies();
            self.replies.fd = fd;
        }
        let start = self.replies.used;
        let count = match self.answered.receive(upstream, start) {
            Ok(count) => count,
            Err(error) if would_block(&error) => return,
            Err(error) => return self.drop_stage(key, at, &error, "recvmsg"),
        };
        self.replies.used += count;
        let hot = &mut self.hot[key.slot as usize];
        let (mut packets, mut bytes) = (0, 0);
        for i in start..start + count {
            let received = self.answered.take(i);
            packets += received.datagrams() as u64;
            bytes += received.data.len() as u64;
            // SAFETY: buffers of `answered` below `back.used` are not received into before `flush_replies`.
            unsafe {
                self.replies.gather.push(received.data, received.segment, Some(&hot.peer), !hot.singly, key.slot)
            };
        }
        hot.seen = self.now.ms;
        hot.packets_out += packets;
        hot.bytes_out += bytes;
        let first = std::mem::replace(&mut hot.unconfirmed, false);
        if count > 1 && !std::mem::replace(&mut hot.joined, true) {
            coalesce(upstream);
        }
        self.stats.packets_out.add(packets);
        self.stats.bytes_out.add(bytes);
        if first {
            self.with_session(key, |_, session| confirm_endpoint(&mut session.stages[at - 1]));
        }
    }

    /// Sends the answers that were gathered.
    pub(super) fn flush_replies(&mut self) {
        self.replies.used = 0;
        if self.replies.gather.is_empty() {
            return;
        }
        let sent = self.replies.gather.flush(self.replies.fd);
        self.stats.segments_out.add(sent.segmented);
        if sent.dropped > 0 {
            self.count_drop(Drop::Send, sent.dropped);
        }
    }

    /// A datagram socket of a stage that is not on the fast path.
    fn receive_slowly(&mut self, key: Key, at: usize) {
        for _ in 0..BATCH {
            let Some(session) = self.sessions.get(key) else { return };
            let Some(Link::Datagram(fd)) = session.stages.get(at.wrapping_sub(1)).map(|stage| &stage.link) else {
                return;
            };
            let fd = fd.as_raw_fd();
            self.flush_replies();
            match self.answered.receive(fd, 0) {
                Ok(count) => {
                    for i in 0..count {
                        let received = self.answered.take(i);
                        let messages: Vec<Vec<u8>> = received.split().map(<[u8]>::to_vec).collect();
                        for message in messages {
                            self.with_session(key, |worker, session| {
                                worker.handle_stage(session, at, Message::binary(&message));
                            });
                        }
                    }
                    if count < BATCH {
                        return;
                    }
                }
                Err(error) if would_block(&error) => return,
                Err(error) => return self.drop_stage(key, at, &error, "recvmsg"),
            }
        }
    }

    /// Turns the fast path on or off, as the session allows.
    pub(super) fn choose_path(&mut self, session: &super::session::Session) {
        let fast = session.machine.is_open()
            && matches!(session.source, Link::UdpPeer)
            && matches!(session.handshake, ServerHandshake::None | ServerHandshake::Open(_))
            && session.stages.len() == 1
            // packets leave joined as segments, which Unix sockets would take for one message
            && session.stages[0].cluster.as_ref().is_some_and(|cluster| cluster.spec.is_over_udp())
            && session.limiters().next().is_none();
        let upstream = match &session.stages.first().map(|stage| &stage.link) {
            Some(Link::Datagram(fd)) if fast => fd.as_raw_fd(),
            _ => -1,
        };
        let hot = &mut self.hot[session.key.slot as usize];
        hot.upstream = upstream;
        hot.joined = upstream < 0;
        if hot.joined {
            let sockets = session.stages.iter().filter(|stage| stage.is_udp()).filter_map(|stage| stage.link.socket());
            sockets.for_each(coalesce);
        }
        hot.unconfirmed = session.stages.first().is_some_and(|stage| stage.unconfirmed);
    }

    /// Sends one datagram to a UDP client.
    pub(super) fn answer_udp(&mut self, slot: u32, data: &[u8], fd: RawFd) {
        let hot = &self.hot[slot as usize];
        if super::sys::send_to(fd, data, &hot.peer).is_err() {
            self.count_drop(Drop::Send, 1);
        }
    }

    pub(super) fn add_flow(&mut self, key: &FlowKey, hash: u64, slot: u32, peer: &SockAddr) {
        self.hot[slot as usize].key = *key;
        self.hot[slot as usize].peer = *peer;
        self.flows.insert(hash, slot, |slot| self.hot[slot as usize].key);
    }

    pub(super) fn remove_flow(&mut self, slot: u32) {
        let key = self.hot[slot as usize].key;
        self.flows.remove(&key, |slot| self.hot[slot as usize].key);
    }
}
