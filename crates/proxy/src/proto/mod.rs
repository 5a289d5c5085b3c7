//! Protocols as state machines without sockets or clocks: bytes and time go in, bytes and decisions come out.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::cast_possible_truncation))]

pub mod byte_queue;
pub mod framer;
pub mod http1;
pub mod json_socket;
pub mod session;
pub mod sync;
pub mod ws;

/// One message on its way, or a piece of a byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    pub data: &'a [u8],
    /// Came as a WebSocket text message, and is to leave as one.
    pub text: bool,
}

impl<'a> Message<'a> {
    pub const fn binary(data: &'a [u8]) -> Self {
        Self { data, text: false }
    }
}

/// The time as state machines see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a clock that never goes back.
    pub ms: u64,
    /// Milliseconds since 1970, for people.
    pub unix: u64,
}
