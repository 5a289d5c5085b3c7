//! Connections of Envoys over TCP and TLS.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::gateway::unit::UnitId;
use rustix::net::sockopt;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{Fleet, Shared};
use crate::envoy::xds::{Order, serve_connection};

/// Connections at a time; those of one unit are limited more tightly once it has proven who it is.
const MAX_CONNECTIONS: usize = 8_192;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Accepting fails for want of file descriptors, say: it is tried again after this time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A connection on which nothing is said is asked for a sign of life after this time, then again this often.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(5));
const KEEPALIVE_TRIES: u32 = 3;

/// Whose Envoy a certificate in DER belongs to.
pub type Identify = fn(&[u8]) -> Option<UnitId>;

/// Accepts the Envoys of a fleet.
pub struct Server {
    /// Where.
    pub listener: TcpListener,
    /// Whose they are.
    pub fleet: Fleet,
    /// Reads a certificate that TLS has verified.
    pub identify: Identify,
}

impl Server {
    /// Serves until `stop`.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, fleet, identify } = self;
        let mut stop = pin!(stop);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = &mut stop => return,
                accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((connection, _)) => {
                        let tls = fleet.shared.tls.read().clone();
                        // while another replica leads there is none, and the connection is closed
                        if let Some(tls) = tls {
                            connections.spawn(serve(connection, tls, Arc::clone(&fleet.shared), identify));
                        }
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

async fn serve(connection: TcpStream, tls: Arc<ServerConfig>, shared: Arc<Shared>, identify: Identify) {
    if keep_alive(&connection).is_err() {
        return;
    }
    let Ok(Ok(connection)) = timeout(HANDSHAKE, TlsAcceptor::from(tls).accept(connection)).await else { return };
    let Some((feed, _permit)) = unit_of(&connection, identify).and_then(|unit| shared.feed(&unit)) else { return };
    let gone = gone(feed.orders.clone());
    tokio::select! {
        () = serve_connection(connection, feed) => {}
        () = gone => {}
    }
}

fn unit_of(connection: &TlsStream<TcpStream>, identify: Identify) -> Option<UnitId> {
    let (_, session) = connection.get_ref();
    identify(session.peer_certificates()?.first()?)
}

/// Returns when the unit is forgotten, or another replica leads.
async fn gone(mut orders: watch::Receiver<Order>) {
    while orders.changed().await.is_ok() {}
}

fn keep_alive(connection: &TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    sockopt::set_socket_keepalive(connection, true)?;
    sockopt::set_tcp_keepidle(connection, KEEPALIVE.0)?;
    sockopt::set_tcp_keepintvl(connection, KEEPALIVE.1)?;
    sockopt::set_tcp_keepcnt(connection, KEEPALIVE_TRIES)?;
    Ok(())
}
