//! The REST API of a proxy: l7mp's, and what ours has beyond it.
//!
//! A [`ProxyClient`] makes one call at a time on one connection that it keeps. It first asks what it speaks to, without
//! credentials, so that a token never reaches a proxy that does not know tokens.

mod connection;
mod error;
#[cfg(test)]
mod tests;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::WWW_AUTHENTICATE;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::timeout;

use connection::{Answer, Connection, NotAnswered, Request, Sender};
pub use error::CallError;
pub use tls::{ClientCertificate, TlsFileError, TlsFiles};

/// A proxy that does not take a connection within this time is taken for unreachable.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A call that is not answered within this time has failed, and may have had its effect.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer answers are cut off.
pub const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// What a proxy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyIdentity {
    /// Ours.
    Portolan {
        /// Made anew each time the process starts.
        instance: String,
    },
    /// l7mp itself.
    L7mp {
        /// As it says.
        version: String,
        /// Whether it checks requests against its schema.
        strict: bool,
    },
}

/// How to be let in by a proxy of ours.
#[derive(Clone, Default)]
pub struct Credentials {
    /// Sent as bearer token.
    pub token: Option<Arc<str>>,
    /// The leader's term, sent with every call: a proxy of ours refuses a change of a lower one than the highest it has
    /// seen.
    pub term: Option<u64>,
    /// Connect over TLS; none is plain TCP.
    pub tls: Option<TlsConnection>,
}

/// How to connect over TLS.
#[derive(Clone)]
pub struct TlsConnection {
    /// Certificates and versions.
    pub config: Arc<ClientConfig>,
    /// The name that the proxy's certificate must have.
    pub server_name: ServerName<'static>,
}

/// One proxy.
pub struct ProxyClient {
    address: SocketAddr,
    credentials: Credentials,
    connection: Mutex<Option<Connection>>,
}

impl ProxyClient {
    /// Speaks to the proxy at this address, once it is called.
    pub fn new(address: SocketAddr, credentials: Credentials) -> Self {
        Self { address, credentials, connection: Mutex::new(None) }
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it is. Asked without a token first.
    pub async fn identify(&self) -> Result<ProxyIdentity, CallError> {
        let answer = self
            .exchange(Method::GET, "/api/v1/admin", None, Sender { token: None, term: self.credentials.term })
            .await?;
        let guarded =
            answer.status == http::StatusCode::UNAUTHORIZED
                && answer.headers.get_all(WWW_AUTHENTICATE).iter().any(|challenge| {
                    challenge.to_str().is_ok_and(|challenge| challenge.contains("realm=\"portolan\""))
                });
        let admin = if guarded { self.get("/api/v1/admin").await? } else { answer.accepted()? };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(match admin.get("portolan") {
            Some(ours) => ProxyIdentity::Portolan { instance: text(&ours["instance"]) },
            None if guarded => {
                return Err(CallError::InvalidResponse("asked for a token as ours does, but is not ours"));
            }
            None => {
                ProxyIdentity::L7mp { version: text(&admin["version"]), strict: admin["strict"] == Value::Bool(true) }
            }
        })
    }

    /// Reads.
    pub async fn get(&self, path: &str) -> Result<Value, CallError> {
        self.call(Method::GET, path, None).await
    }

    /// Returns when the proxy ends the connection that is kept: it may have gone. Without one, never.
    pub async fn closed(&self) {
        let mut kept = self.connection.lock().await;
        match kept.as_mut() {
            Some(connection) => connection.closed().await,
            None => std::future::pending().await,
        }
        *kept = None;
    }

    /// Makes a call; what it answers, if it was accepted.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CallError> {
        let sender = Sender { token: self.credentials.token.as_deref(), term: self.credentials.term };
        self.exchange(method, path, body, sender).await?.accepted()
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        sender: Sender<'_>,
    ) -> Result<Answer, CallError> {
        let request = connection::request(self.address, method, path, body, sender)?;
        let mut kept = self.connection.lock().await;
        // One that the proxy closed since the last call is noticed now, before it saw anything of this one.
        let request = match kept.take().filter(Connection::is_open) {
            None => request,
            Some(connection) => match Self::send(connection, &mut kept, request).await {
                Err((_, Some(unsent))) => unsent,
                answered => return answered.map_err(|(failed, _)| failed),
            },
        };
        let connection = self.connect().await?;
        Self::send(connection, &mut kept, request).await.map_err(|(failed, _)| failed)
    }

    /// A connection that carried a whole answer is kept.
    async fn send(
        mut connection: Connection,
        kept: &mut Option<Connection>,
        request: Request,
    ) -> Result<Answer, NotAnswered> {
        let answer =
            timeout(CALL_TIMEOUT, connection.send(request)).await.unwrap_or(Err((CallError::TimedOut, None)))?;
        *kept = Some(connection);
        Ok(answer)
    }

    async fn connect(&self) -> Result<Connection, CallError> {
        let opening = Connection::open(self.address, self.credentials.tls.as_ref());
        timeout(CONNECT_TIMEOUT, opening)
            .await
            .unwrap_or_else(|_| Err(CallError::Unreachable(format!("no connection within {CONNECT_TIMEOUT:?}"))))
    }
}
