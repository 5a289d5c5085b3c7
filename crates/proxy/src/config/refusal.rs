//! Why a change or a question is refused, in the words clients know.

use super::json::Json;

/// A request that is not met; nothing has changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{content}")]
pub struct Refusal {
    pub class: Class,
    /// What the client reads as `content`.
    pub content: String,
    /// The violations that a schema check found; they take the place of `content`.
    pub violations: Vec<Json>,
    /// The limit that was hit, for its counter.
    pub limit: Option<&'static str>,
}

/// The class of a refusal; `/api/v1` responds 400 to all of them except `StaleTerm` and `Invalid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Bad,
    Missing,
    Conflict,
    /// The caller does not lead any more, as a higher term was seen; 409 in both versions.
    StaleTerm {
        highest: u64,
    },
    Unimplemented,
    Invalid,
}

impl Refusal {
    pub fn new(class: Class, content: impl Into<String>) -> Self {
        Self { class, content: content.into(), violations: Vec::new(), limit: None }
    }

    pub fn bad(content: impl Into<String>) -> Self {
        Self::new(Class::Bad, content)
    }

    pub fn missing(content: impl Into<String>) -> Self {
        Self::new(Class::Missing, content)
    }

    pub fn conflict(content: impl Into<String>) -> Self {
        Self::new(Class::Conflict, content)
    }

    /// An object that is asked for and is not there.
    pub fn not_found() -> Self {
        Self::missing("Not Found")
    }

    pub fn invalid(violations: Vec<Json>) -> Self {
        Self { violations, ..Self::new(Class::Invalid, "") }
    }

    /// Too much of something; `limit` is its name in `admin.limits`.
    pub fn limit(limit: &'static str, content: impl Into<String>) -> Self {
        Self { limit: Some(limit), ..Self::bad(content) }
    }
}
