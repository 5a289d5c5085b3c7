//! Addresses by the range: pool items, ordered pools, sets of intervals, and the names of address claims.
//!
//! An address is a number inside its family (`u128` for both), so that an IPv6 /64 costs as much as one address:
//! nothing here enumerates.

mod interval;
mod name;
mod pool;
mod range;

pub use interval::{AddressSet, IntervalSet};
pub use name::{claim_name, parse_claim_name};
pub use pool::{Pool, Ranges};
pub use range::{Family, Range, RangeError};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address as a number of its family.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The IPv4 address of a number; numbers above the family's end stand for its last address.
pub(crate) fn v4(number: u128) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX))
}

/// The IPv6 address of a number.
pub(crate) fn v6(number: u128) -> Ipv6Addr {
    Ipv6Addr::from_bits(number)
}
