//! One item of an address pool: an address, `a-b`, or a CIDR block.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::{number, v4, v6};

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// Every address from the first to the last of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    family: Family,
    first: u128,
    last: u128,
}

impl Range {
    /// From one number to another of a family; `first` must not be above `last`.
    pub(crate) fn between(family: Family, first: u128, last: u128) -> Self {
        Self { family, first, last }
    }

    /// Its family.
    pub fn family(self) -> Family {
        self.family
    }

    /// Number of its first address.
    pub fn first(self) -> u128 {
        self.first
    }

    /// Number of its last address.
    pub fn last(self) -> u128 {
        self.last
    }

    /// True if the address lies inside.
    pub fn contains(self, address: IpAddr) -> bool {
        Family::of(address) == self.family && (self.first..=self.last).contains(&super::number(address))
    }

    /// How many addresses it has; `u128::MAX` stands for the whole IPv6 space.
    pub fn count(self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    /// Its first address.
    pub fn first_address(self) -> IpAddr {
        self.address(self.first)
    }

    /// Its last address.
    pub fn last_address(self) -> IpAddr {
        self.address(self.last)
    }

    fn address(self, number: u128) -> IpAddr {
        match self.family {
            Family::V4 => v4(number).into(),
            Family::V6 => v6(number).into(),
        }
    }
}

impl From<IpAddr> for Range {
    fn from(address: IpAddr) -> Self {
        Self { family: Family::of(address), first: number(address), last: number(address) }
    }
}

impl From<IpNet> for Range {
    /// All addresses of the block, whatever host bits were written.
    fn from(net: IpNet) -> Self {
        Self { family: Family::of(net.addr()), first: number(net.network()), last: number(net.broadcast()) }
    }
}

impl FromStr for Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let malformed = || RangeError::Malformed(text.to_owned());
        let item = text.trim();
        if item.contains('/') {
            return item.parse::<IpNet>().map(Self::from).map_err(|_| malformed());
        }
        let Some((first, last)) = item.split_once('-') else {
            return item.parse::<IpAddr>().map(Self::from).map_err(|_| malformed());
        };
        let first: IpAddr = first.trim().parse().map_err(|_| malformed())?;
        let last: IpAddr = last.trim().parse().map_err(|_| malformed())?;
        if Family::of(first) != Family::of(last) {
            return Err(RangeError::MixedFamilies(text.to_owned()));
        }
        if first > last {
            return Err(RangeError::Backwards { first, last });
        }
        Ok(Self { family: Family::of(first), first: number(first), last: number(last) })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address(self.first))?;
        if self.first == self.last { Ok(()) } else { write!(f, "-{}", self.address(self.last)) }
    }
}

/// Why an item is no range of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RangeError {
    /// It is no address, range or block.
    Malformed(String),
    /// Its two ends are of different families.
    MixedFamilies(String),
    /// It ends before it begins.
    Backwards {
        /// As written on the left.
        first: IpAddr,
        /// As written on the right.
        last: IpAddr,
    },
    /// It stands in the list of the other family.
    WrongFamily {
        /// The item.
        item: String,
        /// The family of the list.
        wanted: Family,
    },
}

impl RangeError {
    /// The bounded word for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        "InvalidRange"
    }
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(item) => write!(
                f,
                "`{item}` is not an address, a range or a CIDR: write it like 10.6.1.55, 10.6.1.60-10.6.1.65 or 10.6.1.64/28"
            ),
            Self::MixedFamilies(item) => write!(f, "`{item}` mixes IPv4 and IPv6: write one range for each family"),
            Self::Backwards { first, last } => {
                write!(f, "`{first}-{last}` ends before it begins: write {last}-{first}")
            }
            Self::WrongFamily { item, wanted } => {
                write!(f, "`{item}` is not {wanted}: move it to the list of the other family")
            }
        }
    }
}

impl std::error::Error for RangeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_parse() {
        for (text, shown, count) in [
            ("10.6.1.55", "10.6.1.55", 1),
            (" 10.6.1.60 - 10.6.1.65 ", "10.6.1.60-10.6.1.65", 6),
            ("10.6.1.70/28", "10.6.1.64-10.6.1.79", 16),
            ("fd00::7/126", "fd00::4-fd00::7", 4),
            ("0.0.0.0/0", "0.0.0.0-255.255.255.255", 1 << 32),
            ("::/0", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", u128::MAX),
        ] {
            let range: Range = text.parse().unwrap();
            assert_eq!((range.to_string().as_str(), range.count()), (shown, count));
        }
    }

    #[test]
    fn a_range_holds_its_ends_and_no_other_family() {
        let range: Range = "0.0.0.4-0.0.0.7".parse().unwrap();
        for (address, inside) in
            [("0.0.0.3", false), ("0.0.0.4", true), ("0.0.0.7", true), ("0.0.0.8", false), ("::5", false)]
        {
            assert_eq!(range.contains(address.parse().unwrap()), inside, "{address}");
        }
    }

    #[test]
    fn an_error_says_what_to_write() {
        for (text, says) in [
            ("10.6.1", "write it like 10.6.1.55"),
            ("10.6.1.1/33", "write it like 10.6.1.55"),
            ("10.6.1.9-", "write it like 10.6.1.55"),
            ("10.6.1.9-fd00::1", "write one range for each family"),
            ("10.6.1.9-10.6.1.1", "write 10.6.1.1-10.6.1.9"),
        ] {
            let error = text.parse::<Range>().unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.reason(), "InvalidRange");
        }
    }
}
