//! What may be a name: DNS labels and subdomains, label keys and values, in Kubernetes' words when it may not.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1123: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
    and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
    character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// What keeps `name` from being an RFC 1123 subdomain, such as an object's name.
pub fn dns_subdomain(name: &str) -> Vec<String> {
    faults(name, 253, is_subdomain(name), SUBDOMAIN)
}

/// What keeps `name` from being an RFC 1123 label, such as a namespace's name.
pub fn dns_label(name: &str) -> Vec<String> {
    faults(name, 63, is_label(name), LABEL_1123)
}

/// What keeps `name` from being a label that starts with a letter, such as a Service's name.
pub fn dns_1035_label(name: &str) -> Vec<String> {
    let fits = is_label(name) && name.starts_with(|first: char| first.is_ascii_lowercase());
    faults(name, 63, fits, LABEL_1035)
}

/// What keeps `key` from being the key of a label: a name with an optional `prefix/`.
pub fn label_key(key: &str) -> Vec<String> {
    let mut parts = key.split('/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => (None, name),
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        _ => {
            return vec![format!(
                "a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut found = Vec::new();
    match prefix {
        Some("") => found.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            if prefix.len() > 253 {
                found.push("prefix part must be no more than 253 bytes".to_owned());
            }
            if !is_subdomain(prefix) {
                found.push(format!("prefix part {SUBDOMAIN}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        found.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        found.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_key(name) {
        found.push(format!("name part {KEY}"));
    }
    found
}

/// What keeps `value` from being the value of a label.
pub fn label_value(value: &str) -> Vec<String> {
    let mut found = Vec::new();
    if value.len() > 63 {
        found.push("must be no more than 63 bytes".to_owned());
    }
    if !value.is_empty() && !is_key(value) {
        found.push(VALUE.to_owned());
    }
    found
}

pub(crate) fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

pub(crate) fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    framed(name, inner, |byte| inner(byte) || byte == b'-')
}

fn is_key(name: &str) -> bool {
    framed(name, |byte| byte.is_ascii_alphanumeric(), |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// First and last byte are of one set, those between of another.
fn framed(name: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = name.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => edge(*first) && edge(*last) && bytes.iter().all(|byte| inner(*byte)),
        _ => false,
    }
}

fn faults(name: &str, max: usize, fits: bool, rule: &str) -> Vec<String> {
    let mut found = Vec::new();
    if name.len() > max {
        found.push(format!("must be no more than {max} characters"));
    }
    if !fits {
        found.push(rule.to_owned());
    }
    found
}
