//! Causes in the words of Kubernetes: what `field.Error` prints, with values as Go prints them.

use std::fmt::Write;

use serde_json::Value;

use crate::status::Cause;

pub const REQUIRED: &str = "FieldValueRequired";
pub const INVALID: &str = "FieldValueInvalid";
pub const TYPE_INVALID: &str = "FieldValueTypeInvalid";
pub const NOT_SUPPORTED: &str = "FieldValueNotSupported";
pub const FORBIDDEN: &str = "FieldValueForbidden";
pub const DUPLICATE: &str = "FieldValueDuplicate";
pub const TOO_LONG: &str = "FieldValueTooLong";
pub const TOO_MANY: &str = "FieldValueTooMany";

/// How Go prints the empty path.
pub const NO_PATH: &str = "<nil>";

pub fn required(field: impl Into<String>, detail: &str) -> Cause {
    cause(REQUIRED, field, "Required value".to_owned(), detail)
}

pub fn forbidden(field: impl Into<String>, detail: &str) -> Cause {
    cause(FORBIDDEN, field, "Forbidden".to_owned(), detail)
}

pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Cause {
    cause(INVALID, field, format!("Invalid value: {}", show(value)), detail)
}

/// The value is too large to print, or not known.
pub fn invalid_unseen(field: impl Into<String>, detail: &str) -> Cause {
    cause(INVALID, field, "Invalid value".to_owned(), detail)
}

/// For a value that is already in Go's words.
pub fn invalid_as(field: impl Into<String>, shown: &str, detail: &str) -> Cause {
    cause(INVALID, field, format!("Invalid value: {shown}"), detail)
}

pub fn type_invalid(field: impl Into<String>, value: &str, detail: &str) -> Cause {
    cause(TYPE_INVALID, field, format!("Invalid value: {}", quote(value)), detail)
}

pub fn duplicate(field: impl Into<String>, value: &Value) -> Cause {
    cause(DUPLICATE, field, format!("Duplicate value: {}", show(value)), "")
}

pub fn too_long(field: impl Into<String>, max: i64) -> Cause {
    cause(TOO_LONG, field, "Too long".to_owned(), &format!("may not be more than {max} bytes"))
}

pub fn too_many(field: impl Into<String>, actual: usize, max: i64) -> Cause {
    let items = if max == 1 { "item" } else { "items" };
    cause(TOO_MANY, field, format!("Too many: {actual}"), &format!("must have at most {max} {items}"))
}

pub fn not_supported<S: AsRef<str>>(field: impl Into<String>, value: &Value, supported: &[S]) -> Cause {
    let quoted: Vec<String> = supported.iter().map(|value| quote(value.as_ref())).collect();
    let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
    cause(NOT_SUPPORTED, field, format!("Unsupported value: {}", show(value)), &detail)
}

/// Whether rules in CEL are left out because of this cause.
pub fn blocks_rules(cause: &Cause) -> bool {
    [NOT_SUPPORTED, REQUIRED, TOO_LONG, TOO_MANY, TYPE_INVALID].contains(&cause.reason)
}

/// A string as Go's `%q` prints it.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for ch in text.chars() {
        match ch {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            ch if printable(ch) => out.push(ch),
            ch => escape(&mut out, ch),
        }
    }
    out.push('"');
    out
}

/// A value as `field.Error` prints it: scalars plainly, the rest as Go's JSON.
pub fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| float(number.as_f64().unwrap_or(0.0)), |int| int.to_string())
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => go_json(value),
    }
}

/// Go's JSON escapes `<`, `>`, `&` and two separators on top of what JSON must escape.
pub fn go_json(value: &Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// A float as Go's `%v` prints it: shortest form, with an exponent from 1e21 on and below 1e-4.
pub fn float(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 || (1e-4..1e21).contains(&magnitude) {
        return format!("{value}");
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// `a.b`, or `b` below the root.
pub fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The path, or what Go prints for none.
pub fn or_no_path(path: &str) -> String {
    if path.is_empty() { NO_PATH.to_owned() } else { path.to_owned() }
}

fn cause(reason: &'static str, field: impl Into<String>, mut message: String, detail: &str) -> Cause {
    if !detail.is_empty() {
        message.push_str(": ");
        message.push_str(detail);
    }
    Cause { reason, message, field: field.into() }
}

fn printable(ch: char) -> bool {
    let hidden = matches!(ch,
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{f0000}'..);
    ch == ' ' || !(ch.is_control() || ch.is_whitespace() || hidden)
}

fn escape(out: &mut String, ch: char) {
    let code = u32::from(ch);
    let written = match code {
        0..0x80 => write!(out, "\\x{code:02x}"),
        0x80..0x1_0000 => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
    debug_assert!(written.is_ok(), "a String takes all writes");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_printed_as_go_prints_them() {
        assert_eq!(quote("a\"b\\\né\u{1}<"), "\"a\\\"b\\\\\\né\\x01<\"");
        assert_eq!(show(&json!({"a": "<b>"})), r#"{"a":"\u003cb\u003e"}"#);
        assert_eq!(show(&json!(3.5)), "3.5");
        assert_eq!(show(&json!(1e300)), "1e+300");
        assert_eq!(show(&json!(null)), "null");
    }
}
