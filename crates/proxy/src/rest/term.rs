//! Fencing of deposed operators: a changing call can carry the leadership term of its sender.
//!
//! An operator that lost its leadership may still have calls on the way. It sends its term with every changing call; the
//! registry keeps the highest term seen and refuses calls of a lower one. Calls without a term are not checked.
//!
//! Terms are counted by the Lease of the operators, in an `int32`. A higher number cannot be a term, and no operator
//! could ever follow it.

use portolan_core::mesh::TERM_HEADER;

use super::exchange::Request;
use crate::config::refusal::Refusal;

const HIGHEST: u64 = i32::MAX as u64;

/// The term of a changing call, if it has one.
pub(super) fn of_request(request: &Request) -> Result<Option<u64>, Refusal> {
    if !matches!(request.method.as_str(), "POST" | "PUT" | "PATCH" | "DELETE") {
        return Ok(None);
    }
    let mut values = request.headers.iter().filter(|(name, _)| name == TERM_HEADER).map(|(_, value)| value.trim());
    let Some(value) = values.next() else { return Ok(None) };
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse() {
        Ok(term) if is_number && term <= HIGHEST && values.next().is_none() => Ok(Some(term)),
        _ => Err(Refusal::bad(format!("Header {TERM_HEADER}: expected one decimal number, at most {HIGHEST}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(method: &str, values: &[&str]) -> Result<Option<u64>, Refusal> {
        let headers = values.iter().map(|value| (TERM_HEADER.to_owned(), (*value).to_owned())).collect();
        of_request(&Request { method: method.to_owned(), headers, ..Request::default() })
    }

    #[test]
    fn only_one_decimal_number_is_a_term() {
        assert_eq!(term("POST", &["7"]), Ok(Some(7)));
        assert_eq!(term("PATCH", &["2147483647"]), Ok(Some(HIGHEST)));
        assert_eq!(term("DELETE", &[]), Ok(None));
        assert_eq!(term("GET", &["x"]), Ok(None), "reads are not checked");
        for wrong in [&["x"][..], &[""], &["+1"], &["-1"], &["1.0"], &["2147483648"], &["1", "1"]] {
            assert!(term("PUT", wrong).is_err(), "{wrong:?}");
        }
    }
}
