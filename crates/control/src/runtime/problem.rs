//! Why requests to an API server fail, sorted by who can end it.

use std::error::Error as StdError;

use super::switch::NotConnected;

/// Who can end a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// There is no server to ask yet.
    NotConnected,
    /// The server does not know who we are.
    Unauthorized,
    /// The server does not let us.
    Forbidden,
    /// The server's certificate is not trusted, or ours is not.
    Tls,
    /// The server cannot be reached, or answers with errors.
    Unreachable,
}

/// Why a request failed, with all causes: the outermost error often says only that something did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestProblem {
    pub failure: Failure,
    /// At most 256 characters, without control characters: parts of it may come from the server.
    pub message: String,
}

impl RequestProblem {
    /// Sorts an error.
    pub fn of(error: &kube::Error) -> Self {
        let code = if let kube::Error::Api(status) = error { status.code } else { 0 };
        let mut failure = match code {
            401 => Failure::Unauthorized,
            403 => Failure::Forbidden,
            _ => Failure::Unreachable,
        };
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            if error.is::<NotConnected>() {
                failure = Failure::NotConnected;
            } else if is_tls(error) {
                failure = Failure::Tls;
            }
            let text = error.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = error.source();
        }
        Self { failure, message: cleaned(&message) }
    }
}

/// Text of somebody else, fit for conditions and events.
pub fn cleaned(text: &str) -> String {
    let clean = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    clean.take(256).collect()
}

/// An io::Error hides what it wraps from the chain of sources, and may wrap another one.
fn is_tls(error: &(dyn StdError + 'static)) -> bool {
    if error.is::<rustls::Error>() {
        return true;
    }
    let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    wrapped.is_some_and(|wrapped| is_tls(wrapped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_not_trusted_is_found_however_deep_it_lies() {
        let cause = rustls::Error::General("unknown issuer".to_owned());
        let wrapped = std::io::Error::other(std::io::Error::other(cause));
        let problem = RequestProblem::of(&kube::Error::Service(Box::new(wrapped)));
        assert_eq!(problem.failure, Failure::Tls, "{problem:?}");
        assert!(problem.message.contains("unknown issuer"), "{problem:?}");
    }

    #[test]
    fn text_of_others_is_short_and_printable() {
        assert_eq!(cleaned("one\ntwo\u{1b}[31m"), "one two [31m");
        assert_eq!(cleaned(&"x".repeat(1000)).len(), 256);
    }
}
