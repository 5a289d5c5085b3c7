//! Close notices: how a JSONSocket server over UDP learns that a client has ended its session, which otherwise would stay
//! until its idle timeout.
//!
//! The client sends the notice from another port than the session's, so that datagrams of sessions need not be inspected:
//! at the server it is the first datagram of an unknown flow. Only Portolan proxies send and understand it;
//! `handshake.retransmit_ms` enables it, as it does retransmitted headers.

use crate::config::types::{ClusterSpec, ListenerSpec};
use crate::io::command::Command;
use crate::io::flow::FlowKey;
use crate::io::port::Port;
use crate::io::session::Session;
use crate::io::stats::Drop;
use crate::io::sys;
use crate::io::worker::Worker;
use crate::proto::json_socket;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

impl Worker {
    /// The token that the server of a stage gets with the header, and again with the close notice.
    pub(crate) fn close_token(&self, session: &Session, stage: usize) -> u64 {
        let place = (u128::from(session.sequence) << 64) + stage as u128;
        xxh3_64_with_seed(&place.to_ne_bytes(), self.shared.close_token_seed)
    }

    /// Notifies the server of a stage that its session has ended. The notice may be lost, like any datagram.
    pub(crate) fn send_close_notice(&self, session: &Session, stage: usize, socket: &OwnedFd) {
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

    /// Whether the first datagram of a flow is a close notice; it goes to all workers, as any may have the session.
    pub(crate) fn is_close_notice(&self, flow: &FlowKey, data: &[u8]) -> bool {
        let Some((port, token)) = json_socket::parse_close_notice(data) else { return false };
        if !self.ports.get(flow.listener).is_some_and(|open| speaks_json_socket(&open.port)) {
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

    /// Ends the session of a client that sent a close notice, if this worker has it and the token is right.
    pub(crate) fn handle_close_notice(&mut self, flow: FlowKey, token: u64) {
        let Some(key) = self.sessions.key_of_flow(&flow) else { return };
        if self.sessions.get(key).and_then(|session| session.handshake.close_token()) == Some(token) {
            self.with_session(key, Self::source_lost);
        }
    }
}

fn speaks_json_socket(port: &Arc<Port>) -> bool {
    let listener = port.listener.load();
    listener.as_ref().is_some_and(|listener| matches!(listener.config.spec, ListenerSpec::JsonSocket(_)))
}
