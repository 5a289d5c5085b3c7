//! WebSocket clusters: the upgrade request and its response.

use super::config::WsCluster;
use crate::io::connect::Remote;
use crate::io::link::{Codec, Link, Stream, WsState};
use crate::io::loop_detection::Family;
use crate::io::session::Session;
use crate::io::sys;
use crate::io::worker::Worker;
use crate::proto::http1::{HeadLimits, parse_head};
use crate::proto::session::Failure;
use crate::proto::ws::{Role, handshake};
use serde_json::Value;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// Where a WebSocket stage connects to.
#[derive(Default)]
struct WsTarget {
    host: Option<String>,
    port: Option<u16>,
    path: Option<String>,
}

impl Worker {
    /// Opens the socket of a WebSocket stage; `None` while a name is resolved.
    pub(crate) fn connect_websocket(
        &mut self,
        session: &mut Session,
        stage: usize,
        ws: &WsCluster,
        found: Option<&[IpAddr]>,
    ) -> Result<Option<Link>, Failure> {
        let target = Self::ws_target(session, ws);
        let remote = Remote {
            family: Family::Tcp,
            host: target.host.as_deref(),
            port: target.port,
            default_port: ws.port,
            bind: &ws.bind,
        };
        let Some((socket, to)) = self.dial(session, stage, &remote, found)? else { return Ok(None) };
        let endpoint = session.stages[stage].endpoint.as_ref();
        let host = target.host.as_deref().or(endpoint.map(|e| &*e.address)).unwrap_or("");
        let host = format!("{host}:{}", to.port());
        let stream = self.ws_stream(session, ws, socket, &host, target.path);
        Ok(Some(Link::Stream(Box::new(stream))))
    }

    fn ws_stream(
        &self,
        session: &Session,
        ws: &WsCluster,
        socket: OwnedFd,
        host: &str,
        path: Option<String>,
    ) -> Stream {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&sys::random_u64().to_ne_bytes());
        nonce[8..].copy_from_slice(&sys::random_u64().to_ne_bytes());
        let metadata = session.metadata();
        let offered = Self::offered_subprotocols(session, ws);
        let headers = metadata.pointer("/HTTP/headers").and_then(Value::as_object);
        let headers = headers.into_iter().flatten().filter_map(|(name, value)| {
            let value = if let Value::String(text) = value { text.clone() } else { value.to_string() };
            Some((name.clone(), value)).filter(|(name, _)| !handshake::is_own(&name.to_ascii_lowercase()))
        });
        let request = handshake::Request {
            host: host.to_owned(),
            path: path.unwrap_or_else(|| "/".to_owned()),
            subprotocols: offered.clone(),
            headers: headers.collect(),
        };
        let mut state = WsState::new(Role::Client, self.snapshot.admin.limits.ws_message, sys::random_u64());
        state.nonce = Some(nonce);
        state.offered = offered;
        let mut stream = Stream::new(socket, Codec::Ws(Box::new(state))).connecting();
        stream.write(&request.to_bytes(nonce), &[]);
        stream
    }

    /// The client's subprotocol is passed on; else what the cluster names.
    fn offered_subprotocols(session: &Session, ws: &WsCluster) -> Vec<String> {
        let chosen = match &session.source {
            Link::Stream(stream) => match &stream.codec {
                Codec::Ws(state) => state.subprotocol.clone(),
                Codec::Bytes | Codec::Framed(_) | Codec::Pass(_) | Codec::Http(_) => None,
            },
            Link::None | Link::UdpPeer | Link::UnixPeer(_) | Link::Datagram(_) | Link::Virtual | Link::Sync(_) => None,
        };
        chosen.map_or_else(|| ws.subprotocols.clone(), |name| vec![name])
    }

    /// Where a WebSocket stage goes, as far as the metadata says.
    fn ws_target(session: &Session, ws: &WsCluster) -> WsTarget {
        let metadata = session.metadata();
        let url = metadata.pointer("/HTTP/url");
        let text = |key: &str| url.and_then(|url| url.get(key)).and_then(Value::as_str).filter(|text| !text.is_empty());
        let path = text("path").map(str::to_owned).or_else(|| ws.path.clone());
        let mut target = WsTarget { path, ..WsTarget::default() };
        if session.rewrote_host {
            target.host = text("host").map(|host| host.split(':').next().unwrap_or(host).to_owned());
        }
        if session.rewrote_port {
            let port = url.and_then(|url| url.get("port"));
            target.port = port
                .and_then(|port| port.as_u64().or_else(|| port.as_str()?.parse().ok()))
                .and_then(|port| u16::try_from(port).ok());
        }
        target
    }

    /// The response to the upgrade request of a stage.
    pub(crate) fn handle_upgrade(&mut self, session: &mut Session, at: usize, bytes: &[u8]) {
        let limits = &self.snapshot.admin.limits;
        let limits = HeadLimits { bytes: limits.http_head, headers: limits.http_headers };
        let Link::Stream(stream) = session.link(at) else { return };
        let Codec::Ws(state) = &mut stream.codec else { return };
        state.head.extend_from_slice(bytes);
        let outcome = match parse_head(&state.head, limits) {
            Ok(None) => return,
            Ok(Some((head, used))) => {
                let (nonce, offered) = (state.nonce.unwrap_or_default(), std::mem::take(&mut state.offered));
                handshake::confirm(&head, nonce, &offered).map(|subprotocol| (subprotocol, used))
            }
            Err(error) => Err(error.to_string()),
        };
        match outcome {
            Ok((subprotocol, used)) => {
                state.nonce = None;
                state.subprotocol = subprotocol;
                let mut rest = std::mem::take(&mut state.head).split_off(used);
                self.transport_connected(session, at);
                if !rest.is_empty() {
                    self.handle_frames(session, at, &mut rest);
                }
            }
            Err(why) => self.stage_failed(session, at - 1, Failure::connect(why)),
        }
    }
}
