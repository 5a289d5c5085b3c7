//! Loopback addresses for pods, of which several processes on one machine take different ones.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};

use ipnet::Ipv4Net;

/// All loopback addresses that pods may ever have.
const ALL: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 77, 0, 0), 16);
/// As many as `kubectl get pods -o wide` shows on one screen, and more.
const LENGTH: u8 = 24;
/// Who has this port on the first address of a range has the range.
const PORT: u16 = 7777;

/// A range that is ours as long as this lives.
pub struct Claim {
    pub range: Ipv4Net,
    _held: UdpSocket,
}

impl Claim {
    /// Takes the first range that nobody has.
    pub fn take() -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for range in ALL.subnets(LENGTH).into_iter().flatten() {
            match UdpSocket::bind((range.network(), PORT)) {
                Ok(held) => return Ok(Self { range, _held: held }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_have_different_ranges() {
        let (one, other) = (Claim::take().unwrap(), Claim::take().unwrap());
        assert_ne!(one.range, other.range);
        assert!(ALL.contains(&one.range) && ALL.contains(&other.range));
    }
}
