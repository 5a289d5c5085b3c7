//! Formats of strings: names, label keys and values, addresses.

use std::net::IpAddr;

use super::Kind;
use crate::names::{is_label, is_qualified, is_subdomain, is_word};

/// How a string breaks a format, if it does.
pub(super) fn error(form: &str, text: &str) -> Option<&'static str> {
    let (fits, message) = match form {
        "label" => (
            is_label(text),
            "must be at most 63 lower case letters, digits or '-', and start and end with a letter or digit",
        ),
        "subdomain" => (
            is_subdomain(text),
            "must be at most 253 lower case letters, digits, '-' or '.', and start and end with a letter or digit",
        ),
        "path segment" => (!matches!(text, "." | "..") && !text.contains(['/', '%']), "must have no '/' or '%'"),
        "address" => (text.parse::<IpAddr>().is_ok(), "must be an IP address"),
        // Label keys, finalizers, annotations.
        "qualified" => (
            is_qualified(text),
            "must be at most 63 letters, digits, '-', '_' or '.', start and end with a letter or digit, and may have a \
             DNS subdomain and '/' before it (such as 'example.com/MyName')",
        ),
        "label value" => (
            text.is_empty() || is_word(text),
            "must be empty, or at most 63 letters, digits, '-', '_' or '.', and start and end with a letter or digit",
        ),
        "config key" => {
            (is_config_key(text), "must be at most 253 letters, digits, '-', '_' or '.', and not start with '..'")
        }
        _ => return None,
    };
    (!fits).then_some(message)
}

/// The form of the names of a kind.
pub(super) fn of_names(kind: &Kind) -> &'static str {
    match kind.kind.as_str() {
        _ if kind.custom => "subdomain",
        _ if kind.group == "rbac.authorization.k8s.io" => "path segment",
        "Namespace" | "Service" => "label",
        _ => "subdomain",
    }
}

fn is_config_key(text: &str) -> bool {
    let known = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    (1..=253).contains(&text.len()) && known && text != "." && !text.starts_with("..")
}
