//! How single fields of objects are read.

use std::net::{IpAddr, Ipv4Addr};

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// An address; `localhost` is 127.0.0.1, an IPv4-mapped IPv6 address is IPv4.
pub(crate) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    match Option::<String>::deserialize(deserializer)? {
        None => Ok(None),
        Some(text) => ip(&text).map(Some).ok_or_else(|| D::Error::custom("not an address")),
    }
}

/// One address or a list of them.
pub(crate) fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpAddr>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    let texts = match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    };
    texts.iter().map(|text| ip(text).ok_or_else(|| D::Error::custom("not an address"))).collect()
}

/// File permissions: a number, or octal digits in a string.
pub(crate) fn file_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Mode {
        Number(u32),
        Digits(String),
    }
    let mode = match Option::<Mode>::deserialize(deserializer)? {
        None => return Ok(None),
        Some(Mode::Number(mode)) => Some(mode),
        Some(Mode::Digits(text)) => u32::from_str_radix(text.trim_start_matches("0o"), 8).ok(),
    };
    mode.filter(|mode| *mode <= 0o777).map(Some).ok_or_else(|| D::Error::custom("not file permissions"))
}

/// A time in seconds: some 31 years at most, so that no clock runs over.
pub(crate) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    within(f64::deserialize(deserializer)?, 1e9)
}

/// A time that may be absent.
pub(crate) fn maybe_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Option::<f64>::deserialize(deserializer)?.map(|number| within(number, 1e9)).transpose()
}

/// A rate or a share, which is never below zero.
pub(crate) fn maybe_rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Option::<f64>::deserialize(deserializer)?.map(|number| within(number, 1e15)).transpose()
}

/// A time in milliseconds, as long as [`seconds`].
pub(crate) fn millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = u64::deserialize(deserializer)?;
    if number <= 1_000_000_000_000 { Ok(number) } else { Err(D::Error::custom("too long")) }
}

/// Six bits of an IP header.
pub(crate) fn dscp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    let bits = Option::<u8>::deserialize(deserializer)?;
    if bits.is_none_or(|bits| bits < 64) { Ok(bits) } else { Err(D::Error::custom("more than six bits")) }
}

/// A path that is valid on a request line.
pub(crate) fn url_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let path = Option::<String>::deserialize(deserializer)?;
    let fits = path.as_ref().is_none_or(|path| path.bytes().all(|byte| byte.is_ascii_graphic()));
    if fits { Ok(path) } else { Err(D::Error::custom("not a path")) }
}

/// Words that are valid in a header, for example subprotocols.
pub(crate) fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let words = Vec::<String>::deserialize(deserializer)?;
    let fits = |word: &String| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    if words.iter().all(fits) { Ok(words) } else { Err(D::Error::custom("not a token")) }
}

fn within<E: Error>(number: f64, most: f64) -> Result<f64, E> {
    if (0.0..=most).contains(&number) { Ok(number) } else { Err(E::custom("out of range")) }
}

pub(crate) fn dash() -> String {
    "-".to_owned()
}

pub(crate) const fn max_members() -> usize {
    64
}

/// Reads an address as [`address`] does.
pub(crate) fn ip(text: &str) -> Option<IpAddr> {
    if text.eq_ignore_ascii_case("localhost") {
        return Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}
