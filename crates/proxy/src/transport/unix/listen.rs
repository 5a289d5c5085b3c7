//! Unix-domain listeners: connections, and datagrams of named peers.

use super::config::UdsType;
use crate::config::types::ListenerSpec;
use crate::io::accept::ACCEPTS;
use crate::io::incoming::Incoming;
use crate::io::link::{Link, Stream};
use crate::io::port::{BindAddress, Port};
use crate::io::slab::Key;
use crate::io::stats::Drop;
use crate::io::sys::{self, BATCH};
use crate::io::worker::Worker;
use crate::proto::Message;
use serde_json::json;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

impl Worker {
    pub(crate) fn accept_unix(&mut self, port: &Arc<Port>, fd: RawFd) {
        for _ in 0..ACCEPTS {
            let socket = match sys::accept_unix(fd) {
                Ok(socket) => socket,
                Err(error) => return self.accept_failed(port, fd, &error),
            };
            let Some(listener) = port.listener.load_full() else { return };
            let Ok(socket) = self.check_descriptor_limit(Ok(socket)) else {
                self.count_drop(Drop::Cap, 1);
                continue;
            };
            let ListenerSpec::Uds(uds) = listener.config.spec.transport() else { return };
            let mut unix = json!({ "filename": uds.filename.display().to_string() });
            if let Some(peer) = sys::peer_credentials(socket.as_raw_fd()) {
                unix["uid"] = peer.uid.into();
                unix["gid"] = peer.gid.into();
                unix["pid"] = peer.pid.into();
            }
            let source = if matches!(port.bind_address, BindAddress::Unix(_, UdsType::Seqpacket)) {
                Link::Datagram(socket)
            } else {
                Link::Stream(Box::new(Stream::new(socket, self.codec(uds.framing))))
            };
            let metadata = Some(json!({ "UNIX": unix }));
            let local = port.local;
            self.open_connection(Incoming { listener, port: None, local, peer: None, source, metadata, dscp: None });
        }
    }

    /// Datagrams of Unix peers: a session per name, and one for all peers without a name.
    pub(crate) fn receive_unix(&mut self, port: &Arc<Port>, fd: RawFd) {
        for _ in 0..BATCH {
            let mut scratch = std::mem::take(&mut self.scratch);
            let received = sys::receive_from_unix(fd, &mut scratch);
            if let Ok((len, peer)) = &received {
                let known = self.sessions.unix_peer(port.id, peer.bytes());
                if let Some(key) = known.or_else(|| self.open_unix_peer(port, peer)) {
                    self.with_session(key, |worker, session| {
                        if !worker.apply_rate_limits(session, &[*len]).is_empty() {
                            worker.handle_source(session, Message::binary(&scratch[..*len]));
                        }
                    });
                }
            }
            self.scratch = scratch;
            if received.is_err() {
                return;
            }
        }
    }

    fn open_unix_peer(&mut self, port: &Arc<Port>, peer: &sys::UnixPeer) -> Option<Key> {
        let listener = port.listener.load_full()?;
        let ListenerSpec::Uds(uds) = listener.config.spec.transport() else { return None };
        let metadata = Some(json!({ "UNIX": { "filename": uds.filename.display().to_string() } }));
        let source = Link::UnixPeer(Box::new(peer.clone()));
        let (own, local) = (Some(Arc::clone(port)), port.local);
        let incoming = Incoming { listener, port: own, local, peer: None, source, metadata, dscp: None };
        let session = self.admit(incoming)?;
        let key = session.key;
        self.sessions.add_unix_peer(port.id, peer.bytes(), key);
        self.begin(session);
        self.sessions.get(key).map(|_| key)
    }
}
