//! What an epoll token identifies.

use super::slab::Key;

/// A watched descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Wake,
    Port(u32),
    /// A session's link: 0 is the source, then the stages.
    Link(Key, usize),
    PendingConnection(Key),
}

impl Token {
    pub(crate) fn pack(self) -> u64 {
        let keyed = |kind: u64, key: Key, at: usize| {
            kind << 60 | (at as u64 & 0xff) << 52 | u64::from(key.generation) << 32 | u64::from(key.slot)
        };
        match self {
            Self::Wake => 0,
            Self::Port(id) => 1 << 60 | u64::from(id),
            Self::Link(key, at) => keyed(2, key, at),
            Self::PendingConnection(key) => keyed(3, key, 0),
        }
    }

    pub(crate) fn unpack(token: u64) -> Self {
        let key = Key { slot: token as u32, generation: (token >> 32) as u32 & 0xf_ffff };
        match token >> 60 {
            0 => Self::Wake,
            1 => Self::Port(token as u32),
            2 => Self::Link(key, (token >> 52) as usize & 0xff),
            _ => Self::PendingConnection(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_packing() {
        let key = Key { slot: u32::MAX, generation: 0xf_ffff };
        for token in
            [Token::Wake, Token::Port(7), Token::Link(key, 255), Token::Link(key, 0), Token::PendingConnection(key)]
        {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
