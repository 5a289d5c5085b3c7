//! Formats of strings, as lenient and as odd as Kubernetes' own checks.

use std::net::{IpAddr, Ipv6Addr};

use super::names;
use super::pattern;

/// Whether the format is checked at all; other formats are ignored.
pub(crate) fn is_known(format: &str) -> bool {
    const KNOWN: [&str; 26] = [
        "bsonobjectid",
        "uri",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "cidr",
        "mac",
        "uuid",
        "uuid3",
        "uuid4",
        "uuid5",
        "isbn",
        "isbn10",
        "isbn13",
        "creditcard",
        "ssn",
        "hexcolor",
        "rgbcolor",
        "byte",
        "password",
        "date",
        "duration",
        "datetime",
        "k8sshortname",
        "k8slongname",
    ];
    KNOWN.contains(&format.replace('-', "").as_str())
}

pub(crate) fn fits(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "bsonobjectid" => text.len() == 24 && all_hex(text),
        "uri" => is_request_uri(text),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.contains('.') && sloppy_ip(text).is_some(),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some(b'3')),
        "uuid4" => is_uuid(text, Some(b'4')),
        "uuid5" => is_uuid(text, Some(b'5')),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "ssn" => pattern::matches(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$", text) == Ok(true),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && all_hex(digits)
        }
        "rgbcolor" => is_rgb(text),
        "byte" => is_base64(text),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "datetime" => is_date_time(text),
        "k8sshortname" => text.len() <= 63 && names::is_label(text),
        "k8slongname" => text.len() <= 253 && names::is_subdomain(text),
        _ => true,
    }
}

fn all_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shaped = bytes.len() == 10
        && bytes
            .iter()
            .enumerate()
            .all(|(at, byte)| if at == 4 || at == 7 { *byte == b'-' } else { byte.is_ascii_digit() });
    shaped && text.parse::<jiff::civil::Date>().is_ok()
}

/// `2006-01-02T15:04:05`, a fraction if any, `Z` or an offset; any case.
fn is_date_time(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let Some((date, time)) = text.split_once('t') else { return false };
    let time = time.split('t').next().unwrap_or_default();
    let bytes = time.as_bytes();
    let two = |at: usize, max: u8| {
        let (tens, ones) = (bytes.get(at)?, bytes.get(at + 1)?);
        let digits = tens.is_ascii_digit() && ones.is_ascii_digit();
        (digits && (tens - b'0') * 10 + (ones - b'0') <= max).then_some(())
    };
    let colons = bytes.get(2) == Some(&b':') && bytes.get(5) == Some(&b':');
    if !is_date(date) || !colons || two(0, 23).is_none() || two(3, 59).is_none() || two(6, 59).is_none() {
        return false;
    }
    let rest = time.get(8..).unwrap_or_default();
    let is_zone = |zone: &str| {
        let bytes = zone.as_bytes();
        zone == "z"
            || (bytes.len() == 6
                && (bytes[0] == b'+' || bytes[0] == b'-')
                && bytes[3] == b':'
                && [1, 2, 4, 5].iter().all(|at| bytes[*at].is_ascii_digit()))
    };
    if is_zone(rest) {
        return true;
    }
    // any character may stand before the fraction
    let mut chars = rest.chars();
    chars.next();
    let fraction = chars.as_str();
    let zone = fraction.trim_start_matches(|ch: char| ch.is_ascii_digit());
    zone.len() < fraction.len() && is_zone(zone)
}

/// What Go's `time.ParseDuration` takes, or numbers with a unit anywhere in the text.
fn is_duration(text: &str) -> bool {
    is_go_duration(text) || has_loose_duration(text)
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut any = false;
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|ch: char| ch.is_ascii_digit() || ch == '.').len();
        let (digits, tail) = rest.split_at(number);
        if digits.matches('.').count() > 1 || !digits.contains(|ch: char| ch.is_ascii_digit()) {
            return false;
        }
        let Some(unit) = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"].into_iter().find(|unit| {
            tail.strip_prefix(unit).is_some_and(|after| !after.starts_with(|ch: char| ch.is_alphabetic()))
        }) else {
            return false;
        };
        rest = &tail[unit.len()..];
        any = true;
    }
    any
}

fn has_loose_duration(text: &str) -> bool {
    const UNITS: [(&[&str], &str); 8] = [
        (&["ns"], "nano"),
        (&["us", "µs"], "micro"),
        (&["ms"], "milli"),
        (&["s"], "sec"),
        (&["m"], "min"),
        (&["h", "hr"], "hour"),
        (&["d"], "day"),
        (&["w", "wk"], "week"),
    ];
    let chars: Vec<char> = text.chars().collect();
    chars.iter().enumerate().any(|(at, ch)| {
        if !ch.is_ascii_digit() {
            return false;
        }
        let unit: String = chars[at + 1..]
            .iter()
            .skip_while(|ch| ch.is_ascii_whitespace())
            .take_while(|ch| ch.is_ascii_alphabetic() || **ch == 'µ')
            .collect::<String>()
            .to_lowercase();
        UNITS.iter().any(|(exact, prefix)| exact.contains(&unit.as_str()) || unit.starts_with(prefix))
    })
}

/// Leading zeros in IPv4 are taken, as before Go 1.17.
fn sloppy_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok();
    }
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        *octet = digits.then(|| part.parse().ok()).flatten()?;
    }
    parts.next().is_none().then(|| octets.into())
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    match sloppy_ip(address) {
        Some(IpAddr::V4(_)) => digits && length.parse::<u32>().is_ok_and(|length| length <= 32),
        Some(IpAddr::V6(_)) => digits && length.parse::<u32>().is_ok_and(|length| length <= 128),
        None => false,
    }
}

fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        let bytes = parts.len() * width / 2;
        matches!(bytes, 6 | 8 | 20) && parts.iter().all(|part| part.len() == width && all_hex(part))
    };
    groups(':', 2) || groups('-', 2) || groups('.', 4)
}

fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let mut digits = Vec::with_capacity(32);
    let mut rest = text;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        rest = if index > 0 { rest.strip_prefix('-').unwrap_or(rest) } else { rest };
        let Some((group, tail)) = rest.split_at_checked(length) else { return false };
        digits.extend(group.bytes());
        rest = tail;
    }
    let variant =
        version.is_none_or(|version| digits[12] == version && (version == b'3' || b"89abAB".contains(&digits[16])));
    rest.is_empty() && digits.iter().all(u8::is_ascii_hexdigit) && variant
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    let alphabet = body.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/');
    !text.is_empty() && text.len().is_multiple_of(4) && padding <= 2 && !body.is_empty() && alphabet
}

/// What Go's `url.ParseRequestURI` takes: an absolute URI or an absolute path.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let scheme = text.find(|ch: char| !(ch.is_ascii_alphanumeric() || "+-.".contains(ch)));
    let (has_scheme, rest) = match scheme {
        Some(0) if text.starts_with(':') => return false,
        Some(at) if text[at..].starts_with(':') && text.starts_with(|ch: char| ch.is_ascii_alphabetic()) => {
            (true, &text[at + 1..])
        }
        _ => (false, text),
    };
    let path_and_host = rest.split('?').next().unwrap_or_default();
    if !path_and_host.starts_with('/') {
        return has_scheme;
    }
    let (host, path) = match path_and_host.strip_prefix("//").filter(|_| has_scheme) {
        Some(authority) => authority.split_at(authority.find('/').unwrap_or(authority.len())),
        None => ("", path_and_host),
    };
    is_authority(host) && escapes_are_whole(path)
}

fn is_authority(authority: &str) -> bool {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = if let Some(bracketed) = host.strip_prefix('[') {
        let Some((_, after)) = bracketed.split_once(']') else { return false };
        after
    } else {
        host.rfind(':').map_or("", |at| &host[at..])
    };
    let port_fits =
        port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let chars_fit =
        host.chars().all(|ch| !ch.is_ascii() || ch.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(ch));
    port_fits && chars_fit && escapes_are_whole(host)
}

fn escapes_are_whole(text: &str) -> bool {
    text.split('%').skip(1).all(|after| after.get(..2).is_some_and(all_hex))
}

/// What Go's `mail.ParseAddress` takes, without comments and groups.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match text.strip_suffix('>') {
        Some(named) => match named.rsplit_once('<') {
            Some((name, address)) if !name.contains(['@', '<', '>', ',']) || name.trim().starts_with('"') => address,
            _ => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_atom = |atom: &str| {
        !atom.is_empty()
            && atom.chars().all(|ch| ch.is_alphanumeric() || !ch.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(ch))
    };
    let local_fits =
        local.split('.').all(is_atom) || (local.len() > 1 && local.starts_with('"') && local.ends_with('"'));
    let literal = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    local_fits && literal.map_or_else(|| domain.split('.').all(is_atom), |literal| sloppy_ip(literal).is_some())
}

fn is_hostname(text: &str) -> bool {
    const HOSTNAME: &str = r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$";
    text.len() <= 255 && text.split('.').all(|part| part.len() <= 63) && pattern::matches(HOSTNAME, text) == Ok(true)
}

fn is_rgb(text: &str) -> bool {
    const CHANNEL: &str = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    let rgb = format!(r"^rgb\({CHANNEL},{CHANNEL},{CHANNEL}\)$");
    pattern::matches(&rgb, text) == Ok(true)
}

fn compact(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| *byte != b'-' && !byte.is_ascii_whitespace()).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = compact(text);
    let mut sum = 0;
    for (index, byte) in digits.iter().enumerate() {
        let value = match byte {
            b'0'..=b'9' => usize::from(byte - b'0'),
            b'X' if index == 9 => 10,
            _ => return false,
        };
        sum += (index + 1) * value;
    }
    digits.len() == 10 && sum % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let digits = compact(text);
    let weighted = digits
        .iter()
        .enumerate()
        .map(|(index, byte)| usize::from(byte.wrapping_sub(b'0')) * if index % 2 == 0 { 1 } else { 3 });
    digits.len() == 13 && digits.iter().all(u8::is_ascii_digit) && weighted.sum::<usize>().is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_digit).map(|byte| byte - b'0').collect();
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(index, digit)| {
            let doubled = u32::from(*digit) * if index % 2 == 1 { 2 } else { 1 };
            if doubled > 9 { doubled - 9 } else { doubled }
        })
        .sum();
    matches!(digits.len(), 13..=16) && sum.is_multiple_of(10)
}
