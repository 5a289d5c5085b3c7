//! The names that the `type` operation knows.

use serde_json::Value;

/// A type, or a shape of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Array,
    Null,
    Boolean,
    Number,
    String,
    /// Also arrays and null.
    Object,
    Undefined,
    Date,
    Time,
    DateTime,
    Lang,
    LangRange,
    Iri,
    AbsoluteIri,
}

impl Kind {
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "array" => Self::Array,
            "null" => Self::Null,
            "boolean" => Self::Boolean,
            "number" => Self::Number,
            "string" => Self::String,
            "object" => Self::Object,
            "undefined" => Self::Undefined,
            "date" => Self::Date,
            "time" => Self::Time,
            "date-time" => Self::DateTime,
            "lang" => Self::Lang,
            "lang-range" => Self::LangRange,
            "iri" => Self::Iri,
            "absolute-iri" => Self::AbsoluteIri,
            _ => return None,
        })
    }

    pub(super) fn has(self, found: Option<&Value>) -> bool {
        let Some(value) = found else { return self == Self::Undefined };
        let text = || value.as_str();
        match self {
            Self::Array => value.is_array(),
            Self::Null => value.is_null(),
            Self::Boolean => value.is_boolean(),
            Self::Number => value.is_number(),
            Self::String => value.is_string(),
            Self::Object => value.is_object() || value.is_array() || value.is_null(),
            Self::Undefined => false,
            Self::Date => text().is_some_and(is_date),
            Self::Time => text().is_some_and(is_time),
            Self::DateTime => {
                text().and_then(|text| text.split_once('T')).is_some_and(|(d, t)| is_date(d) && is_time(t))
            }
            Self::Lang => text().is_some_and(is_lang),
            Self::LangRange => text().is_some_and(is_lang_range),
            Self::Iri => text().is_some_and(|text| scheme_of(text).is_some()),
            Self::AbsoluteIri => text().is_some_and(is_absolute_iri),
        }
    }
}

/// `YYYY-MM-DD`, by shape.
fn is_date(text: &str) -> bool {
    is_shaped(text, "0000-00-00")
}

/// `HH:MM:SS`, up to three decimals, and a zone.
fn is_time(text: &str) -> bool {
    let Some((clock, rest)) = text.split_at_checked("00:00:00".len()) else { return false };
    let zone = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let decimals = &rest[..rest.len() - zone.len()];
    let decimals_fit = decimals.is_empty() || [".0", ".00", ".000"].iter().any(|shape| is_shaped(decimals, shape));
    let zone_fits = zone == "Z" || is_shaped(zone, "+00:00") || is_shaped(zone, "-00:00");
    is_shaped(clock, "00:00:00") && decimals_fit && zone_fits
}

/// Whether a text has the shape's characters, any digit where the shape has a 0.
fn is_shaped(text: &str, shape: &str) -> bool {
    let fits = |(byte, wanted): (u8, u8)| if wanted == b'0' { byte.is_ascii_digit() } else { byte == wanted };
    text.len() == shape.len() && text.bytes().zip(shape.bytes()).all(fits)
}

/// A language of two or three letters and further subtags (RFC 4646).
fn is_lang(text: &str) -> bool {
    let mut tags = text.split('-');
    let language = tags.next().unwrap_or_default();
    let is_language = (2..=3).contains(&language.len()) && language.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_language && tags.all(is_subtag)
}

/// `*`, or letters, then further subtags or `*` (RFC 4647).
fn is_lang_range(text: &str) -> bool {
    let mut tags = text.split('-');
    let language = tags.next().unwrap_or_default();
    let is_language = is_subtag(language) && language.bytes().all(|byte| byte.is_ascii_alphabetic());
    (language == "*" || is_language) && tags.all(|tag| tag == "*" || is_subtag(tag))
}

fn is_subtag(text: &str) -> bool {
    (1..=8).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// With the scheme `http` or `https` and an authority.
fn is_absolute_iri(text: &str) -> bool {
    let is_web = |scheme: &str| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let authority = |scheme: &str| {
        let rest = text[scheme.len()..].strip_prefix("://")?;
        rest.split(['/', '?', '#']).next().filter(|authority| !authority.is_empty())
    };
    scheme_of(text).is_some_and(|scheme| is_web(scheme) && authority(scheme).is_some())
}

/// The scheme of a text that can be an IRI: legal characters, whole escapes, a scheme.
fn scheme_of(text: &str) -> Option<&str> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b":/?#[]@!$&'()*+,;=.-_~%".contains(&byte);
    let is_escape = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    let (scheme, _) = text.split_once(':')?;
    let is_scheme_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && scheme.bytes().all(is_scheme_byte);
    (is_scheme && text.bytes().all(is_legal) && text.split('%').skip(1).all(is_escape)).then_some(scheme)
}
