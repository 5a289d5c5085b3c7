//! Regular expressions as rules write them, which is ECMAScript's way, on an engine that is linear in time.
//!
//! What the two read differently is rewritten: `\d`, `\w` and `\b` know ASCII only, `.` stops at four line ends,
//! `{` and `[` may be plain characters. What needs backtracking (look-around, back references) does not compile.

use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

use super::compile::PredicateErrorKind;
use crate::mesh::value::mapped;

/// Bytes of a pattern, at most.
const LONGEST: usize = 4096;
/// Bytes of a compiled pattern, at most.
const LARGEST: usize = 1 << 20;

const DIGIT: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = r"\t-\r \u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}";

/// Compiles a pattern, or says what the engine has against it.
pub(super) fn compile(pattern: &str, ignore_case: bool) -> Result<Regex, PredicateErrorKind> {
    if pattern.len() > LONGEST {
        return Err(PredicateErrorKind::LongRegex(pattern.len()));
    }
    let mut builder = RegexBuilder::new(&translate(&without_clothes(pattern)));
    builder.case_insensitive(ignore_case).size_limit(LARGEST).nest_limit(64);
    builder.build().map_err(|error| PredicateErrorKind::BadRegex(told(&error)))
}

/// The last line of the engine's message; those before it draw the pattern.
fn told(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

/// Takes `::ffff:` off the front, because the addresses that are matched have lost it too.
fn without_clothes(pattern: &str) -> String {
    let rest = mapped(pattern.strip_prefix('^').unwrap_or(pattern));
    match rest {
        Some("") => r"^\d+\.\d+\.\d+\.\d+$".to_owned(),
        Some(rest) => format!("^{rest}"),
        None => pattern.to_owned(),
    }
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => escape(&mut chars, &mut out, false),
            '[' => class(&mut chars, &mut out),
            '.' => out.push_str(r"[^\n\r\u{2028}\u{2029}]"),
            '{' => match quantifier(&chars) {
                Some(length) => {
                    out.push('{');
                    out.extend(chars.by_ref().take(length));
                }
                None => out.push_str(r"\{"),
            },
            '}' => out.push_str(r"\}"),
            ']' => out.push_str(r"\]"),
            _ => out.push(c),
        }
    }
    out
}

/// How long the quantifier is that stands behind a `{`, closing brace included.
fn quantifier(chars: &Peekable<Chars<'_>>) -> Option<usize> {
    let text: String = chars.clone().take_while(|c| *c != '}').collect();
    let closed = chars.clone().nth(text.chars().count()) == Some('}');
    let (least, most) = text.split_once(',').unwrap_or((&text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (closed && !least.is_empty() && digits(least) && digits(most)).then_some(text.len() + 1)
}

fn class(chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    let negated = chars.next_if_eq(&'^').is_some();
    if chars.next_if_eq(&']').is_some() {
        // a class of nothing, and one of everything
        out.push_str(if negated { "(?s:.)" } else { r"[0&&1]" });
        return;
    }
    out.push_str(if negated { "[^" } else { "[" });
    while let Some(c) = chars.next() {
        match c {
            ']' => return out.push(']'),
            '\\' => escape(chars, out, true),
            '[' | '&' | '~' => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
}

/// One escape, inside a class or outside.
fn escape(chars: &mut Peekable<Chars<'_>>, out: &mut String, in_class: bool) {
    let Some(c) = chars.next() else { return out.push('\\') };
    match c {
        'd' => set(out, in_class, DIGIT),
        'w' => set(out, in_class, WORD),
        's' => set(out, in_class, SPACE),
        'D' => out.extend(["[^", DIGIT, "]"]),
        'W' => out.extend(["[^", WORD, "]"]),
        'S' => out.extend(["[^", SPACE, "]"]),
        'b' if in_class => out.push_str(r"\x08"),
        'b' => out.push_str(r"(?-u:\b)"),
        'B' if !in_class => out.push_str(r"(?-u:\B)"),
        '0' => out.push_str(r"\x00"),
        // what both read alike, and back references, which shall not compile
        'f' | 'n' | 'r' | 't' | 'v' | 'u' | 'x' | 'k' | '1'..='9' => out.extend(['\\', c]),
        'c' if chars.peek().is_some_and(char::is_ascii_alphabetic) => control(chars, out),
        _ if c.is_ascii_alphabetic() || c == '<' || c == '>' || !c.is_ascii() => out.push(c),
        _ => out.extend(['\\', c]),
    }
}

fn set(out: &mut String, in_class: bool, members: &str) {
    if in_class {
        out.push_str(members);
    } else {
        out.extend(["[", members, "]"]);
    }
}

fn control(chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    let letter = chars.next().map_or(0, u32::from);
    let code = format!(r"\x{:02x}", letter % 32);
    out.push_str(&code);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_ecmascript_means() {
        for (pattern, hits, misses) in [
            (r"^\d+$", &["0", "42"][..], &["", "4a", "٤٢"][..]),
            (r"^\w$", &["a", "_", "9"], &["é", "-"]),
            (r"^\s$", &[" ", "\u{feff}", "\n", "\u{2028}"], &["a"]),
            (r"^[\w-]+$", &["a-b", "_"], &["a b", "é"]),
            (r"^[^\d]$", &["a"], &["1"]),
            (r"^[\D]$", &["a"], &["1"]),
            (r"^.$", &["a", "é"], &["\n", "\r", "\u{2029}"]),
            (r"\bid\b", &["id", "an id!", "éidé"], &["ids", "_id"]),
            (r"a\Bb", &["ab"], &["a b"]),
            (r"^a{2,3}$", &["aa", "aaa"], &["a", "aaaa", "a{2,3}"]),
            (r"^a{,3}$", &["a{,3}"], &["aaa"]),
            (r"^a{$", &["a{"], &["a"]),
            (r"^{}]$", &["{}]"], &[""]),
            (r"^[[]$", &["["], &["]"]),
            (r"^[a&&b]$", &["a", "&", "b"], &["c"]),
            (r"^[]$", &[], &["", "a"]),
            (r"^a[^]b$", &["a\nb", "axb"], &["ab"]),
            (r"^\/a\/b$", &["/a/b"], &["a/b"]),
            (r"^\<\>\A\-$", &["<>A-"], &["<>-"]),
            (r"^\cJ\0$", &["\n\0"], &["cJ0"]),
            (r"^\u0041\x42$", &["AB"], &["ab"]),
            (r"(?:a|b)c$", &["ac", "xbc"], &["c"]),
            (r"", &["", "anything"], &[]),
            (r"^::ffff:10\.0\.", &["10.0.3.4"], &["110.0.3.4", "::1"]),
            (r"::ffff:10\.0\.", &["10.0.3.4"], &["110.0.3.4"]),
            (r"^::ffff:", &["10.0.3.4"], &["fd00::1", "10"]),
        ] {
            let regex = compile(pattern, false).unwrap_or_else(|reason| panic!("{pattern}: {reason}"));
            assert!(hits.iter().all(|text| regex.is_match(text)), "{pattern} on one of {hits:?}");
            assert!(!misses.iter().any(|text| regex.is_match(text)), "{pattern} on none of {misses:?}");
        }
    }

    #[test]
    fn what_needs_backtracking_or_is_broken_is_refused() {
        for pattern in [r"(", r"[a", r"a\", r"(?=a)", r"(?!a)", r"(?<=a)", r"(a)\1", r"(?<n>a)\k<n>", r"*", r"[z-a]"] {
            assert!(compile(pattern, false).is_err(), "{pattern}");
        }
    }

    #[test]
    fn large_patterns_are_refused() {
        assert!(matches!(compile(&"a".repeat(4097), false), Err(PredicateErrorKind::LongRegex(4097))));
        assert!(matches!(compile(r"(?:a{1000}){1000}", false), Err(PredicateErrorKind::BadRegex(_))));
    }
}
