//! IP addresses and networks as Kubernetes' fields take them.

use std::net::IpAddr;

use super::{Faults, quoted};

const NO_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NO_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// An address of an older field: no leading zeros, not IPv4 in IPv6, but any spelling. True when it is one.
pub(super) fn ip(field: &str, value: &str, faults: &mut Faults) -> bool {
    let message = match value.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => "must not be an IPv4-mapped IPv6 address",
        Ok(_) => return true,
        Err(_) if has_leading_zeros(value) => "must not have leading 0s",
        Err(_) => NO_IP,
    };
    faults.invalid(field, &quoted(value), message);
    false
}

/// An address of a newer field, in the one canonical spelling.
pub(super) fn canonical_ip(field: &str, value: &str, faults: &mut Faults) -> bool {
    if !ip(field, value, faults) {
        return false;
    }
    let canonical = value.parse::<IpAddr>().map(|address| address.to_string()).unwrap_or_default();
    if canonical != value {
        faults.invalid(field, &quoted(value), &format!("must be in canonical form ({canonical:?})"));
        return false;
    }
    true
}

/// An address that an endpoint may have: neither unspecified, loopback nor link-local.
pub(super) fn endpoint_ip(field: &str, value: &str, faults: &mut Faults) {
    let Ok(address) = value.parse::<IpAddr>() else {
        faults.invalid(field, &quoted(value), "must be a valid IP address");
        return;
    };
    let (link_local, multicast) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (address.is_unicast_link_local(), (address.segments()[0] & 0xff0f) == 0xff02),
    };
    for (holds, message) in [
        (address.is_unspecified(), format!("may not be unspecified ({value})")),
        (address.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()),
        (link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()),
        (multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()),
    ] {
        if holds {
            faults.invalid(field, &quoted(value), &message);
        }
    }
}

/// A network such as `10.0.0.0/8`.
pub(super) fn cidr(field: &str, value: &str, faults: &mut Faults) {
    let parsed = value.split_once('/').and_then(|(address, bits)| {
        let address: IpAddr = address.parse().ok()?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        bits.parse::<u8>().ok().filter(|bits| *bits <= width)
    });
    if parsed.is_none() {
        faults.invalid(field, &quoted(value), NO_CIDR);
    }
}

fn has_leading_zeros(value: &str) -> bool {
    let plain: Vec<&str> = value.split('.').map(|part| part.trim_start_matches('0')).collect();
    let plain: Vec<&str> = plain.into_iter().map(|part| if part.is_empty() { "0" } else { part }).collect();
    plain.join(".").parse::<IpAddr>().is_ok() && !value.split('.').any(str::is_empty)
}
