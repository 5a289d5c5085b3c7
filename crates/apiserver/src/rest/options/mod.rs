//! Query parameters of every verb, read and checked as Kubernetes does it.

mod delete;
mod list;
mod token;
mod write;

pub use delete::{DeleteOptions, Preconditions, Propagation};
pub use list::{ListOptions, VersionMatch, get_revision, watch_revision};
pub use token::Token;
pub use write::{FieldValidation, WriteKind, WriteOptions};

use super::text::{quote, unescape_query};
use crate::status::{About, Cause, Failure};

/// The parameters of a query, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part of a URL behind `?`. Broken pairs are dropped, as Go drops them.
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let decoded = pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((unescape_query(name)?, unescape_query(value)?))
        });
        Self(decoded.collect())
    }

    /// The first value of a parameter.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter.
    pub fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
    }

    /// A flag: every value but `false` and `0` is a yes, even the empty one.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.first(name).map(|value| !(value.eq_ignore_ascii_case("false") || value == "0"))
    }

    /// A whole number.
    fn integer(&self, name: &str) -> Result<Option<i64>, Failure> {
        self.first(name).map(parse_int).transpose().map_err(Failure::bad_request)
    }
}

/// Reads a number as Go does; the error is Go's text.
fn parse_int(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| number_fault("ParseInt", text, text.strip_prefix(['+', '-']).unwrap_or(text)))
}

/// Reads a revision as Go does: without a sign; the error is Go's text.
fn parse_revision(text: &str) -> Result<u64, String> {
    if text.starts_with('+') {
        return Err(number_fault("ParseUint", text, ""));
    }
    text.parse().map_err(|_| number_fault("ParseUint", text, text))
}

fn number_fault(function: &str, text: &str, digits: &str) -> String {
    let number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let why = if number { "value out of range" } else { "invalid syntax" };
    format!("strconv.{function}: parsing {}: {why}", quote(text))
}

fn forbidden(field: &str, why: &str) -> Cause {
    Cause { reason: "FieldValueForbidden", message: format!("Forbidden: {why}"), field: field.to_owned() }
}

fn invalid(field: &str, value: &str, why: &str) -> Cause {
    let message = format!("Invalid value: {}: {why}", quote(value));
    Cause { reason: "FieldValueInvalid", message, field: field.to_owned() }
}

/// `shown` is the value as the message has it, quotes and all.
fn not_supported(field: &str, shown: &str, supported: &[&str]) -> Cause {
    let supported: Vec<String> = supported.iter().map(|value| quote(value)).collect();
    let message = format!("Unsupported value: {shown}: supported values: {}", supported.join(", "));
    Cause { reason: "FieldValueNotSupported", message, field: field.to_owned() }
}

/// Refuses options that break rules.
fn checked(kind: &str, faults: &[Cause]) -> Result<(), Failure> {
    if faults.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid(About { group: "meta.k8s.io", resource: kind, name: "" }, faults))
}

/// Checks `dryRun`: the only value is `All`.
fn dry_run(values: &[String], faults: &mut Vec<Cause>) -> bool {
    if values.iter().any(|value| value != "All") {
        let shown: Vec<String> = values.iter().map(|value| quote(value)).collect();
        faults.push(not_supported("dryRun", &format!("[{}]", shown.join(",")), &["All"]));
    }
    !values.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_go_reads_them() {
        let query = Query::parse("a=1&b=x+y%3D&a=2&c&bad=%zz&d=1;e=2&watch=");
        assert_eq!(query.first("a"), Some("1"));
        assert_eq!(query.all("a"), ["1", "2"]);
        assert_eq!(query.first("b"), Some("x y="));
        assert_eq!((query.first("c"), query.first("bad"), query.first("d")), (Some(""), None, None));
        assert_eq!((query.flag("watch"), query.flag("nope")), (Some(true), None));
        assert_eq!(Query::parse("a=False&b=0&c=no").flag("a"), Some(false));
    }

    #[test]
    fn numbers_fail_in_the_words_of_go() {
        for (text, why) in [
            ("x", "invalid syntax"),
            ("", "invalid syntax"),
            ("1_0", "invalid syntax"),
            ("0x10", "invalid syntax"),
            ("99999999999999999999", "value out of range"),
            ("-99999999999999999999", "value out of range"),
        ] {
            assert_eq!(parse_int(text).unwrap_err(), format!("strconv.ParseInt: parsing {text:?}: {why}"));
        }
        assert_eq!(parse_int("+5"), Ok(5));
        assert_eq!(parse_revision("-1").unwrap_err(), r#"strconv.ParseUint: parsing "-1": invalid syntax"#);
        assert_eq!(parse_revision("+1").unwrap_err(), r#"strconv.ParseUint: parsing "+1": invalid syntax"#);
        assert_eq!(parse_revision("01"), Ok(1));
    }
}
