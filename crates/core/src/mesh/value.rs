//! How rules read JSON: what is falsy, what is equal, and what text a value has are those of JavaScript, as in l7mp.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::net::Ipv4Addr;

use serde_json::{Number, Value};

/// Whether a value is 0, false, the empty string or null.
pub(crate) fn is_falsy(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}

/// Whether two values are deeply equal: 1 equals 1.0, an IPv4 address equals its IPv4-mapped form, and with `fold` the
/// case of strings (not of keys) does not count.
pub(crate) fn same(one: &Value, other: &Value, fold: bool) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => compare(one, other) == Some(Ordering::Equal),
        (Value::String(one), Value::String(other)) => same_text(plain(one), plain(other), fold),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other, fold))
        }
        (Value::Object(one), Value::Object(other)) => {
            let in_other = |(key, value): (&String, &Value)| other.get(key).is_some_and(|held| same(value, held, fold));
            one.len() == other.len() && one.iter().all(in_other)
        }
        (one, other) => one == other,
    }
}

/// The order of two numbers: exact between integers, else as doubles.
pub(crate) fn compare(one: &Number, other: &Number) -> Option<Ordering> {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

/// The IPv4 address of an IPv4-mapped IPv6 address (`::ffff:10.0.0.1`); any other text as it is.
///
/// l7mp shows IPv4 clients of some listeners as `::ffff:10.0.0.1`, and rules were written for that.
pub(crate) fn plain(text: &str) -> &str {
    match mapped(text) {
        Some(rest) if rest.parse::<Ipv4Addr>().is_ok() => rest,
        _ => text,
    }
}

/// Whether a text is an IPv4 address that begins with `part`, which may be the beginning of an IPv4-mapped address.
pub(crate) fn begins_mapped(text: &str, part: &str) -> bool {
    mapped(part).is_some_and(|rest| text.starts_with(rest)) && text.parse::<Ipv4Addr>().is_ok()
}

/// What follows the `::ffff:` of an IPv4-mapped address.
pub(crate) fn mapped(text: &str) -> Option<&str> {
    let (prefix, rest) = text.split_at_checked("::ffff:".len())?;
    prefix.eq_ignore_ascii_case("::ffff:").then_some(rest)
}

/// The text a value is hashed or grouped by: strings as they are, numbers in decimal, the rest as compact JSON.
///
/// Nothing for null. Keys of objects come in the order the map keeps them.
pub fn key_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(decimal(number))),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => Some(Cow::Owned(value.to_string())),
    }
}

/// A number as ECMAScript prints it: 1 for 1.0, exponents only outside `1e-6 .. 1e21`.
fn decimal(number: &Number) -> String {
    let Some(double) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    let size = double.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if (1e-6..1e21).contains(&size) {
        return double.to_string();
    }
    let text = format!("{double:e}");
    if size >= 1.0 { text.replace('e', "e+") } else { text }
}

fn same_text(one: &str, other: &str, fold: bool) -> bool {
    one == other || (fold && (one.eq_ignore_ascii_case(other) || one.to_lowercase() == other.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_read_as_ecmascript_prints_them() {
        for (value, text) in [
            (json!("é"), "é"),
            (json!(""), ""),
            (json!(42), "42"),
            (json!(-7), "-7"),
            (json!(1.0), "1"),
            (json!(0.5), "0.5"),
            (json!(-0.0), "0"),
            (json!(1e20), "100000000000000000000"),
            (json!(1e21), "1e+21"),
            (json!(1.5e-7), "1.5e-7"),
            (json!(true), "true"),
            (json!({"a": [1, "b"]}), r#"{"a":[1,"b"]}"#),
        ] {
            assert_eq!(key_text(&value).as_deref(), Some(text), "{value}");
        }
        assert_eq!(key_text(&Value::Null), None);
    }

    #[test]
    fn only_whole_ipv4_mapped_addresses_are_read_as_ipv4() {
        assert_eq!(plain("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(plain("::FFFF:10.0.0.1"), "10.0.0.1");
        for text in ["::ffff:10.0.0", "::ffff:", "::1", "10.0.0.1", "x::ffff:10.0.0.1", "::ffff:10.0.0.1:80", "ééééé"]
        {
            assert_eq!(plain(text), text);
        }
    }
}
