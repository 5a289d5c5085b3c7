//! HTTP/1.1 as far as a proxy needs it: heads, by httparse, and bodies by length or in chunks.

/// Bounds of a message head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    pub bytes: usize,
    pub headers: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self { bytes: 16 * 1024, headers: 100 }
    }
}

/// The head of a request or an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Three words: method, target, version; or version, status, reason.
    pub start: [String; 3],
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    #[error("the message head exceeds {0} bytes")]
    TooLong(usize),
    #[error("the message head has more than {0} headers")]
    TooMany(usize),
    #[error("malformed message head: {0}")]
    Malformed(&'static str),
}

impl Head {
    /// A header's value; several of one name are joined by commas, cookies by semicolons.
    pub fn header(&self, name: &str) -> Option<String> {
        let mut values = self.headers.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let first = values.next()?.to_owned();
        let separator = if name == "cookie" { "; " } else { ", " };
        Some(values.fold(first, |all, value| all + separator + value))
    }

    /// Whether the host is named once, as HTTP/1.1 demands.
    pub fn names_one_host(&self) -> bool {
        let hosts = self.headers.iter().filter(|(key, _)| key == "host").count();
        hosts == 1 || hosts == 0 && self.version() == "1.0"
    }

    /// Whether a comma-separated header has this word, ignoring case.
    pub fn lists(&self, name: &str, word: &str) -> bool {
        self.header(name).is_some_and(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    }

    pub fn method(&self) -> &str {
        &self.start[0]
    }

    pub fn target(&self) -> &str {
        &self.start[1]
    }

    /// `1.1` of `HTTP/1.1`.
    pub fn version(&self) -> &str {
        self.start[2].strip_prefix("HTTP/").unwrap_or_default()
    }

    pub fn status(&self) -> u16 {
        self.start[1].parse().unwrap_or(0)
    }

    /// Whether the connection stays open after this message.
    pub fn keeps_alive(&self) -> bool {
        let version = if self.start[0].starts_with("HTTP/") { &self.start[0] } else { &self.start[2] };
        if version == "HTTP/1.0" { self.lists("connection", "keep-alive") } else { !self.lists("connection", "close") }
    }
}

/// Parses a head; `None` while it is not complete. The number is how many bytes it took.
pub fn parse_head(bytes: &[u8], limits: HeadLimits) -> Result<Option<(Head, usize)>, HeadError> {
    let within = bytes.get(..limits.bytes.min(bytes.len())).unwrap_or_default();
    // one empty line before a request is allowed, more are not
    if within.starts_with(b"\r\n\r\n") || within.starts_with(b"\n\n") {
        return Err(HeadError::Malformed("not an HTTP/1 start line"));
    }
    // a header line has at least three bytes
    let mut headers = vec![httparse::EMPTY_HEADER; limits.headers.min(within.len() / 3 + 1)];
    let is_response = within.trim_ascii_start().starts_with(b"HTTP/");
    let (start, used) = if is_response {
        let mut response = httparse::Response::new(&mut headers);
        let used = complete(response.parse(within), bytes, limits)?;
        let words = (version(response.version), response.code.unwrap_or_default(), response.reason.unwrap_or_default());
        ([words.0.to_owned(), format!("{:03}", words.1), words.2.to_owned()], used.map(|used| (used, response.headers)))
    } else {
        let mut request = httparse::Request::new(&mut headers);
        let used = complete(request.parse(within), bytes, limits)?;
        let words = [request.method.unwrap_or_default(), request.path.unwrap_or_default(), version(request.version)];
        (words.map(str::to_owned), used.map(|used| (used, request.headers)))
    };
    let Some((used, headers)) = used else { return Ok(None) };
    let headers = headers.iter().map(|header| (header.name.to_ascii_lowercase(), text(header.value)));
    Ok(Some((Head { start, headers: headers.collect() }, used)))
}

/// A header's value: UTF-8, or else ISO 8859-1, of which each byte is a character.
fn text(value: &[u8]) -> String {
    std::str::from_utf8(value).map_or_else(|_| value.iter().map(|byte| char::from(*byte)).collect(), str::to_owned)
}

/// The length of a head, if it is complete.
fn complete(parsed: httparse::Result<usize>, bytes: &[u8], limits: HeadLimits) -> Result<Option<usize>, HeadError> {
    use httparse::Error;
    match parsed {
        Ok(httparse::Status::Complete(used)) => Ok(Some(used)),
        Ok(httparse::Status::Partial) if bytes.len() >= limits.bytes => Err(HeadError::TooLong(limits.bytes)),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(Error::TooManyHeaders) => Err(HeadError::TooMany(limits.headers)),
        Err(Error::HeaderName) => Err(HeadError::Malformed("invalid header name")),
        Err(Error::HeaderValue) => Err(HeadError::Malformed("invalid header value")),
        Err(Error::NewLine) => Err(HeadError::Malformed("invalid line end")),
        Err(Error::Status | Error::Token | Error::Version) => Err(HeadError::Malformed("not an HTTP/1 start line")),
    }
}

const fn version(minor: Option<u8>) -> &'static str {
    if matches!(minor, Some(0)) { "HTTP/1.0" } else { "HTTP/1.1" }
}

/// Characters of methods and header names.
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a header may carry this text: no line breaks, no NUL.
pub fn is_header_value(value: &str) -> bool {
    !value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

/// Bytes of a line between chunks, at most.
const LONGEST_LINE: usize = 4096;

/// Reads the body that follows a head.
#[derive(Debug)]
pub enum Body {
    /// So many bytes are missing.
    Length(u64),
    Chunked(Chunks),
}

/// Where in a chunked body the reader is.
#[derive(Debug, Default)]
pub struct Chunks {
    /// Bytes of the current chunk that are missing.
    left: u64,
    /// A line that is not complete.
    line: Vec<u8>,
    state: ChunkState,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Size,
    Data,
    AfterData,
    Trailer,
    End,
}

impl Body {
    /// The body of a request with this head.
    pub fn of_request(head: &Head) -> Result<Self, HeadError> {
        let length = head.header("content-length");
        if let Some(coding) = head.header("transfer-encoding") {
            if length.is_some() || !coding.eq_ignore_ascii_case("chunked") {
                return Err(HeadError::Malformed("ambiguous body length"));
            }
            return Ok(Self::Chunked(Chunks::default()));
        }
        let Some(length) = length else { return Ok(Self::Length(0)) };
        let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let length = length.parse().ok().filter(|_| digits);
        length.map(Self::Length).ok_or(HeadError::Malformed("invalid Content-Length"))
    }

    /// Whether more is announced than `limit` bytes.
    pub const fn exceeds(&self, limit: usize) -> bool {
        matches!(self, Self::Length(left) if *left > limit as u64)
    }

    /// Whether all of it was read.
    pub const fn is_done(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => matches!(chunks.state, ChunkState::End),
        }
    }

    /// Takes bytes, hands data out, and says how many of the bytes were of this body.
    pub fn handle_bytes(&mut self, bytes: &[u8], mut data: impl FnMut(&[u8])) -> Result<usize, HeadError> {
        match self {
            Self::Length(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                if take > 0 {
                    data(bytes.get(..take).unwrap_or_default());
                }
                *left -= take as u64;
                Ok(take)
            }
            Self::Chunked(chunks) => chunks.handle_bytes(bytes, data),
        }
    }
}

impl Chunks {
    fn handle_bytes(&mut self, bytes: &[u8], mut data: impl FnMut(&[u8])) -> Result<usize, HeadError> {
        let mut used = 0;
        while self.state != ChunkState::End
            && let Some(rest) = bytes.get(used..).filter(|rest| !rest.is_empty())
        {
            if self.state == ChunkState::Data {
                let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                data(rest.get(..take).unwrap_or_default());
                self.left -= take as u64;
                used += take;
                if self.left == 0 {
                    self.state = ChunkState::AfterData;
                }
                continue;
            }
            let end = rest.iter().position(|byte| *byte == b'\n');
            self.line.extend_from_slice(rest.get(..end.unwrap_or(rest.len())).unwrap_or_default());
            if self.line.len() > LONGEST_LINE {
                return Err(HeadError::Malformed("chunk line too long"));
            }
            let Some(end) = end else { return Ok(bytes.len()) };
            used += end + 1;
            let line = std::mem::take(&mut self.line);
            self.line_done(line.strip_suffix(b"\r").unwrap_or(&line))?;
        }
        Ok(used)
    }

    fn line_done(&mut self, line: &[u8]) -> Result<(), HeadError> {
        self.state = match self.state {
            ChunkState::Size => {
                let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
                let digits = std::str::from_utf8(digits).map(str::trim).unwrap_or_default();
                let hex = digits.len() <= 15 && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
                self.left = u64::from_str_radix(digits, 16)
                    .ok()
                    .filter(|_| hex)
                    .ok_or(HeadError::Malformed("invalid chunk size"))?;
                if self.left == 0 { ChunkState::Trailer } else { ChunkState::Data }
            }
            ChunkState::AfterData if line.is_empty() => ChunkState::Size,
            ChunkState::AfterData => return Err(HeadError::Malformed("chunk longer than its size")),
            ChunkState::Trailer if line.is_empty() => ChunkState::End,
            ChunkState::Trailer | ChunkState::Data | ChunkState::End => self.state,
        };
        Ok(())
    }
}

/// The line before a chunk of `len` bytes; after the chunk comes `\r\n`.
pub fn chunk_head(len: usize) -> String {
    format!("{len:x}\r\n")
}

/// Ends a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<(Head, usize)>, HeadError> {
        parse_head(text.as_bytes(), HeadLimits { bytes: 200, headers: 3 })
    }

    #[test]
    fn a_head_is_read_once_it_is_complete() {
        let text = "GET /a?b=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\n\r\nbody";
        for cut in 0..text.len() - 4 {
            assert_eq!(head(&text[..cut]), Ok(None), "cut at {cut}");
        }
        let (head, used) = head(text).unwrap().unwrap();
        assert_eq!((head.method(), head.target(), head.version(), used), ("GET", "/a?b=1", "1.1", text.len() - 4));
        assert!(head.lists("connection", "upgrade") && !head.keeps_alive());
    }

    #[test]
    fn hostile_heads_are_refused() {
        let long = format!("GET / HTTP/1.1\r\na: {}", "x".repeat(200));
        assert_eq!(head(&long), Err(HeadError::TooLong(200)));
        let many = "GET / HTTP/1.1\r\na: 1\r\nb: 1\r\nc: 1\r\nd: 1\r\n\r\n";
        assert_eq!(head(many), Err(HeadError::TooMany(3)));
        for bad in [
            "GET /\r\n\r\n",
            "\r\n\r\n",
            "GET / HTTP/2\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\n a: 1\r\n\r\n",
        ] {
            assert!(matches!(head(bad), Err(HeadError::Malformed(_))), "{bad:?}");
        }
    }

    #[test]
    fn chunks_are_read_however_the_stream_is_cut() {
        let stream = b"4;ext=1\r\nWiki\r\n5\r\npedia\r\n0\r\nTrailer: x\r\n\r\nnext";
        for step in 1..=stream.len() {
            let mut body = Body::Chunked(Chunks::default());
            let (mut got, mut used) = (Vec::new(), 0);
            for piece in stream.chunks(step) {
                used += body.handle_bytes(piece, |data| got.extend_from_slice(data)).unwrap();
            }
            assert_eq!(
                (got.as_slice(), used, body.is_done()),
                (&b"Wikipedia"[..], stream.len() - 4, true),
                "step {step}"
            );
        }
    }

    #[test]
    fn an_ambiguous_body_is_refused() {
        let of = |headers: &str| {
            let (head, _) = parse_head(format!("POST / HTTP/1.1\r\n{headers}\r\n").as_bytes(), HeadLimits::default())
                .unwrap()
                .unwrap();
            Body::of_request(&head)
        };
        for bad in [
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: +1\r\n",
            "Transfer-Encoding: gzip\r\n",
        ] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
        for size in [&b"-1\r\n"[..], b"\r\n", b"+1\r\n", b"1g\r\n", b"0000000000000001\r\n", b"ffffffffffffffff\r\n"] {
            let mut chunks = Body::Chunked(Chunks::default());
            assert!(chunks.handle_bytes(size, |_| {}).is_err(), "{size:?}");
        }
    }
}
