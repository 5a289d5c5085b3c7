//! The list of addresses in an annotation.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Addresses that a namespace may name, at most.
const LONGEST: usize = 16;
/// A shorter text cannot hold an address and counts as absent.
const SHORTEST: usize = 7;

/// What an annotation `egressips` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressList {
    /// Nothing.
    Absent,
    /// These addresses; the order has no meaning.
    Addresses(BTreeSet<Ipv4Addr>),
    /// No list of addresses: why, and what to write.
    Invalid(String),
}

impl AddressList {
    /// Reads an annotation: blanks and a trailing comma are tolerated.
    pub fn parse(text: Option<&str>) -> Self {
        let text = text.unwrap_or_default().trim();
        if text.len() < SHORTEST {
            return Self::Absent;
        }
        let text = text.strip_suffix(',').unwrap_or(text);
        let mut addresses = BTreeSet::new();
        for item in text.split(',').map(str::trim) {
            let Ok(address) = item.parse::<Ipv4Addr>() else {
                return Self::Invalid(format!(
                    "`{item}` is not an IPv4 address: write a comma-separated list like 10.0.0.7,10.0.16.9"
                ));
            };
            addresses.insert(address);
        }
        if addresses.len() > LONGEST {
            return Self::Invalid(format!("{} addresses are requested: name {LONGEST} at most", addresses.len()));
        }
        Self::Addresses(addresses)
    }

    /// Writes a list as [`AddressList::parse`] reads it.
    pub fn format(addresses: &BTreeSet<Ipv4Addr>) -> Arc<str> {
        addresses.iter().map(Ipv4Addr::to_string).collect::<Vec<_>>().join(",").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_with_tolerance() {
        let both = BTreeSet::from([Ipv4Addr::new(10, 0, 0, 7), Ipv4Addr::new(10, 0, 16, 9)]);
        for text in ["10.0.0.7,10.0.16.9", " 10.0.16.9 , 10.0.0.7,", "10.0.0.7,10.0.16.9,10.0.0.7"] {
            assert_eq!(AddressList::parse(Some(text)), AddressList::Addresses(both.clone()), "{text}");
        }
        assert_eq!(&*AddressList::format(&both), "10.0.0.7,10.0.16.9");
    }

    #[test]
    fn short_texts_are_absent_and_bad_ones_are_invalid() {
        for text in [None, Some(""), Some("  "), Some("none"), Some("1.2.3,")] {
            assert_eq!(AddressList::parse(text), AddressList::Absent, "{text:?}");
        }
        for text in ["10.0.0.7,,10.0.0.8", "10.0.0.256", "10.0.0.7;10.0.0.8", "fd00::1234"] {
            assert!(matches!(AddressList::parse(Some(text)), AddressList::Invalid(_)), "{text}");
        }
        let many: BTreeSet<_> = (1..=17).map(|last| Ipv4Addr::new(10, 0, 0, last)).collect();
        assert!(matches!(AddressList::parse(Some(&AddressList::format(&many))), AddressList::Invalid(_)));
    }
}
