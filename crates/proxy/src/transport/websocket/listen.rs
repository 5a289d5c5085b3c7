//! WebSocket listeners: accepting an upgrade request.

use crate::config::types::ListenerSpec;
use crate::io::accept::connection_dscp;
use crate::io::incoming::Incoming;
use crate::io::link::{Codec, Link, WsState};
use crate::io::pending::PendingConnection;
use crate::io::slab::Key;
use crate::io::worker::Worker;
use crate::proto::http1::Head;
use crate::proto::ws::{Role, handshake};
use crate::transport::http::metadata::http_metadata;

impl Worker {
    pub(crate) fn accept_ws(&mut self, key: Key, head: &Head, mut rest: Vec<u8>) {
        let Some(pending) = self.pending.get(key) else { return };
        let ListenerSpec::WebSocket(ws) = pending.listener.config.spec.transport() else { return };
        let fits = ws.path.as_deref().is_none_or(|path| head.target().starts_with(path));
        let Some(accepted) = handshake::accept(head, &ws.subprotocols) else {
            return self.reject(key, handshake::UPGRADE_REQUIRED);
        };
        if !fits {
            return self.reject(key, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        let Some(pending) = self.pending.remove(key) else { return };
        let PendingConnection { mut stream, listener, local, peer, .. } = pending;
        let mut state = WsState::new(Role::Server, self.snapshot.admin.limits.ws_message, 0);
        state.subprotocol = accepted.subprotocol;
        stream.write(accepted.response.as_bytes(), &[]);
        stream.codec = Codec::Ws(Box::new(state));
        let metadata = Some(http_metadata(head, local, peer));
        let dscp = connection_dscp(&listener, stream.raw(), local);
        let source = Link::Stream(Box::new(stream));
        let incoming = Incoming { listener, port: None, local, peer, source, metadata, dscp };
        if let Some(key) = self.open_watched(incoming)
            && !rest.is_empty()
        {
            self.with_session(key, |worker, session| worker.handle_bytes(session, 0, &mut rest));
        }
    }
}
