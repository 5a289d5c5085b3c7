//! Names, label keys and values, ports: what is wrong with a string, in the real server's words.

/// What the name of a kind must look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    DnsLabel,
    DnsSubdomain,
    /// Anything that fits into a path.
    PathSegment,
}

impl NameRule {
    /// What is wrong with a name, or with a prefix that gets a random ending.
    pub fn check(self, name: &str, prefix: bool) -> Vec<String> {
        let masked = if prefix && self != Self::PathSegment { mask_dash(name) } else { name.to_owned() };
        match self {
            Self::DnsLabel => dns_label(&masked),
            Self::DnsSubdomain => dns_subdomain(&masked),
            Self::PathSegment => path_segment(name, prefix),
        }
    }
}

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_MESSAGE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const QUALIFIED_MESSAGE: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const DNS_1035_MESSAGE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const CONFIG_KEY_MESSAGE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";

pub fn dns_label(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63);
    if !is_label(text) {
        faults.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            pattern(LABEL_MESSAGE, LABEL, &["my-name", "123-abc"])
        });
    }
    faults
}

pub fn dns_subdomain(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 253);
    if !is_subdomain(text) {
        faults.push(pattern(SUBDOMAIN_MESSAGE, SUBDOMAIN, &["example.com"]));
    }
    faults
}

pub fn dns_1035_label(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63);
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        faults.push(pattern(DNS_1035_MESSAGE, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    faults
}

pub fn path_segment(text: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    ['/', '%'].into_iter().filter(|c| text.contains(*c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// A name with an optional DNS prefix: label keys, finalizers, annotations.
pub fn qualified(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let examples = ["MyName", "my.name", "123-abc"];
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(dns_subdomain(prefix).into_iter().map(|fault| format!("prefix part {fault}")));
            }
            name
        }
        _ => {
            let what = pattern(&format!("a valid label key {QUALIFIED_MESSAGE}"), QUALIFIED, &examples);
            return vec![format!("{what} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 bytes".to_owned());
    }
    if name.is_empty() || !is_word(name) {
        faults.push(pattern(&format!("name part {QUALIFIED_MESSAGE}"), QUALIFIED, &examples));
    }
    faults
}

pub fn label_value(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push("must be no more than 63 bytes".to_owned());
    }
    if !text.is_empty() && !is_word(text) {
        let message = format!("a valid label must be an empty string or {}", &QUALIFIED_MESSAGE["must ".len()..]);
        let format = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
        faults.push(pattern(&message, format, &["MyValue", "my_value", "12345"]));
    }
    faults
}

/// Keys of ConfigMaps and Secrets.
pub fn config_key(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 253);
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
        faults.push(pattern(CONFIG_KEY_MESSAGE, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    match text {
        "." | ".." => faults.push(format!("must not be '{text}'")),
        _ if text.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

/// Names of container ports.
pub fn port_name(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 15);
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

/// A prefix may end in a dash, because a random ending follows.
fn mask_dash(prefix: &str) -> String {
    // The letter before the dash goes too, as Kubernetes does it.
    match prefix.strip_suffix('-') {
        Some(rest) if rest.ends_with(|last: char| last.is_ascii()) => format!("{}a", &rest[..rest.len() - 1]),
        _ => prefix.to_owned(),
    }
}

fn too_long(text: &str, most: usize) -> Vec<String> {
    if text.len() > most { vec![format!("must be no more than {most} characters")] } else { Vec::new() }
}

fn pattern(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|each| format!("'{each}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| inner(*b))
        && bytes.last().is_some_and(|b| inner(*b))
        && bytes.iter().all(|b| inner(*b) || *b == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}
