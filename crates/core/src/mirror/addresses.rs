//! Which addresses a remote may make endpoints of: a hostile one must not turn this cluster's traffic against itself.

use std::net::{IpAddr, Ipv6Addr};

use super::rules::Rules;
use super::types::Local;

/// Why an address is no endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressRefused {
    /// Unspecified, loopback, link-local, multicast, reserved or broadcast.
    Special,
    /// An IPv6 address that embeds an IPv4 address.
    EmbeddedIpv4,
    /// The metadata service of a cloud.
    Metadata,
    /// A Service, pod or node of this cluster.
    LocalRange,
    /// Not in the ranges that the remote may use.
    NotAllowed,
}

impl AddressRefused {
    /// The label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Special => "special",
            Self::EmbeddedIpv4 => "embedded-ipv4",
            Self::Metadata => "metadata",
            Self::LocalRange => "local-range",
            Self::NotAllowed => "not-allowed",
        }
    }

    /// Completes "address A ...".
    pub const fn message(self) -> &'static str {
        match self {
            Self::Special => "is not a unicast address that another cluster can have",
            Self::EmbeddedIpv4 => "is an IPv6 address that embeds an IPv4 address",
            Self::Metadata => "is the metadata service of a cloud",
            Self::LocalRange => "belongs to this cluster",
            Self::NotAllowed => "is not in addresses.allowedCIDRs",
        }
    }
}

/// Checks an address.
pub(super) fn check(local: &Local, rules: &Rules, address: IpAddr) -> Result<(), AddressRefused> {
    if is_special(address) {
        Err(AddressRefused::Special)
    } else if is_metadata(address) {
        Err(AddressRefused::Metadata)
    } else if embeds_ipv4(address) {
        Err(AddressRefused::EmbeddedIpv4)
    } else if local.ranges.iter().any(|range| range.contains(&address)) {
        Err(AddressRefused::LocalRange)
    } else if !rules.allowed.iter().any(|range| range.contains(&address)) {
        Err(AddressRefused::NotAllowed)
    } else {
        Ok(())
    }
}

fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let first = v4.octets()[0];
            first == 0 || first >= 224 || v4.is_loopback() || v4.is_link_local()
        }
        IpAddr::V6(v6) => v6.is_unspecified() || v6.is_loopback() || v6.is_multicast() || v6.is_unicast_link_local(),
    }
}

fn is_metadata(address: IpAddr) -> bool {
    let IpAddr::V6(v6) = address else { return false };
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)]
        .contains(&v6)
}

/// Mapped, compatible, NAT64 and 6to4 addresses.
fn embeds_ipv4(address: IpAddr) -> bool {
    let IpAddr::V6(v6) = address else { return false };
    matches!(
        v6.segments(),
        [0, 0, 0, 0, 0, 0xffff | 0, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] | [0x64, 0xff9b, 1, ..] | [0x2002, ..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_refused() {
        let local = Local { ranges: vec!["10.96.0.0/12".parse().unwrap()], ..Local::default() };
        let rules = Rules { allowed: vec!["10.0.0.0/8".parse().unwrap(), "::/0".parse().unwrap()], ..Rules::default() };
        let any = Rules::default();
        for (address, rules, expected) in [
            ("10.1.2.3", &rules, Ok(())),
            ("fd00::1", &rules, Ok(())),
            ("192.0.2.1", &any, Ok(())),
            ("192.0.2.1", &rules, Err(AddressRefused::NotAllowed)),
            ("10.96.0.1", &any, Err(AddressRefused::LocalRange)),
            ("0.0.0.0", &any, Err(AddressRefused::Special)),
            ("0.1.2.3", &any, Err(AddressRefused::Special)),
            ("127.0.0.1", &any, Err(AddressRefused::Special)),
            ("169.254.169.254", &any, Err(AddressRefused::Special)),
            ("224.0.0.1", &any, Err(AddressRefused::Special)),
            ("240.0.0.1", &any, Err(AddressRefused::Special)),
            ("255.255.255.255", &any, Err(AddressRefused::Special)),
            ("::", &any, Err(AddressRefused::Special)),
            ("::1", &any, Err(AddressRefused::Special)),
            ("fe80::1", &any, Err(AddressRefused::Special)),
            ("ff0e::1", &any, Err(AddressRefused::Special)),
            ("::ffff:10.1.2.3", &any, Err(AddressRefused::EmbeddedIpv4)),
            ("::10.1.2.3", &any, Err(AddressRefused::EmbeddedIpv4)),
            ("64:ff9b::10.1.2.3", &any, Err(AddressRefused::EmbeddedIpv4)),
            ("64:ff9b:1:2::1", &any, Err(AddressRefused::EmbeddedIpv4)),
            ("2002:a01:203::1", &any, Err(AddressRefused::EmbeddedIpv4)),
            ("fd00:ec2::254", &any, Err(AddressRefused::Metadata)),
            ("fd20:ce::254", &any, Err(AddressRefused::Metadata)),
        ] {
            assert_eq!(check(&local, rules, address.parse().unwrap()), expected, "{address}");
        }
    }
}
