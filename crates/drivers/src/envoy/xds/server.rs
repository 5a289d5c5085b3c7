//! Connections of one unit's Envoys.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;

use super::Feed;
use super::grpc::Call;
use super::session::serve_call;

/// Connections of one unit at a time: its Envoy has one, and may open another before the old one has ended.
const MAX_CONNECTIONS: usize = 4;
/// Calls on one connection at a time.
const MAX_CALLS: u32 = 2;
/// Accepting fails for want of file descriptors, say: it is tried again after this time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves all that connect to a socket; ends when it is dropped.
pub(in crate::envoy) async fn serve(listener: UnixListener, feed: Feed) -> std::convert::Infallible {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((connection, _)) => connections.push(serve_connection(connection, feed.clone())),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(()) = connections.next() => {}
        }
    }
}

/// Serves a connection of this unit's Envoy.
pub(in crate::envoy) async fn serve_connection(io: impl AsyncRead + AsyncWrite + Unpin, feed: Feed) {
    let handshake = h2::server::Builder::new().max_concurrent_streams(MAX_CALLS).handshake(io).await;
    let Ok(mut connection) = handshake else { return };
    let mut calls = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(Ok((request, respond))) = accepted else { return };
                calls.extend(Call::accept(request, respond).map(|call| serve_call(call, feed.clone())));
            }
            Some(()) = calls.next() => {}
        }
    }
}
