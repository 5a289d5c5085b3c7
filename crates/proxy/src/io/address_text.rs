//! Addresses and numbers in session names. Every session has a name, so the common case avoids the formatter.

use std::net::{IpAddr, SocketAddr};

/// Writes address and port; an IPv6 address has no brackets.
pub(crate) fn push_address(name: &mut String, at: SocketAddr) {
    match at.ip() {
        IpAddr::V4(v4) => {
            for (i, octet) in v4.octets().into_iter().enumerate() {
                if i > 0 {
                    name.push('.');
                }
                push_number(name, u64::from(octet));
            }
        }
        IpAddr::V6(v6) => name.push_str(&v6.to_string()),
    }
    name.push(':');
    push_number(name, u64::from(at.port()));
}

pub(crate) fn push_number(name: &mut String, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len() - 1;
    digits[first] += (number % 10) as u8;
    while number > 9 {
        number /= 10;
        first -= 1;
        digits[first] += (number % 10) as u8;
    }
    name.push_str(str::from_utf8(&digits[first..]).unwrap_or_default());
}

/// What [`push_address`] wrote.
pub(crate) fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.rsplit_once(':')?;
    Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_numbers_are_written_as_the_formatter_does_and_read_again() {
        for text in ["127.0.0.1:80", "10.200.0.255:65535", "0.0.0.0:0", "[fd00::1]:5"] {
            let at: SocketAddr = text.parse().unwrap();
            let mut name = String::new();
            push_address(&mut name, at);
            assert_eq!(name, format!("{}:{}", at.ip(), at.port()));
            assert_eq!(parse_address(&name), Some(at));
        }
        for number in [0, 9, 10, 99, 100, u64::MAX] {
            let mut name = String::new();
            push_number(&mut name, number);
            assert_eq!(name, number.to_string());
        }
    }
}
