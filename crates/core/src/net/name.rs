//! The name of an address's AddressClaim: an address has one claim because an object has one name.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 as it is; IPv6 as eight groups of four hex digits joined by dots.
pub fn claim_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => v6.segments().iter().fold(String::with_capacity(39), |mut name, group| {
            if !name.is_empty() {
                name.push('.');
            }
            write!(name, "{group:04x}").expect("a string takes any text");
            name
        }),
    }
}

/// The address that a claim is named after; none if the name is not exactly what [`claim_name`] writes.
pub fn parse_claim_name(name: &str) -> Option<IpAddr> {
    let address = match name.len() {
        39 => {
            let mut groups = [0; 8];
            let mut parts = name.split('.');
            for group in &mut groups {
                *group = u16::from_str_radix(parts.next()?, 16).ok()?;
            }
            IpAddr::V6(Ipv6Addr::from(groups))
        }
        _ => IpAddr::V4(name.parse::<Ipv4Addr>().ok()?),
    };
    (claim_name(address) == name).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_named_after_its_address() {
        for (address, name) in [("10.6.1.55", "10.6.1.55"), ("fd00::a:55", "fd00.0000.0000.0000.0000.0000.000a.0055")] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(claim_name(address), name);
            assert_eq!(parse_claim_name(name), Some(address));
        }
    }

    #[test]
    fn other_names_are_no_addresses() {
        for name in [
            "",
            "10.6.1",
            "10.6.1.055",
            "fd00::1",
            "FD00.0000.0000.0000.0000.0000.000a.0055",
            "fd00.0000.0000.0000.0000.0000.000a.+055",
            "fd00.0000.0000.0000.0000.00000.00a.0055",
        ] {
            assert_eq!(parse_claim_name(name), None, "{name}");
        }
    }
}
