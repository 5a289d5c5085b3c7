//! WebSocket listeners: accepting an upgrade request.

use crate::config::types::ListenerSpec;
use crate::io::accept::connection_dscp;
use crate::io::incoming::Incoming;
use crate::io::link::{Codec, Link, WsState};
use crate::io::pending::{Acceptor, PendingConnection, Purpose};
use crate::io::slab::Key;
use crate::io::worker::Worker;
use crate::proto::http1::Head;
use crate::proto::ws::{Role, handshake};
use crate::transport::http::metadata::{http_metadata, origin_form};
use std::sync::Arc;

impl Worker {
    pub(crate) fn accept_ws(&mut self, key: Key, head: &Head) {
        let Some(PendingConnection { purpose: Purpose::Request(acceptor), .. }) = self.pending.get(key) else { return };
        let ListenerSpec::WebSocket(ws) = acceptor.listener.config.spec.transport() else { return };
        let fits = ws.path.as_deref().is_none_or(|path| origin_form(head.target()).starts_with(path));
        let accepted = match handshake::accept(head, &ws.subprotocols) {
            Ok(accepted) => accepted,
            Err(answer) => return self.reject(key, answer),
        };
        if !fits {
            return self.reject(key, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        let Some((mut stream, acceptor)) = self.take_accepted(key) else { return };
        let Acceptor { listener, local, peer } = &*acceptor;
        let (listener, local, peer) = (Arc::clone(listener), *local, *peer);
        let mut state = WsState::new(Role::Server, self.snapshot.admin.limits.ws_message, 0);
        state.subprotocol = accepted.subprotocol;
        stream.write(accepted.response.as_bytes(), &[]);
        stream.codec = Codec::Ws(Box::new(state));
        let metadata = Some(http_metadata(head, local, peer));
        let dscp = connection_dscp(&listener, stream.raw(), local);
        let source = Link::Stream(Box::new(stream));
        let incoming = Incoming { listener, port: None, local, peer, source, metadata, dscp };
        if let Some(key) = self.open_watched(incoming) {
            self.with_session(key, Self::handle_sent_ahead);
        }
    }
}
