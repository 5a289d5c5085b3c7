//! One kept HTTP/1.1 connection, with or without TLS.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use portolan_core::mesh::TERM_HEADER;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{CallError, MAX_RESPONSE_BYTES, TlsConnection};

pub(super) type Request = http::Request<Full<Bytes>>;

/// A whole answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    /// Its body, if it says that all went well. Redirects are not followed.
    pub(super) fn accepted(self) -> Result<Value, CallError> {
        let body = serde_json::from_slice(&self.body);
        if self.status.is_success() {
            return body.map_err(|_| CallError::InvalidResponse("the answer is no JSON"));
        }
        let later = self.headers.get(TERM_HEADER).and_then(|term| term.to_str().ok()?.parse().ok());
        match later {
            Some(term) if self.status == StatusCode::CONFLICT => Err(CallError::LaterTerm(term)),
            _ => Err(CallError::refused(self.status, &body.unwrap_or_default())),
        }
    }
}

/// Who sends a request.
#[derive(Clone, Copy, Default)]
pub(super) struct Sender<'a> {
    pub(super) token: Option<&'a str>,
    pub(super) term: Option<u64>,
}

pub(super) fn request(
    to: SocketAddr,
    method: Method,
    path: &str,
    body: Option<&Value>,
    Sender { token, term }: Sender<'_>,
) -> Result<Request, CallError> {
    let mut request = http::Request::builder().method(method).uri(path).header(HOST, to.to_string());
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    if let Some(term) = term {
        request = request.header(TERM_HEADER, term);
    }
    let body = match body {
        // l7mp refuses parameters here.
        Some(body) => {
            request = request.header(CONTENT_TYPE, "application/json");
            Bytes::from(body.to_string())
        }
        None => Bytes::new(),
    };
    request.body(Full::new(body)).map_err(|_| CallError::InvalidResponse("its path or token cannot be sent"))
}

/// Nobody reads from it between two calls: each call drives it.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: bool,
}

impl Connection {
    pub(super) async fn open(to: SocketAddr, tls: Option<&TlsConnection>) -> Result<Self, CallError> {
        let unreachable = |error: std::io::Error| CallError::Unreachable(error.to_string());
        let stream = TcpStream::connect(to).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        match tls {
            None => Self::speak(stream).await,
            Some(TlsConnection { config, server_name }) => {
                let connector = TlsConnector::from(Arc::clone(config));
                Self::speak(connector.connect(server_name.clone(), stream).await.map_err(unreachable)?).await
            }
        }
    }

    async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self, CallError> {
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| CallError::Unreachable(error.to_string()))?;
        // What goes wrong reaches whoever waits for an answer.
        let driver = Box::pin(async move { connection.await.unwrap_or_default() });
        Ok(Self { sender, driver, ended: false })
    }

    /// Whether it can carry another call, as far as is known.
    pub(super) fn is_open(&self) -> bool {
        !self.ended
    }

    /// Returns when the other side ends it.
    pub(super) async fn closed(&mut self) {
        if !self.ended {
            self.driver.as_mut().await;
            self.ended = true;
        }
    }

    /// Sends, and reads the whole answer. A request of which the proxy saw nothing comes back with the error.
    pub(super) async fn send(&mut self, request: Request) -> Result<Answer, NotAnswered> {
        let Self { sender, driver, ended } = self;
        let mut exchange = std::pin::pin!(exchange(sender, request));
        tokio::select! {
            answer = &mut exchange => return answer,
            () = driver => *ended = true,
        }
        exchange.await
    }
}

/// Why there is no answer, and the request if nothing of it was sent.
pub(super) type NotAnswered = (CallError, Option<Request>);

async fn exchange(sender: &mut SendRequest<Full<Bytes>>, request: Request) -> Result<Answer, NotAnswered> {
    let (head, body) = match sender.try_send_request(request).await {
        Ok(answer) => answer.into_parts(),
        Err(mut error) => {
            let unsent = error.take_message();
            return Err((CallError::ConnectionLost(error.into_error().to_string()), unsent));
        }
    };
    let body = Limited::new(body, MAX_RESPONSE_BYTES)
        .collect()
        .await
        .map_err(|error| (CallError::ConnectionLost(error.to_string()), None))?;
    Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
}
