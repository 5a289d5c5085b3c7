//! The wire format of protobuf: fields as numbers with values.

/// What every encoded object begins with.
pub(super) const MAGIC: &[u8] = b"k8s\0";

/// Why bytes cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("it does not begin with k8s and a zero byte")]
    NoMagic,
    #[error("no message is known for {kind:?} of {api_version:?}")]
    UnknownKind { api_version: String, kind: String },
    #[error("it ends within a field")]
    Short,
    #[error("a number is longer than ten bytes")]
    Number,
    #[error("a field has no valid tag")]
    Tag,
    #[error("field {0} has another type on the wire")]
    Type(u32),
    #[error("a time is out of range")]
    Time,
    #[error("a field that holds JSON holds something else")]
    Json,
    #[error("it is nested too deep")]
    Deep,
}

/// A value as it stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    Number(u64),
    Fixed(u64),
    /// No message of Kubernetes has one.
    Fixed32,
    Bytes(&'a [u8]),
}

/// Reads one field after the other.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field with its number.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, Fault> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0).ok_or(Fault::Tag)?;
        let value = match tag & 7 {
            0 => Wire::Number(self.number()?),
            1 => Wire::Fixed(self.fixed::<8>().map(u64::from_le_bytes)?),
            2 => {
                let length = usize::try_from(self.number()?).map_err(|_| Fault::Short)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => self.fixed::<4>().map(|_| Wire::Fixed32)?,
            // Groups, which no message of Kubernetes has.
            _ => return Err(Fault::Tag),
        };
        Ok(Some((number, value)))
    }

    /// A number of seven bits per byte.
    pub(super) fn number(&mut self) -> Result<u64, Fault> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.fixed()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Fault::Number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn fixed<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], Fault> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Fault::Short)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Fault::Short)?;
        self.rest = rest;
        Ok(bytes)
    }
}

/// Appends a field with a number.
pub(super) fn put_number(out: &mut Vec<u8>, field: u32, number: u64) {
    put(out, u64::from(field) << 3);
    put(out, number);
}

/// Appends a field with a double.
pub(super) fn put_double(out: &mut Vec<u8>, field: u32, number: f64) {
    put(out, u64::from(field) << 3 | 1);
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends a field with bytes: a string, or a message.
pub(super) fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put(out, u64::from(field) << 3 | 2);
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}
