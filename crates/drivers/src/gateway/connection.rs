//! One HTTP/1.1 connection, with or without TLS, for one call at a time.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::GatewayError;
use super::url::GroupUrl;

/// Longer answers are cut off.
pub const MAX_RESPONSE_BYTES: usize = 8 << 20;

pub(super) type Message = http::Request<Full<Bytes>>;

/// Why there is no answer, and the message if nothing of it was sent.
pub(super) type NotAnswered = (GatewayError, Option<Message>);

/// What a message has besides its body.
pub(super) struct Head<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) host: &'a str,
    pub(super) authorization: &'a HeaderValue,
    pub(super) header: Option<(&'static str, &'a str)>,
}

/// A whole answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// What is sent.
pub(super) fn message(head: &Head<'_>, body: Option<&Value>) -> Result<Message, GatewayError> {
    let Head { method, path, host, authorization, header } = head;
    let mut message = http::Request::builder()
        .method(method.clone())
        .uri(*path)
        .header(HOST, *host)
        .header(ACCEPT, "application/json")
        .header(AUTHORIZATION, (*authorization).clone());
    if let Some((name, value)) = header {
        message = message.header(*name, *value);
    }
    let body = match body {
        Some(body) => {
            message = message.header(CONTENT_TYPE, "application/json");
            Bytes::from(body.to_string())
        }
        None => Bytes::new(),
    };
    message.body(Full::new(body)).map_err(|_| GatewayError::InvalidResponse("a path that cannot be sent".to_owned()))
}

/// Nobody reads from it between two calls: each call drives it.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: bool,
}

impl Connection {
    pub(super) async fn open(url: &GroupUrl, tls: Option<&Arc<ClientConfig>>) -> Result<Self, GatewayError> {
        let unreachable = |error: std::io::Error| GatewayError::Unreachable(error.to_string());
        let stream = TcpStream::connect((url.host(), url.port())).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let Some(tls) = tls else { return Self::speak(stream).await };
        let name = ServerName::try_from(url.host().to_owned());
        let name = name.map_err(|error| GatewayError::Unreachable(error.to_string()))?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await.map_err(unreachable)?;
        Self::speak(stream).await
    }

    async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self, GatewayError> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| GatewayError::Unreachable(error.to_string()))?;
        // What goes wrong reaches whoever waits for an answer.
        let driver = Box::pin(async move { connection.await.unwrap_or_default() });
        Ok(Self { sender, driver, ended: false })
    }

    /// Whether it can carry another call, as far as is known.
    pub(super) fn is_open(&self) -> bool {
        !self.ended
    }

    /// Sends, and reads the whole answer.
    pub(super) async fn send(&mut self, message: Message) -> Result<Answer, NotAnswered> {
        let Self { sender, driver, ended } = self;
        let mut exchange = std::pin::pin!(exchange(sender, message));
        tokio::select! {
            answer = &mut exchange => return answer,
            () = driver => *ended = true,
        }
        exchange.await
    }
}

async fn exchange(sender: &mut SendRequest<Full<Bytes>>, message: Message) -> Result<Answer, NotAnswered> {
    let (head, body) = match sender.try_send_request(message).await {
        Ok(answer) => answer.into_parts(),
        Err(mut error) => {
            let unsent = error.take_message();
            return Err((GatewayError::ConnectionLost(error.into_error().to_string()), unsent));
        }
    };
    let body = Limited::new(body, MAX_RESPONSE_BYTES)
        .collect()
        .await
        .map_err(|error| (GatewayError::ConnectionLost(error.to_string()), None))?;
    Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
}
