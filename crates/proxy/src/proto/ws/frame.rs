//! Frames: read out of a byte stream, written in front of messages.

use super::code;

/// Which end of the connection we are: clients mask what they send, servers do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Server,
    Client,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

/// What a peer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    Message {
        data: &'a [u8],
        text: bool,
    },
    Ping(&'a [u8]),
    Pong,
    /// The code is 1005 where the peer gave none.
    Close {
        code: u16,
        reason: &'a str,
    },
}

/// The peer broke the protocol; the connection is closed with this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("WebSocket protocol violation (close code {code}): {what}")]
pub struct Violation {
    pub code: u16,
    pub what: &'static str,
}

const fn broken(what: &'static str) -> Violation {
    Violation { code: code::PROTOCOL, what }
}

/// Reads frames out of a byte stream.
#[derive(Debug)]
pub struct Reader {
    role: Role,
    limit: usize,
    /// Bytes of a frame that is not complete.
    rest: Vec<u8>,
    /// Fragments of a message that is not complete.
    message: Vec<u8>,
    fragments_of: Option<Opcode>,
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) last: bool,
    pub(super) opcode: Opcode,
    pub(super) mask: Option<[u8; 4]>,
    pub(super) len: u64,
    /// Bytes of the header itself.
    pub(super) size: usize,
}

impl Reader {
    /// `limit` bounds a message, however many frames it comes in.
    pub const fn new(role: Role, limit: usize) -> Self {
        Self { role, limit, rest: Vec::new(), message: Vec::new(), fragments_of: None }
    }

    /// Moves the reader out while its events are handled; an empty one takes its place.
    #[must_use]
    pub fn lend(&mut self) -> Self {
        let empty = Self::new(self.role, self.limit);
        std::mem::replace(self, empty)
    }

    /// Whether nothing is half read.
    pub const fn is_between(&self) -> bool {
        self.rest.is_empty() && self.fragments_of.is_none()
    }

    /// Takes bytes in, unmasks them where they lie, and hands events out.
    pub fn handle_bytes(&mut self, bytes: &mut [u8], mut event: impl FnMut(Event<'_>)) -> Result<(), Violation> {
        if self.rest.is_empty() {
            let used = self.read(bytes, &mut event)?;
            self.rest.extend_from_slice(bytes.get(used..).unwrap_or_default());
            return Ok(());
        }
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(bytes);
        let used = self.read(&mut rest, &mut event)?;
        rest.drain(..used);
        self.rest = rest;
        Ok(())
    }

    fn read(&mut self, bytes: &mut [u8], event: &mut impl FnMut(Event<'_>)) -> Result<usize, Violation> {
        let mut used = 0;
        while let Some(head) = parse(bytes.get(used..).unwrap_or_default())? {
            if head.mask.is_some() != (self.role == Role::Server) {
                return Err(broken("clients must mask frames, servers must not"));
            }
            let waiting = if head.opcode == Opcode::Continuation { self.message.len() } else { 0 };
            let len = usize::try_from(head.len).ok().filter(|len| len.saturating_add(waiting) <= self.limit);
            let len = len.ok_or(Violation { code: code::TOO_BIG, what: "message too long" })?;
            let start = used + head.size;
            let Some(payload) = bytes.get_mut(start..).and_then(|rest| rest.get_mut(..len)) else { break };
            if let Some(mask) = head.mask {
                apply_mask(payload, mask);
            }
            self.frame(&head, payload, event)?;
            used = start + len;
        }
        Ok(used)
    }

    fn frame(&mut self, head: &FrameHead, data: &[u8], event: &mut impl FnMut(Event<'_>)) -> Result<(), Violation> {
        match (head.opcode, self.fragments_of) {
            (Opcode::Ping, _) => event(Event::Ping(data)),
            (Opcode::Pong, _) => event(Event::Pong),
            (Opcode::Close, _) => event(close_event(data)?),
            (Opcode::Text | Opcode::Binary, Some(_)) => {
                return Err(broken("new message before the previous one ended"));
            }
            (Opcode::Continuation, None) => return Err(broken("continuation without a first frame")),
            (opcode @ (Opcode::Text | Opcode::Binary), None) if head.last => {
                event(message(data, opcode == Opcode::Text)?);
            }
            (opcode @ (Opcode::Text | Opcode::Binary), None) => {
                self.fragments_of = Some(opcode);
                self.message.extend_from_slice(data);
            }
            (Opcode::Continuation, Some(opcode)) => {
                self.message.extend_from_slice(data);
                if head.last {
                    self.fragments_of = None;
                    let whole = std::mem::take(&mut self.message);
                    event(message(&whole, opcode == Opcode::Text)?);
                }
            }
        }
        Ok(())
    }
}

fn message(data: &[u8], text: bool) -> Result<Event<'_>, Violation> {
    if text && std::str::from_utf8(data).is_err() {
        return Err(Violation { code: code::NOT_UTF8, what: "text message is not UTF-8" });
    }
    Ok(Event::Message { data, text })
}

fn close_event(data: &[u8]) -> Result<Event<'_>, Violation> {
    let Some((code, reason)) = data.split_first_chunk::<2>() else {
        return if data.is_empty() {
            Ok(Event::Close { code: code::NO_STATUS, reason: "" })
        } else {
            Err(broken("truncated close code"))
        };
    };
    let code = u16::from_be_bytes(*code);
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(broken("invalid close code"));
    }
    let reason = std::str::from_utf8(reason);
    let reason = reason.map_err(|_| Violation { code: code::NOT_UTF8, what: "close reason is not UTF-8" })?;
    Ok(Event::Close { code, reason })
}

/// Reads a frame's header; `None` while it is not complete.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<FrameHead>, Violation> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(broken("reserved bits set"));
    }
    let opcode = match first & 0x0f {
        0 => Opcode::Continuation,
        1 => Opcode::Text,
        2 => Opcode::Binary,
        8 => Opcode::Close,
        9 => Opcode::Ping,
        10 => Opcode::Pong,
        _ => return Err(broken("unknown opcode")),
    };
    let last = first & 0x80 != 0;
    let short = second & 0x7f;
    if *first & 0x08 != 0 && (short > 125 || !last) {
        return Err(broken("control frame too long or fragmented"));
    }
    let (len, rest, mut size) = match short {
        126 => {
            let Some((len, rest)) = rest.split_first_chunk::<2>() else { return Ok(None) };
            (u64::from(u16::from_be_bytes(*len)), rest, 4)
        }
        127 => {
            let Some((len, rest)) = rest.split_first_chunk::<8>() else { return Ok(None) };
            (u64::from_be_bytes(*len), rest, 10)
        }
        _ => (u64::from(short), rest, 2),
    };
    if len >> 63 != 0 {
        return Err(broken("payload length out of range"));
    }
    let mask = if second & 0x80 == 0 {
        None
    } else {
        let Some((mask, _)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        size += 4;
        Some(*mask)
    };
    Ok(Some(FrameHead { last, opcode, mask, len, size }))
}

/// Masks or unmasks; eight bytes at a time, which compilers make vectors of.
pub fn apply_mask(data: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, tail) = data.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in tail.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// Appends a whole message in one frame; `mask` is what clients give.
pub fn write_frame(out: &mut Vec<u8>, opcode: Opcode, data: &[u8], mask: Option<[u8; 4]>) {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    out.push(0x80 | opcode as u8);
    match (u8::try_from(data.len()), u16::try_from(data.len())) {
        (Ok(len @ 0..126), _) => out.push(masked | len),
        (_, Ok(len)) => {
            out.push(masked | 0x7e);
            out.extend_from_slice(&len.to_be_bytes());
        }
        _ => {
            out.push(masked | 0x7f);
            out.extend_from_slice(&(data.len() as u64).to_be_bytes());
        }
    }
    if let Some(mask) = mask {
        out.extend_from_slice(&mask);
        let start = out.len();
        out.extend_from_slice(data);
        apply_mask(out.get_mut(start..).unwrap_or_default(), mask);
    } else {
        out.extend_from_slice(data);
    }
}

/// Appends a close frame; 1005 means no code and is not sent.
pub fn close_frame(out: &mut Vec<u8>, code: u16, reason: &str, mask: Option<[u8; 4]>) {
    let mut payload = Vec::new();
    if code != code::NO_STATUS {
        payload.extend_from_slice(&code.to_be_bytes());
        let fits = (0..=reason.len().min(123)).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
        payload.extend_from_slice(reason.get(..fits).unwrap_or_default().as_bytes());
    }
    write_frame(out, Opcode::Close, &payload, mask);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: Option<[u8; 4]> = Some([1, 2, 3, 4]);

    fn read(stream: &[u8], step: usize) -> Result<Vec<String>, Violation> {
        let mut reader = Reader::new(Role::Server, 100_000);
        let mut got = Vec::new();
        for piece in stream.chunks(step) {
            reader.handle_bytes(&mut piece.to_vec(), |event| {
                got.push(match event {
                    Event::Message { data, text } => format!("{text} {}", data.len()),
                    Event::Ping(data) => format!("ping {}", data.len()),
                    Event::Pong => "pong".into(),
                    Event::Close { code, reason } => format!("close {code} {reason}"),
                });
            })?;
        }
        Ok(got)
    }

    #[test]
    fn frames_come_out_whole_however_the_stream_is_cut() {
        let mut stream = Vec::new();
        write_frame(&mut stream, Opcode::Text, "grüß".as_bytes(), MASK);
        write_frame(&mut stream, Opcode::Binary, b"", MASK);
        write_frame(&mut stream, Opcode::Ping, b"p", MASK);
        write_frame(&mut stream, Opcode::Binary, &[7; 200], MASK);
        write_frame(&mut stream, Opcode::Binary, &vec![7; 70_000], MASK);
        close_frame(&mut stream, 1000, "bye", MASK);
        let expected = ["true 6", "false 0", "ping 1", "false 200", "false 70000", "close 1000 bye"];
        for step in [1, 2, 3, 7, 1000, 80_000] {
            assert_eq!(read(&stream, step).unwrap(), expected, "step {step}");
        }
    }

    #[test]
    fn fragments_join_and_control_frames_pass_between_them() {
        let mut first = Vec::new();
        write_frame(&mut first, Opcode::Text, "a\u{e4}".as_bytes().get(..2).unwrap(), MASK);
        first[0] &= 0x7f;
        let mut last = Vec::new();
        write_frame(&mut last, Opcode::Continuation, &[0xa4], MASK);
        let mut ping = Vec::new();
        write_frame(&mut ping, Opcode::Ping, b"", MASK);
        assert_eq!(read(&[first, ping, last].concat(), 3).unwrap(), ["ping 0", "true 3"]);
    }

    #[test]
    fn a_message_in_parts_is_bounded_as_a_whole() {
        let mut stream = Vec::new();
        for (opcode, length) in [(Opcode::Binary, 60_000), (Opcode::Continuation, 40_000)] {
            let start = stream.len();
            write_frame(&mut stream, opcode, &vec![7; length], MASK);
            stream[start] &= 0x7f;
        }
        let mut last = Vec::new();
        write_frame(&mut last, Opcode::Continuation, b"", MASK);
        assert_eq!(read(&[stream.as_slice(), &last].concat(), 1000).unwrap(), ["false 100000"]);
        write_frame(&mut stream, Opcode::Continuation, b"x", MASK);
        assert_eq!(read(&stream, 1000).map_err(|violation| violation.code), Err(1009));
    }

    #[test]
    fn every_breach_has_its_close_code() {
        let masked = |bytes: &[u8]| [bytes, &[0, 0, 0, 0]].concat();
        for (what, bytes, code) in [
            ("reserved bit", masked(&[0xc1, 0x80]), 1002),
            ("reserved opcode", masked(&[0x83, 0x80]), 1002),
            ("no mask", vec![0x81, 0x00], 1002),
            ("long ping", masked(&[0x89, 0xfe, 0, 126]), 1002),
            ("ping in parts", masked(&[0x09, 0x80]), 1002),
            ("continuation of nothing", masked(&[0x80, 0x80]), 1002),
            ("half a close code", [masked(&[0x88, 0x81]), vec![3]].concat(), 1002),
            ("close code 1005", [masked(&[0x88, 0x82]), vec![3, 237]].concat(), 1002),
            ("length over the limit", masked(&[0x82, 0xff, 0, 0, 0, 0, 1, 0, 0, 0]), 1009),
            ("length beyond all", masked(&[0x82, 0xff, 255, 255, 255, 255, 1, 0, 0, 0]), 1002),
            ("not UTF-8", [masked(&[0x81, 0x81]), vec![0xff]].concat(), 1007),
        ] {
            assert_eq!(read(&bytes, bytes.len()).map_err(|v| v.code), Err(code), "{what}");
        }
    }

    #[test]
    fn masking_twice_is_nothing() {
        for len in 0..40 {
            let data: Vec<u8> = (0..len).collect();
            let mut copy = data.clone();
            apply_mask(&mut copy, [9, 8, 7, 6]);
            assert!(len == 0 || copy != data);
            apply_mask(&mut copy, [9, 8, 7, 6]);
            assert_eq!(copy, data);
        }
    }
}
