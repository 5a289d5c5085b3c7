//! Datagrams of UDP clients: by batches, grouped by flow, straight to the endpoint where possible.

use crate::config::types::ListenerSpec;
use crate::io::circuit::confirm_endpoint;
use crate::io::flow::FlowKey;
use crate::io::incoming::Incoming;
use crate::io::link::Link;
use crate::io::loop_detection::Family;
use crate::io::port::{ListenerState, Port};
use crate::io::session::{ServerHandshake, Session};
use crate::io::slab::Key;
use crate::io::stats::Drop;
use crate::io::sys::{self, BATCH, SockAddr, coalesce, would_block};
use crate::io::udp_path::Group;
use crate::io::worker::Worker;
use crate::proto::Message;
use std::io::Error;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

impl Worker {
    /// A listening UDP socket has datagrams.
    pub(crate) fn receive_udp(&mut self, port: u32, fd: RawFd) {
        let Ok((count, coalesced)) = self.udp.receive(fd, port, &self.sessions) else { return };
        self.stats.segments_in.add(coalesced);
        for i in 0..count {
            if let Some(slot) = self.udp.known_slot(i, &self.sessions).or_else(|| self.open_flow(port, i)) {
                self.udp.add_to_group(i, slot, &mut self.sessions.hot[slot as usize]);
            }
        }
        let mut at = 0;
        while let Some(group) = self.udp.group(at) {
            self.forward_group(group);
            at += 1;
        }
    }

    /// Creates a session for buffer `i`, unless an earlier buffer did.
    fn open_flow(&mut self, port: u32, i: usize) -> Option<u32> {
        let (flow, hash) = self.udp.flow(i);
        let found = self.sessions.slot_of(hash, &flow);
        if found.is_some() || self.is_close_notice(&flow, self.udp.data(i)) {
            return found;
        }
        let from = *self.udp.sender(i);
        let dscp = self.ports.get(port).filter(|open| open.reads_dscp).and_then(|_| self.udp.dscp(i));
        self.open_udp(flow, hash, &from, dscp)
    }

    fn forward_group(&mut self, group: Group) {
        let hot = &self.sessions.hot[group.slot as usize];
        if hot.upstream < 0 {
            return self.forward_group_slowly(group);
        }
        let (upstream, join) = (hot.upstream, !hot.singly);
        let (sent, bytes) = self.udp.send_group(group, upstream, join);
        let hot = &mut self.sessions.hot[group.slot as usize];
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
            let key = self.sessions.key_at(group.slot);
            self.drop_stage(key, 1, &Error::from_raw_os_error(code), "sendmsg");
        }
    }

    /// Message by message through the session's stages.
    fn forward_group_slowly(&mut self, group: Group) {
        let key = self.sessions.key_at(group.slot);
        // copies, so that the session can be worked on
        let datagrams = self.udp.copy_group(group);
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
    pub(crate) fn receive_answers(&mut self, key: Key, at: usize) {
        if !self.sessions.is_current(key) {
            return;
        }
        let hot = &self.sessions.hot[key.slot as usize];
        if hot.upstream < 0 {
            return self.receive_slowly(key, at);
        }
        let (upstream, listener) = (hot.upstream, hot.key.listener);
        let Some(port) = self.ports.get(listener) else { return };
        let fd = port.fd;
        if !self.udp.has_room_for_replies(fd) {
            self.flush_replies();
            self.udp.gather_for(fd);
        }
        let hot = &mut self.sessions.hot[key.slot as usize];
        let replies = match self.udp.receive_replies(upstream, key.slot, hot) {
            Ok(replies) => replies,
            Err(error) if would_block(&error) => return,
            Err(error) => return self.drop_stage(key, at, &error, "recvmsg"),
        };
        hot.seen = self.now.ms;
        hot.packets_out += replies.packets;
        hot.bytes_out += replies.bytes;
        let first = std::mem::replace(&mut hot.unconfirmed, false);
        if replies.messages > 1 && !std::mem::replace(&mut hot.joined, true) {
            coalesce(upstream);
        }
        self.stats.packets_out.add(replies.packets);
        self.stats.bytes_out.add(replies.bytes);
        if first {
            self.with_session(key, |_, session| confirm_endpoint(&mut session.stages[at - 1]));
        }
    }

    /// Sends the replies that were gathered.
    pub(crate) fn flush_replies(&mut self) {
        let Some(sent) = self.udp.flush_replies() else { return };
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
            match self.udp.receive_copies(fd) {
                Ok((count, messages)) => {
                    for message in messages {
                        self.with_session(key, |worker, session| {
                            worker.handle_stage(session, at, Message::binary(&message));
                        });
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
    pub(crate) fn choose_path(&mut self, session: &Session) {
        let fast = session.machine.is_open()
            && matches!(session.source, Link::UdpPeer)
            && matches!(session.handshake, ServerHandshake::None | ServerHandshake::Open(_))
            && session.stages.len() == 1
            // datagrams leave as segments of one message, which a Unix socket would deliver as one
            && session.stages[0].cluster.as_ref().is_some_and(|cluster| cluster.spec.is_over_udp())
            && session.limiters().next().is_none();
        let upstream = match &session.stages.first().map(|stage| &stage.link) {
            Some(Link::Datagram(fd)) if fast => fd.as_raw_fd(),
            _ => -1,
        };
        let hot = &mut self.sessions.hot[session.key.slot as usize];
        hot.upstream = upstream;
        hot.joined = upstream < 0;
        if hot.joined {
            let sockets = session.stages.iter().filter(|stage| stage.is_udp()).filter_map(|stage| stage.link.socket());
            sockets.for_each(coalesce);
        }
        hot.unconfirmed = session.stages.first().is_some_and(|stage| stage.unconfirmed);
    }

    /// Sends one datagram to a UDP client.
    pub(crate) fn answer_udp(&mut self, slot: u32, data: &[u8], fd: RawFd) {
        if sys::send_to(fd, data, &self.sessions.hot[slot as usize].peer).is_err() {
            self.count_drop(Drop::Send, 1);
        }
    }

    /// Creates the session of a new UDP client, unless it may not be served.
    pub(crate) fn open_udp(&mut self, key: FlowKey, hash: u64, from: &SockAddr, dscp: Option<u8>) -> Option<u32> {
        let port = Arc::clone(&self.ports.get(key.listener)?.port);
        let listener = port.listener.load_full()?;
        let peer = from.to_std();
        let ListenerSpec::Udp(udp) = listener.config.spec.transport() else { return None };
        let other = |wanted: Option<IpAddr>| wanted.is_some_and(|address| address != peer.ip());
        if other(udp.connect.address) || udp.connect.port.is_some_and(|port| port != peer.port()) {
            return None;
        }
        if self.udp.is_refused(&key, self.now.ms) {
            self.count_drop(Drop::NoRoute, 1);
            return None;
        }
        if self.ports.listens_on(Family::Udp, peer) {
            self.count_drop(Drop::Loop, 1);
            return None;
        }
        let (local, source) = (port.local, Link::UdpPeer);
        let incoming = Incoming { listener, port: Some(port), local, peer: Some(peer), source, metadata: None, dscp };
        let session = self.admit(incoming)?;
        let Key { slot, generation } = session.key;
        self.sessions.add_flow(&key, hash, slot, from);
        self.begin(session);
        // a session that ended at once has removed its flow
        (self.sessions.hot[slot as usize].generation == generation).then_some(slot)
    }

    /// The session of a singleton exists without any packet.
    pub(crate) fn open_singleton(&mut self, port: &Arc<Port>, listener: &ListenerState) {
        let ListenerSpec::Udp(udp) = listener.config.spec.transport() else { return };
        let (Some(address), Some(peer_port)) = (udp.connect.address, udp.connect.port) else { return };
        let address = self.shared.host_mapping.map_address(address);
        if address.is_ipv4() != port.local.is_ipv4() {
            return;
        }
        let peer = SockAddr::from(SocketAddr::new(address, peer_port));
        let (bits, number) = peer.key();
        let key = FlowKey::new(bits, port.id, number);
        let hash = self.sessions.flow_hash(&key);
        if self.sessions.slot_of(hash, &key).is_none() {
            self.open_udp(key, hash, &peer, None);
        }
    }
}
