//! The forms of names: DNS labels and subdomains, and the keys and values of labels.

/// At most 63 lower case letters, digits and `-`, with no `-` at the ends.
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_dns(text)
}

/// Labels joined by dots, at most 253 letters.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns)
}

/// A word, perhaps with a subdomain and `/` before it: the key of a label, a finalizer.
pub(crate) fn is_qualified(text: &str) -> bool {
    text.rsplit_once('/').map_or_else(|| is_word(text), |(prefix, name)| is_subdomain(prefix) && is_word(name))
}

/// At most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends: the value of a label.
pub(crate) fn is_word(text: &str) -> bool {
    text.len() <= 63 && has_edges(text) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn is_dns(text: &str) -> bool {
    has_edges(text) && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether a text starts and ends with a letter or digit.
fn has_edges(text: &str) -> bool {
    [text.chars().next(), text.chars().last()].iter().all(|edge| edge.is_some_and(|c| c.is_ascii_alphanumeric()))
}
