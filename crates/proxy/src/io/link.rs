//! One end of a session: a socket with what is spoken on it.

use super::sys::{self, UnixPeer};
use crate::proto::Message;
use crate::proto::byte_queue::ByteQueue;
use crate::proto::framer::Framer;
use crate::proto::http1;
use crate::proto::ws::{self, Opcode, Role};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Where messages of a session come from or go to.
#[derive(Default)]
pub(crate) enum Link {
    /// Not connected.
    #[default]
    None,
    /// A UDP client: answers leave through the listener's socket.
    UdpPeer,
    /// A client on a Unix datagram socket; without a name it cannot be answered.
    UnixPeer(Box<UnixPeer>),
    /// A connected socket that keeps message boundaries.
    Datagram(OwnedFd),
    Stream(Box<Stream>),
    /// Done inside the worker, by the cluster's kind.
    Virtual,
    Sync(Box<super::sync::Membership>),
}

/// A connected byte stream.
#[expect(clippy::struct_excessive_bools, reason = "two independent halves, each with its own end")]
pub(crate) struct Stream {
    pub fd: OwnedFd,
    /// What epoll watches for.
    pub interest: u32,
    pub connecting: bool,
    pub codec: Codec,
    /// Bytes that were read, but belong to a later request.
    pub input: ByteQueue,
    /// Bytes that wait to be sent.
    out: ByteQueue,
    /// Bytes of control frames among them, at most.
    control: usize,
    /// The peer will send nothing more.
    pub ended: bool,
    /// Nothing more is to be sent once `out` is empty.
    pub ending: bool,
    pub end_sent: bool,
    /// The peer takes nothing more. What it sent before is still read, up to its end.
    pub deaf: bool,
    /// Messages are gathered and leave together.
    corked: bool,
}

/// What is spoken on a stream.
pub(crate) enum Codec {
    Bytes,
    Framed(Framer),
    Ws(Box<WsState>),
    /// WebSocket frames that pass untouched.
    Pass(ws::Walker),
    Http(Box<HttpState>),
}

pub(crate) struct WsState {
    pub role: Role,
    /// The client's request is sent and waits for its answer.
    pub nonce: Option<[u8; 16]>,
    pub head: Vec<u8>,
    pub reader: ws::Reader,
    /// Subprotocols of that request.
    pub offered: Vec<String>,
    pub subprotocol: Option<String>,
    pub close_sent: bool,
    /// The peer's close, with its code and reason.
    pub close_received: Option<(u16, String)>,
    masks: u64,
}

impl WsState {
    pub(crate) fn new(role: Role, limit: usize, seed: u64) -> Self {
        Self {
            role,
            nonce: None,
            head: Vec::new(),
            reader: ws::Reader::new(role, limit),
            offered: Vec::new(),
            subprotocol: None,
            close_sent: false,
            close_received: None,
            masks: seed,
        }
    }

    fn mask(&mut self) -> Option<[u8; 4]> {
        if self.role == Role::Server {
            return None;
        }
        // SplitMix64: seeded by the kernel's randomness per connection.
        self.masks = self.masks.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.masks;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(((z ^ (z >> 31)) as u32).to_ne_bytes())
    }
}

/// One request on an HTTP connection and the answer to it.
#[expect(clippy::struct_excessive_bools, reason = "facts of one exchange that do not exclude each other")]
pub(crate) struct HttpState {
    pub body: http1::Body,
    pub keep_alive: bool,
    /// The answer's head was sent.
    pub answering: bool,
    /// The answer is complete.
    pub answered: bool,
    /// The client waits for `100 Continue`.
    pub expects: bool,
    /// A request that goes to the API is collected whole.
    pub collected: Vec<u8>,
    /// It was handed to the API, or refused.
    pub submitted: bool,
    pub head: http1::Head,
    /// HTTP/1.0 clients know no chunks.
    pub chunked: bool,
}

impl HttpState {
    /// Whether the answer has no body, whatever its headers say.
    pub(crate) fn is_bodyless(&self) -> bool {
        self.head.method() == "HEAD"
    }
}

/// What became of a write.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Written {
    Done,
    /// Some of it waits.
    Queued,
    /// The stream has too much waiting, and the message was dropped.
    Dropped,
    Broken,
}

/// Above this a stream gathers no further messages.
const GATHERED: usize = 64 * 1024;
/// Above this the side that feeds a stream is not read.
pub(crate) const HIGH_WATER: usize = 256 * 1024;
/// Above this a message is dropped if its source cannot be held back.
const FULL: usize = 4 << 20;
/// Above this a peer that makes us send control frames is not read until it takes them.
const CONTROL: usize = 64 * 1024;
/// The longest head of a control frame.
const CONTROL_HEAD: usize = 6;
/// Bytes of later requests that a connection may send ahead.
const AHEAD: usize = 16 * 1024;

impl Link {
    /// The socket that is its own.
    pub(crate) fn socket(&self) -> Option<RawFd> {
        match self {
            Self::Datagram(socket) => Some(socket.as_raw_fd()),
            Self::Stream(stream) => Some(stream.raw()),
            Self::None | Self::UdpPeer | Self::UnixPeer(_) | Self::Virtual | Self::Sync(_) => None,
        }
    }
}

impl Stream {
    pub(crate) fn new(fd: OwnedFd, codec: Codec) -> Self {
        Self {
            fd,
            interest: 0,
            connecting: false,
            codec,
            input: ByteQueue::new(AHEAD),
            out: ByteQueue::new(HIGH_WATER),
            control: 0,
            ended: false,
            ending: false,
            end_sent: false,
            deaf: false,
            corked: false,
        }
    }

    /// Keeps what is sent from now on until [`Self::uncork`]; a stream that has enough to do as it is says no.
    pub(crate) fn cork(&mut self) -> bool {
        self.corked = !self.connecting && self.waiting() < GATHERED;
        self.corked
    }

    /// Sends what was kept.
    pub(crate) fn uncork(&mut self) -> Written {
        self.corked = false;
        self.flush()
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Whether a WebSocket still waits for the response to its upgrade request.
    pub(crate) fn is_upgrading(&self) -> bool {
        matches!(&self.codec, Codec::Ws(state) if state.nonce.is_some())
    }

    /// The same while its connection is under way.
    #[must_use]
    pub(crate) fn connecting(self) -> Self {
        Self { connecting: true, ..self }
    }

    /// Bytes that wait to be sent.
    pub(crate) const fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Whether who sends to it has to pause.
    pub(crate) const fn is_crowded(&self) -> bool {
        self.out.is_full()
    }

    /// Whether the peer makes us send control frames that it does not take.
    pub(crate) const fn ignores_control(&self) -> bool {
        self.control > CONTROL
    }

    /// Whether both halves are over and everything is sent.
    pub(crate) fn is_done(&self) -> bool {
        let said = self.end_sent || matches!(&self.codec, Codec::Ws(state) if state.close_sent);
        self.ended && said && self.out.is_empty()
    }

    /// Whether its last bytes could be lost if it were closed at once: some wait, or the peer may still be sending, and
    /// a close with unread input resets the connection.
    pub(crate) const fn needs_linger(&self) -> bool {
        !self.connecting && !self.deaf && (!self.out.is_empty() || !self.ended)
    }

    /// The peer takes nothing more: what waits for it is dropped, and so is what follows.
    pub(crate) fn give_up_sending(&mut self) {
        self.deaf = true;
        self.out.clear();
        self.control = 0;
    }

    /// Sends a message in the stream's own form. Without `held_back` its source cannot be paused, so the message is
    /// dropped if too much waits already.
    pub(crate) fn send(&mut self, message: Message<'_>, held_back: bool) -> Written {
        if !held_back && self.waiting() > FULL {
            return Written::Dropped;
        }
        match &mut self.codec {
            Codec::Bytes | Codec::Pass(_) => self.write(message.data, &[]),
            Codec::Framed(framer) => {
                let (framer, mut done) = (framer.lend(), Written::Done);
                // like a datagram, a message that is too long leaves in pieces
                for piece in framer.pieces(message.data) {
                    let Some(header) = framer.header(piece.len()) else { return Written::Dropped };
                    done = self.write(header.as_slice(), piece);
                    if done == Written::Broken {
                        break;
                    }
                }
                if let Codec::Framed(own) = &mut self.codec {
                    *own = framer;
                }
                done
            }
            Codec::Ws(state) => {
                if state.close_sent {
                    return Written::Dropped;
                }
                let opcode = if message.text { Opcode::Text } else { Opcode::Binary };
                let mask = state.mask();
                self.write_built(|out| ws::write_frame(out, opcode, message.data, mask))
            }
            Codec::Http(_) => self.send_chunk(message.data),
        }
    }

    fn send_chunk(&mut self, data: &[u8]) -> Written {
        let Codec::Http(state) = &mut self.codec else { return Written::Dropped };
        if state.answered || data.is_empty() {
            return Written::Done;
        }
        let (chunked, bodyless) = (state.chunked, state.is_bodyless());
        let head =
            std::mem::replace(&mut state.answering, true).then(String::new).unwrap_or_else(|| answer_head(chunked));
        self.write_built(|out| {
            out.extend_from_slice(head.as_bytes());
            if bodyless {
                return;
            }
            if chunked {
                out.extend_from_slice(http1::chunk_head(data.len()).as_bytes());
                out.extend_from_slice(data);
                out.extend_from_slice(b"\r\n");
            } else {
                out.extend_from_slice(data);
            }
        })
    }

    /// Completes an HTTP answer.
    pub(crate) fn end_answer(&mut self) {
        let Codec::Http(state) = &mut self.codec else { return };
        if std::mem::replace(&mut state.answered, true) {
            return;
        }
        let head = if state.answering { String::new() } else { answer_head(state.chunked) };
        let last: &[u8] = if state.chunked && !state.is_bodyless() { http1::LAST_CHUNK } else { b"" };
        state.answering = true;
        if !state.chunked {
            state.keep_alive = false;
        }
        self.write_built(|out| {
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(last);
        });
    }

    /// Sends a WebSocket control frame.
    pub(crate) fn send_control(&mut self, opcode: Opcode, data: &[u8]) {
        let Codec::Ws(state) = &mut self.codec else { return };
        if state.close_sent {
            return;
        }
        let mask = state.mask();
        self.control += data.len() + CONTROL_HEAD;
        self.write_built(|out| ws::write_frame(out, opcode, data, mask));
    }

    /// Closes our half of a WebSocket, once: with the code of the peer's close if it came first, else with this one.
    pub(crate) fn send_close(&mut self, code: u16, reason: &str) {
        let Codec::Ws(state) = &mut self.codec else { return };
        if state.nonce.is_some() || std::mem::replace(&mut state.close_sent, true) {
            return;
        }
        let mask = state.mask();
        let (code, reason) = state.close_received.clone().unwrap_or_else(|| (code, reason.to_owned()));
        self.write_built(|out| ws::close_frame(out, code, &reason, mask));
    }

    /// Writes bytes that are built at the end of the queue.
    pub(crate) fn write_built(&mut self, build: impl FnOnce(&mut Vec<u8>)) -> Written {
        self.out.build(build);
        self.flush()
    }

    /// Writes two pieces, at once if nothing waits.
    pub(crate) fn write(&mut self, head: &[u8], body: &[u8]) -> Written {
        if self.deaf {
            return Written::Done;
        }
        let mut done = 0;
        if self.waiting() == 0 && !self.connecting && !self.corked {
            let result =
                if body.is_empty() { sys::send(self.raw(), head) } else { sys::send_two(self.raw(), head, body) };
            match result {
                Ok(n) => done = n,
                Err(error) if sys::would_block(&error) => {}
                Err(_) => return Written::Broken,
            }
        }
        if done == head.len() + body.len() {
            return Written::Done;
        }
        self.out.push(head.get(done..).unwrap_or_default());
        self.out.push(body.get(done.saturating_sub(head.len())..).unwrap_or_default());
        Written::Queued
    }

    /// Sends what waits, and then the end if it was asked for.
    pub(crate) fn flush(&mut self) -> Written {
        if self.deaf {
            self.out.clear();
        }
        if self.connecting || self.corked {
            return Written::Queued;
        }
        while !self.out.is_empty() {
            match sys::send(self.raw(), self.out.as_slice()) {
                Ok(n) => self.out.consume(n),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if sys::would_block(&error) => return Written::Queued,
                Err(_) => return Written::Broken,
            }
        }
        self.control = 0;
        if self.ending && !self.end_sent {
            self.end_sent = true;
            sys::end_writing(self.raw());
        }
        Written::Done
    }
}

fn answer_head(chunked: bool) -> String {
    let coding = if chunked { "Transfer-Encoding: chunked" } else { "Connection: close" };
    format!("HTTP/1.1 200 OK\r\n{coding}\r\n\r\n")
}

/// The peer takes nothing more.
pub(crate) fn broken_pipe() -> io::Error {
    io::Error::from_raw_os_error(libc::EPIPE)
}

/// The peer closed in order: reported as a reset, without an error code, so that it is not counted as a failure.
pub(crate) fn connection_reset() -> io::Error {
    io::Error::other("ECONNRESET")
}
