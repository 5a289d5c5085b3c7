//! Why a request is refused, in the words that l7mp clients expect.

use super::json::Json;

/// A refused request; nothing has changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{content}")]
pub struct Refusal {
    pub class: Class,
    /// What the client reads as `content`.
    pub content: String,
    /// Violations of the schema, shown in place of `content`.
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

    /// A requested object that does not exist.
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
