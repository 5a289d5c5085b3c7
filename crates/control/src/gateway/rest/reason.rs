//! Why a request is refused: one word, one status code.

use http::StatusCode;

/// A word for clients, and what goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) word: &'static str,
    pub(super) status: StatusCode,
    /// Seconds after which another try may help.
    pub(super) retry: Option<u32>,
    /// A service that is refused so may be accepted a moment later.
    pub(super) passes: bool,
}

const fn reason(word: &'static str, status: StatusCode) -> Reason {
    Reason { word, status, retry: None, passes: false }
}

const fn later(word: &'static str, status: StatusCode, seconds: u32) -> Reason {
    Reason { word, status, retry: Some(seconds), passes: false }
}

const fn passing(word: &'static str, status: StatusCode, seconds: u32) -> Reason {
    Reason { word, status, retry: Some(seconds), passes: true }
}

pub(super) const BAD_REQUEST: Reason = reason("BadRequest", StatusCode::BAD_REQUEST);
pub(super) const UNAUTHORIZED: Reason = reason("Unauthorized", StatusCode::UNAUTHORIZED);
pub(super) const FORBIDDEN: Reason = reason("Forbidden", StatusCode::FORBIDDEN);
pub(super) const NOT_FOUND: Reason = reason("NotFound", StatusCode::NOT_FOUND);
pub(super) const METHOD_NOT_ALLOWED: Reason = reason("MethodNotAllowed", StatusCode::METHOD_NOT_ALLOWED);
pub(super) const TIMEOUT: Reason = reason("RequestTimeout", StatusCode::REQUEST_TIMEOUT);
pub(super) const ALREADY_EXISTS: Reason = reason("AlreadyExists", StatusCode::CONFLICT);
pub(super) const DUPLICATE_ENDPOINT: Reason = reason("DuplicateEndpoint", StatusCode::CONFLICT);
pub(super) const CONFLICT: Reason = reason("Conflict", StatusCode::CONFLICT);
pub(super) const PRECONDITION_FAILED: Reason = reason("PreconditionFailed", StatusCode::PRECONDITION_FAILED);
pub(super) const TOO_LARGE: Reason = reason("TooLarge", StatusCode::PAYLOAD_TOO_LARGE);
pub(super) const MEDIA_TYPE: Reason = reason("UnsupportedMediaType", StatusCode::UNSUPPORTED_MEDIA_TYPE);
pub(super) const INVALID: Reason = reason("Invalid", StatusCode::UNPROCESSABLE_ENTITY);
pub(super) const TOO_MANY_REQUESTS: Reason = later("TooManyRequests", StatusCode::TOO_MANY_REQUESTS, 1);
pub(super) const TOO_MANY_LOGINS: Reason = later("TooManyLogins", StatusCode::TOO_MANY_REQUESTS, 60);
pub(super) const TOO_MANY_WATCHES: Reason = later("TooManyWatches", StatusCode::TOO_MANY_REQUESTS, 60);
pub(super) const NOT_READY: Reason = passing("NotReady", StatusCode::SERVICE_UNAVAILABLE, 1);

/// Words of conditions: they mean the same to a client.
const OF_CONDITIONS: &[Reason] = &[
    INVALID,
    reason("UnsupportedProtocol", StatusCode::UNPROCESSABLE_ENTITY),
    reason("AddressDenied", StatusCode::UNPROCESSABLE_ENTITY),
    reason("AddressNotAllowed", StatusCode::UNPROCESSABLE_ENTITY),
    reason("AddressInUse", StatusCode::CONFLICT),
    reason("DuplicateKey", StatusCode::CONFLICT),
    reason("QuotaExceeded", StatusCode::FORBIDDEN),
    reason("PrefixNotAllowed", StatusCode::FORBIDDEN),
    reason("AccountTerminating", StatusCode::FORBIDDEN),
    later("PoolExhausted", StatusCode::SERVICE_UNAVAILABLE, 60),
    later("KeysExhausted", StatusCode::SERVICE_UNAVAILABLE, 60),
    passing("AccountNotFound", StatusCode::NOT_FOUND, 1),
    passing("ServiceGroupNotFound", StatusCode::NOT_FOUND, 1),
    passing("ServiceGroupNotReady", StatusCode::SERVICE_UNAVAILABLE, 60),
    passing("PrefixMissing", StatusCode::SERVICE_UNAVAILABLE, 60),
    passing("PrefixNotReady", StatusCode::SERVICE_UNAVAILABLE, 60),
    passing("AccountNotReady", StatusCode::SERVICE_UNAVAILABLE, 1),
    passing("NamespaceTerminating", StatusCode::SERVICE_UNAVAILABLE, 1),
];

impl Reason {
    /// What the reason of a condition means to a client; one without a meaning of its own passes.
    pub(super) fn of_condition(word: &str) -> Self {
        OF_CONDITIONS.iter().find(|reason| reason.word == word).copied().unwrap_or(NOT_READY)
    }
}
