//! Connections.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use parking_lot::RwLock;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::context::Context;
use super::error::Error;
use super::handle::{DEADLINE, answer};
use super::login::Peer;
use super::tls;

/// More wait in the listener's backlog; each watch is one.
const MAX_CONNECTIONS: usize = 16_384;
/// How long answers in the making may take once the process stops.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
const MAX_HEADERS: u32 = 16 << 10;

/// Takes a port.
pub(super) fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |cause: io::Error| Error::Listen { listen, cause };
    let listener = TcpListener::bind(listen).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Serves a port until the process stops; with TLS, if there is a configuration for it.
pub(super) async fn run(listener: TcpListener, tls: Option<Arc<RwLock<Arc<ServerConfig>>>>, context: Arc<Context>) {
    let stop = context.stop.clone();
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(cause) => {
            tracing::error!(%cause, "the REST API cannot use its port");
            return;
        }
    };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, peer)) => {
                    let config = tls.as_ref().map(|tls| Arc::clone(&*tls.read()));
                    connections.spawn(connection(stream, peer, config, Arc::clone(&context)));
                }
                // out of file descriptors, most likely: those that are open go on, and close some day
                Err(cause) => {
                    tracing::warn!(%cause, "cannot accept a REST client: raise the limit of open files?");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(ended) = connections.join_next() => if let Err(cause) = ended {
                tracing::error!(%cause, "a REST connection panicked");
            },
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_ANSWERS, all).await.is_err() {
        tracing::debug!("some REST requests did not end in time");
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, tls: Option<Arc<ServerConfig>>, context: Arc<Context>) {
    stream.set_nodelay(true).ok();
    let source = peer.ip();
    let Some(config) = tls else {
        return serve(stream, Peer { source, accounts: None }, context).await;
    };
    let shake = tokio::time::timeout(DEADLINE, TlsAcceptor::from(config).accept(stream)).await;
    match shake.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => {
            let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let accounts = certificate.map(|certificate| tls::accounts(certificate).into());
            serve(stream, Peer { source, accounts }, context).await;
        }
        Err(cause) => tracing::debug!(%cause, "a TLS handshake failed"),
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer, context: Arc<Context>) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(DEADLINE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(DEADLINE)
        .max_header_list_size(MAX_HEADERS)
        .max_concurrent_streams(128);
    let stop = context.stop.clone();
    // a watcher that does not read would hold its connection for as long as it likes
    let hang_up = CancellationToken::new();
    let service = {
        let hang_up = hang_up.clone();
        hyper::service::service_fn(move |request| {
            let answering = answer(Arc::clone(&context), peer.clone(), hang_up.clone(), request);
            async { Ok::<_, Infallible>(answering.await) }
        })
    };
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = hang_up.cancelled() => return,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(cause) = ended {
        tracing::debug!(%cause, "a REST connection broke");
    }
}
