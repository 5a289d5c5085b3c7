//! Responses of the proxy, which may break off.

use std::convert::Infallible;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};

/// A response whose body may break off.
pub(super) type ProxyResponse = Response<UnsyncBoxBody<Bytes, Closed>>;

/// The connection is to be closed without a response, or in the middle of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed on purpose")
    }
}

impl std::error::Error for Closed {}

pub(super) fn full(body: Bytes) -> UnsyncBoxBody<Bytes, Closed> {
    Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync()
}
