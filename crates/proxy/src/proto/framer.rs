//! Message boundaries on byte streams: a big-endian length before each message.

use crate::config::socket::Framing;

/// Cuts a stream into messages.
#[derive(Debug)]
pub struct Framer {
    width: usize,
    /// Bytes of a message that is not complete.
    rest: Vec<u8>,
    limit: usize,
}

/// A message that is announced to be longer than allowed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("message length {0} exceeds the limit")]
pub struct TooLong(pub usize);

impl Framer {
    /// Nothing for [`Framing::None`].
    pub const fn new(framing: Framing, limit: usize) -> Option<Self> {
        let width = match framing {
            Framing::None => return None,
            Framing::Len16 => 2,
            Framing::Len32 => 4,
        };
        Some(Self { width, rest: Vec::new(), limit })
    }

    /// Moves what was read out while its messages are handled; what stays still writes headers of the same width.
    #[must_use]
    pub fn lend(&mut self) -> Self {
        Self { width: self.width, rest: std::mem::take(&mut self.rest), limit: self.limit }
    }

    /// Takes bytes in and hands complete messages out.
    pub fn handle_bytes(&mut self, bytes: &[u8], mut message: impl FnMut(&[u8])) -> Result<(), TooLong> {
        if self.rest.is_empty() {
            let used = self.cut(bytes, &mut message)?;
            self.rest.extend_from_slice(bytes.get(used..).unwrap_or_default());
            return Ok(());
        }
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(bytes);
        let used = self.cut(&rest, &mut message)?;
        rest.drain(..used);
        self.rest = rest;
        Ok(())
    }

    /// A message in pieces whose lengths can be written; an empty one is one.
    pub fn pieces<'a>(&self, data: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let longest = if self.width == 2 { 0xffff } else { 0xffff_ffff };
        let first = data.is_empty().then_some(data);
        first.into_iter().chain(data.chunks(longest))
    }

    /// The length that goes before a message; nothing if it does not fit.
    pub fn header(&self, len: usize) -> Option<Header> {
        let len = u32::try_from(len).ok().filter(|len| self.width == 4 || *len <= 0xffff)?;
        Some(Header { bytes: len.to_be_bytes(), width: self.width })
    }

    fn cut(&self, bytes: &[u8], message: &mut impl FnMut(&[u8])) -> Result<usize, TooLong> {
        let mut used = 0;
        while let Some((head, rest)) = bytes.get(used..).and_then(|left| left.split_at_checked(self.width)) {
            let len = head.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
            if len > self.limit {
                return Err(TooLong(len));
            }
            let Some(body) = rest.get(..len) else { break };
            message(body);
            used += self.width + len;
        }
        Ok(used)
    }
}

/// The length before a message.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    bytes: [u8; 4],
    width: usize,
}

impl Header {
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(4 - self.width..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_however_the_stream_is_cut() {
        for framing in [Framing::Len16, Framing::Len32] {
            let sent: [&[u8]; 4] = [b"one", b"", b"three", &[7; 300]];
            let mut framer = Framer::new(framing, 300).unwrap();
            let stream: Vec<u8> =
                sent.iter().flat_map(|m| [framer.header(m.len()).unwrap().as_slice(), m].concat()).collect();
            for step in 1..stream.len() {
                let mut got = Vec::new();
                for piece in stream.chunks(step) {
                    framer.handle_bytes(piece, |message| got.push(message.to_vec())).unwrap();
                }
                assert_eq!(got, sent, "{framing:?} in steps of {step}");
            }
        }
    }

    #[test]
    fn an_announced_length_over_the_limit_is_refused_before_anything_is_kept() {
        let mut framer = Framer::new(Framing::Len32, 1000).unwrap();
        assert_eq!(framer.handle_bytes(&[0, 0, 3, 0xe9], |_| {}), Err(TooLong(1001)));
        assert!(framer.rest.is_empty());
    }

    #[test]
    fn a_message_too_long_for_two_bytes_has_no_header() {
        let framer = Framer::new(Framing::Len16, 1 << 20).unwrap();
        assert!(framer.header(65_535).is_some() && framer.header(65_536).is_none());
    }
}
