//! Patterns and formats of strings.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine;
use regex::Regex;

/// Compiles a `pattern`. Go's dialect is that of the engine, but that its classes are ASCII.
pub(crate) fn pattern(text: &str) -> Result<Regex, regex::Error> {
    let ascii = |part: &str| {
        let digits = part.replace(r"\d", "[0-9]").replace(r"\D", "[^0-9]");
        let words = digits.replace(r"\w", "[0-9A-Za-z_]").replace(r"\W", "[^0-9A-Za-z_]");
        words.replace(r"\s", r"[\t\n\f\r\x20]").replace(r"\S", r"[^\t\n\f\r\x20]")
    };
    // an escaped backslash starts no class
    Regex::new(&text.split(r"\\").map(ascii).collect::<Vec<_>>().join(r"\\"))
}

/// Whether a string has a format; formats that are not known here are not checked.
pub(super) fn fits(format: &str, text: &str) -> bool {
    match format {
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "date-time" => {
            let separated = matches!(text.as_bytes().get(10), Some(b'T' | b't'));
            separated && text.parse::<jiff::Timestamp>().is_ok()
        }
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => text.split_once('/').is_some_and(|(address, bits)| {
            let most = address.parse().map(|address: IpAddr| if address.is_ipv4() { 32 } else { 128 });
            most.is_ok_and(|most| bits.parse::<u8>().is_ok_and(|bits| bits <= most))
        }),
        "uuid" => {
            let digits = text.replace('-', "");
            digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        for (text, value, matches) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^[\w-]+$", "a-b", true),
            (r"^[^\s]+$", "a b", false),
            (r"^\\d$", r"\d", true),
            (r"^.{2}$", "éé", true),
            ("a+", "xaay", true),
        ] {
            assert_eq!(pattern(text).unwrap().is_match(value), matches, "{text} {value}");
        }
        assert!(pattern("(").is_err());
    }
}
