//! Netlink messages: headers and attributes, written and read.

/// A request; its sequence number is given when it is sent.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) kind: u16,
    pub(super) flags: u16,
    /// The protocol's own header, then attributes.
    pub(super) body: Vec<u8>,
}

impl Message {
    pub(super) fn new(kind: u16, flags: u16, header: &[u8]) -> Self {
        Self { kind, flags, body: header.to_vec() }
    }

    pub(super) fn attribute(mut self, kind: u16, data: &[u8]) -> Self {
        put(&mut self.body, kind, data);
        self
    }

    pub(super) fn nested(mut self, kind: u16, inner: &[u8]) -> Self {
        put(&mut self.body, kind | NESTED, inner);
        self
    }

    /// The message with its header.
    pub(super) fn write(&self, sequence: u32, to: &mut Vec<u8>) {
        let length = u32::try_from(HEADER + self.body.len()).expect("a message is below 4 GiB");
        to.extend(length.to_ne_bytes());
        to.extend(self.kind.to_ne_bytes());
        to.extend((self.flags | REQUEST).to_ne_bytes());
        to.extend(sequence.to_ne_bytes());
        to.extend([0; 4]);
        to.extend(&self.body);
        to.resize(to.len().next_multiple_of(4), 0);
    }
}

/// Appends an attribute.
pub(super) fn put(to: &mut Vec<u8>, kind: u16, data: &[u8]) {
    let length = u16::try_from(4 + data.len()).expect("an attribute is below 64 KiB");
    to.extend(length.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(data);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Appends an attribute that has attributes.
pub(super) fn put_nested(to: &mut Vec<u8>, kind: u16, inner: &[u8]) {
    put(to, kind | NESTED, inner);
}

/// Appends a text with its final zero.
pub(super) fn put_text(to: &mut Vec<u8>, kind: u16, text: &str) {
    put(to, kind, &[text.as_bytes(), &[0]].concat());
}

/// A list of attributes, as many protocols write it.
pub(super) fn attributes(list: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, data) in list {
        put(&mut bytes, *kind, data);
    }
    bytes
}

/// One message that the kernel sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    /// The port of whoever caused it.
    pub(super) port: u32,
    pub(super) body: &'a [u8],
}

/// The messages of one datagram; what cannot be read ends it.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let (kind, flags) = (u16_at(bytes, 4)?, u16_at(bytes, 6)?);
        let (sequence, port) = (u32_at(bytes, 8)?, u32_at(bytes, 12)?);
        let body = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Received { kind, flags, sequence, port, body })
    })
}

/// Attributes with their kinds, the marks of nesting and byte order taken off; what cannot be read ends them.
pub(super) fn parse(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & !(NESTED | NETWORK_ORDER);
        let data = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, data))
    })
}

/// The attribute of a kind.
pub(super) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    parse(bytes).find(|(found, _)| *found == kind).map(|(_, data)| data)
}

/// A text without its final zero.
pub(super) fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes.strip_suffix(&[0]).unwrap_or(bytes)).ok()
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// A number in network order, as nftables has all of them.
pub(super) fn be32(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_be_bytes)
}

const HEADER: usize = 16;
const NESTED: u16 = 0x8000;
const NETWORK_ORDER: u16 = 0x4000;
const REQUEST: u16 = 1;

/// Flags of requests.
pub(super) const ACK: u16 = 4;
pub(super) const DUMP: u16 = 0x300;
pub(super) const REPLACE: u16 = 0x100;
pub(super) const EXCLUSIVE: u16 = 0x200;
pub(super) const CREATE: u16 = 0x400;
pub(super) const APPEND: u16 = 0x800;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_cut_anywhere_are_read_without_panic() {
        let message = Message::new(3, 0, &[1, 2, 3, 4]).attribute(1, b"name\0").nested(2, &attributes(&[(1, &[7; 9])]));
        let mut bytes = Vec::new();
        message.write(1, &mut bytes);
        message.write(2, &mut bytes);
        assert_eq!(messages(&bytes).map(|message| message.sequence).collect::<Vec<_>>(), [1, 2]);
        for end in 0..bytes.len() {
            for message in messages(&bytes[..end]) {
                assert_eq!(parse(&message.body[4..]).count(), 2);
            }
            assert!(parse(&bytes[..end]).count() <= end);
        }
    }
}
