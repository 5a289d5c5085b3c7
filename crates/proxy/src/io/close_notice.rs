//! How a JSONSocket server over UDP learns that a client is done: nothing else would tell it, and the session would stay
//! until it had been idle for too long.
//!
//! The client says so from another port than the session's, so that datagrams of sessions are never looked at: at the
//! server it is the first datagram of a flow that is not known. Only proxies of ours say and understand it; as with
//! repeated headers, `handshake.retransmit_ms` tells where they are.

use super::commands::Command;
use super::flow::FlowKey;
use super::port::Port;
use super::session::{ServerHandshake, Session};
use super::slab::Key;
use super::stats::Drop;
use super::sys;
use super::worker::Worker;
use crate::config::types::{ClusterSpec, ListenerSpec};
use crate::proto::json_socket;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

impl Worker {
    /// The word that a stage's server gets with the header, and again at the end.
    pub(super) fn close_token(&self, session: &Session, stage: usize) -> u64 {
        let place = (u128::from(session.sequence) << 64) + stage as u128;
        xxh3_64_with_seed(&place.to_ne_bytes(), self.shared.close_token_seed)
    }

    /// Tells the server of a stage that its session is over. The word may be lost, as all datagrams may.
    pub(super) fn send_close_notice(&self, session: &Session, stage: usize, socket: &OwnedFd) {
        let Some(cluster) = &session.stages[stage].cluster else { return };
        let ours = matches!(&cluster.spec, ClusterSpec::JsonSocket(json) if json.retransmit_ms > 0);
        if !ours || !cluster.spec.is_over_udp() {
            return;
        }
        let fd = socket.as_raw_fd();
        let (Ok(to), Ok(from)) = (sys::peer_address(fd), sys::local_address(fd)) else { return };
        let Ok(other) = sys::udp_connected(to, Some(SocketAddr::new(from.ip(), 0)), None) else { return };
        let word = json_socket::close_notice(from.port(), self.close_token(session, stage));
        if sys::send(other.as_raw_fd(), &word).is_err() {
            self.count_drop(Drop::Send, 1);
        }
    }

    /// Whether the first datagram of a flow is a farewell; it is told to all workers, as any may have the session.
    pub(super) fn is_close_notice(&self, flow: &FlowKey, data: &[u8]) -> bool {
        let Some((port, token)) = json_socket::parse_close_notice(data) else { return false };
        if !self.ports.get(&flow.listener).is_some_and(|open| speaks_json_socket(&open.port)) {
            return false;
        }
        let mut flow = *flow;
        flow.port = port;
        for ring in &self.shared.rings {
            if ring.push(Command::CloseNotice { flow, token }).is_err() {
                self.count_drop(Drop::Send, 1);
            }
        }
        true
    }

    /// Ends the session of a client that said farewell, if it is here and the word is right.
    pub(super) fn handle_close_notice(&mut self, flow: FlowKey, token: u64) {
        let Some(slot) = self.flows.get(self.flows.hash(&flow), &flow, |slot| self.hot[slot as usize].key) else {
            return;
        };
        let key = Key { slot, generation: self.hot[slot as usize].generation };
        if self.sessions.get(key).and_then(|session| token_of(session)) == Some(token) {
            self.with_session(key, Self::source_lost);
        }
    }
}

fn speaks_json_socket(port: &Arc<Port>) -> bool {
    let listener = port.listener.load();
    listener.as_ref().is_some_and(|listener| matches!(listener.config.spec, ListenerSpec::JsonSocket(_)))
}

fn token_of(session: &Session) -> Option<u64> {
    match &session.handshake {
        ServerHandshake::Open(token) => Some(*token),
        ServerHandshake::Read(header) | ServerHandshake::Answered(header) => of_header(header),
        ServerHandshake::None | ServerHandshake::Waiting(_) => None,
    }
}

/// What is left of a handshake once data has come.
pub(super) fn after_header(header: &[u8]) -> ServerHandshake {
    of_header(header).map_or(ServerHandshake::None, ServerHandshake::Open)
}

fn of_header(header: &[u8]) -> Option<u64> {
    json_socket::take_token(&mut json_socket::parse_request(header).ok()?)
}
