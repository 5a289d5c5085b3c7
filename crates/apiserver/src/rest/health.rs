//! `/livez`, `/readyz` and `/healthz`: `ok`, and what is checked when asked verbosely.

use std::fmt::Write as _;

use super::Refusal;

/// Checks by name. This server has started when it answers at all, so those that are listed pass.
const CHECKS: [&str; 3] = ["ping", "log", "etcd"];

/// The plain text for an endpoint, or for one check of it; `verbose` when the query has that word.
pub fn answer(endpoint: &str, check: Option<&str>, verbose: bool) -> Result<String, Refusal> {
    match check {
        Some(check) if CHECKS.contains(&check) => Ok("ok".to_owned()),
        Some(_) => Err(Refusal::page_not_found()),
        None if verbose => {
            let mut text = String::new();
            for check in CHECKS {
                // Writing to a string cannot fail.
                writeln!(text, "[+]{check} ok").unwrap_or_default();
            }
            Ok(text + endpoint + " check passed\n")
        }
        None => Ok("ok".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_ok_in_the_words_of_the_real_server() {
        assert_eq!(answer("livez", None, false), Ok("ok".to_owned()));
        assert_eq!(answer("readyz", Some("ping"), false), Ok("ok".to_owned()));
        assert_eq!(answer("livez", Some("nope"), false), Err(Refusal::page_not_found()));
        let verbose = answer("livez", None, true).unwrap();
        assert!(verbose.starts_with("[+]ping ok\n[+]log ok\n"), "{verbose}");
        assert!(verbose.ends_with("livez check passed\n"), "{verbose}");
    }
}
