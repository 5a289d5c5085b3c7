//! gRPC on an HTTP/2 stream, as far as one service with one bidirectional call needs it.
//!
//! A message is a byte that says whether it is compressed, four bytes of length, and the bytes. A call ends with its
//! status in trailers.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use prost::Message;

use crate::envoy::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};

pub(super) const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// Flag and length.
const HEAD_BYTES: usize = 5;
/// Longer requests are refused. Envoy's first one names all its extensions, in some 100 KiB.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// How a call ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    code: &'static str,
    message: String,
}

impl Status {
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { code: "3", message: message.into() }
    }

    pub(super) fn denied(message: impl Into<String>) -> Self {
        Self { code: "7", message: message.into() }
    }

    pub(super) fn exhausted(message: impl Into<String>) -> Self {
        Self { code: "8", message: message.into() }
    }

    fn unimplemented(message: impl Into<String>) -> Self {
        Self { code: "12", message: message.into() }
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self { code: "14", message: message.into() }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", HeaderValue::from_static(self.code));
        // spaces may stand there, other bytes would have to be escaped
        let message: String = self.message.chars().filter(|c| matches!(c, ' '..='~') && *c != '%').collect();
        if let Ok(message) = HeaderValue::try_from(message) {
            headers.insert("grpc-message", message);
        }
        headers
    }
}

/// Why a call ended.
#[derive(Debug)]
pub(super) enum CallError {
    /// The client has gone.
    Gone,
    /// The answer says why.
    Ended(Status),
}

impl From<h2::Error> for CallError {
    fn from(_: h2::Error) -> Self {
        Self::Gone
    }
}

/// A call of the one method there is.
pub(super) struct Call {
    pub(super) requests: Requests,
    pub(super) responses: Responses,
}

impl Call {
    /// Accepts a call; one of another method is refused, and none is given.
    pub(super) fn accept(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Option<Self> {
        let mut head = Response::new(());
        *head.status_mut() = StatusCode::OK;
        head.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        if request.uri().path() != METHOD {
            head.headers_mut().extend(Status::unimplemented("only delta ADS is served").headers());
            // it fails only if the client has gone
            respond.send_response(head, true).ok();
            return None;
        }
        let stream = respond.send_response(head, false).ok()?;
        let requests = Requests { body: request.into_body(), buffer: BytesMut::new() };
        Some(Self { requests, responses: Responses { stream } })
    }
}

/// What a client sends.
pub(super) struct Requests {
    body: RecvStream,
    buffer: BytesMut,
}

impl Requests {
    /// The next request; none at the end. Nothing is lost if it is not awaited to the end.
    pub(super) async fn next(&mut self) -> Result<Option<DeltaDiscoveryRequest>, CallError> {
        loop {
            if let Some(message) = take_message(&mut self.buffer).map_err(CallError::Ended)? {
                let request = DeltaDiscoveryRequest::decode(message);
                return request.map(Some).map_err(|cause| CallError::Ended(Status::invalid(cause.to_string())));
            }
            let Some(data) = self.body.data().await else { return Ok(None) };
            let data = data?;
            self.body.flow_control().release_capacity(data.len())?;
            self.buffer.extend_from_slice(&data);
        }
    }
}

/// Takes a whole message from what was received, if there is one.
pub(super) fn take_message(buffer: &mut BytesMut) -> Result<Option<Bytes>, Status> {
    let Some((head, _)) = buffer.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let [flag, length @ ..] = *head;
    if flag != 0 {
        return Err(Status::unimplemented("compressed messages are not read"));
    }
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > MAX_REQUEST_BYTES {
        return Err(Status::exhausted(format!("a request has at most {MAX_REQUEST_BYTES} bytes")));
    }
    if buffer.len() < HEAD_BYTES + length {
        return Ok(None);
    }
    buffer.advance(HEAD_BYTES);
    Ok(Some(buffer.split_to(length).freeze()))
}

/// What is sent to a client.
pub(super) struct Responses {
    stream: SendStream<Bytes>,
}

impl Responses {
    /// Sends a response, as fast as the client takes it.
    pub(super) async fn send(&mut self, response: &DeltaDiscoveryResponse) -> Result<(), CallError> {
        let mut bytes = frame(response);
        while !bytes.is_empty() {
            self.stream.reserve_capacity(bytes.len());
            if self.stream.capacity() == 0 {
                let granted = std::future::poll_fn(|context| self.stream.poll_capacity(context)).await;
                granted.ok_or(CallError::Gone)??;
                continue;
            }
            let granted = self.stream.capacity().min(bytes.len());
            self.stream.send_data(bytes.split_to(granted), false)?;
        }
        Ok(())
    }

    /// Ends the call.
    pub(super) fn end(mut self, status: &Status) {
        // it fails only if the client has gone
        self.stream.send_trailers(status.headers()).ok();
    }
}

/// A message with its head.
pub(super) fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(HEAD_BYTES + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).expect("responses are cut at 1 MiB, and one resource is smaller than 4 GiB"));
    message.encode(&mut bytes).expect("a BytesMut grows");
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_when_it_is_whole() {
        let mut buffer = BytesMut::new();
        for byte in [0, 0, 0, 0, 2, 7] {
            assert_eq!(take_message(&mut buffer), Ok(None));
            buffer.put_u8(byte);
        }
        buffer.extend_from_slice(&[8, 0, 0]);
        assert_eq!(take_message(&mut buffer), Ok(Some(Bytes::from_static(&[7, 8]))));
        assert_eq!(&*buffer, [0, 0], "the next one has begun");
    }

    #[test]
    fn what_is_framed_is_taken_again() {
        let response = DeltaDiscoveryResponse { nonce: "1".to_owned(), ..DeltaDiscoveryResponse::default() };
        let mut buffer = BytesMut::from(&*frame(&response));
        let message = take_message(&mut buffer).expect("it is not compressed").expect("it is whole");
        assert_eq!(DeltaDiscoveryResponse::decode(message), Ok(response));
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_message_that_is_too_long_or_compressed_is_refused() {
        assert!(take_message(&mut BytesMut::from(&[0, 0xff, 0, 0, 0][..])).is_err());
        assert!(take_message(&mut BytesMut::from(&[1, 0, 0, 0, 0][..])).is_err());
    }
}
