//! Text as Go writes it: messages that clients see are compared byte by byte.

use std::fmt::Write as _;

use percent::decode as percent_decode;

/// A string in double quotes with Go's escapes, as `%q` prints it.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        escape(&mut quoted, c, '"');
    }
    quoted.push('"');
    quoted
}

/// One byte in single quotes, as JSON syntax errors name it.
pub(crate) fn quote_byte(byte: u8) -> String {
    let mut quoted = String::from("'");
    escape(&mut quoted, char::from(byte), '\'');
    quoted.push('\'');
    quoted
}

/// Whether Go counts a character as printable: letters, marks, numbers, punctuation, symbols and the ASCII space.
pub fn is_printable(c: char) -> bool {
    matches!(c, '\'' | '"' | '\\') || c.escape_debug().count() == 1
}

/// Decodes `%xx`; none for a broken escape. Bytes that are no UTF-8 become replacement characters.
pub fn unescape_path(text: &str) -> Option<String> {
    percent_decode(text, false)
}

/// Decodes `%xx` and `+` as queries have them.
pub(crate) fn unescape_query(text: &str) -> Option<String> {
    percent_decode(text, true)
}

fn escape(out: &mut String, c: char, quote: char) {
    match c {
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
        '\\' => out.push_str("\\\\"),
        c if c == quote => {
            out.push('\\');
            out.push(c);
        }
        c if is_printable(c) => out.push(c),
        // Writing to a string cannot fail.
        c if u32::from(c) < 0x80 => write!(out, "\\x{:02x}", u32::from(c)).unwrap_or_default(),
        c if u32::from(c) < 0x1_0000 => write!(out, "\\u{:04x}", u32::from(c)).unwrap_or_default(),
        c => write!(out, "\\U{:08x}", u32::from(c)).unwrap_or_default(),
    }
}

mod percent {
    pub(super) fn decode(text: &str, plus_is_space: bool) -> Option<String> {
        let mut bytes = text.bytes();
        let mut decoded = Vec::with_capacity(text.len());
        while let Some(byte) = bytes.next() {
            decoded.push(match byte {
                b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
                b'+' if plus_is_space => b' ',
                other => other,
            });
        }
        Some(
            String::from_utf8(decoded).unwrap_or_else(|broken| String::from_utf8_lossy(broken.as_bytes()).into_owned()),
        )
    }

    fn hex(digit: u8) -> Option<u8> {
        char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_those_of_go() {
        assert_eq!(quote("a\u{1}b\n\"\\é€"), r#""a\x01b\n\"\\é€""#);
        assert_eq!(quote("\u{ad}\u{e000}"), r#""\u00ad\ue000""#);
        assert_eq!(quote_byte(b'\''), r"'\''");
        assert_eq!(quote_byte(b'"'), "'\"'");
    }

    #[test]
    fn broken_escapes_are_refused_and_broken_utf8_is_replaced() {
        assert_eq!(unescape_path("a%2fb+c"), Some("a/b+c".to_owned()));
        assert_eq!(unescape_query("a+b%3D"), Some("a b=".to_owned()));
        assert_eq!(unescape_path("%zz"), None);
        assert_eq!(unescape_path("%2"), None);
        assert_eq!(unescape_path("%ff"), Some("\u{fffd}".to_owned()));
    }
}
