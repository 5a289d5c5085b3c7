//! REST as Kubernetes speaks it, the pure parts: what a request asks for, and how answers look.
//!
//! ```text
//! path -> route -> options, negotiate, body -> (verbs) -> table, partial
//!                  select                              -> discovery, openapi, health
//! ```

pub mod age;
mod answer;
pub mod body;
mod delete;
pub mod discovery;
pub mod health;
pub mod jsonpath;
pub mod negotiate;
pub mod openapi;
pub mod options;
pub mod path;
mod read;
pub mod route;
mod scale;
pub mod select;
pub mod syntax;
pub mod table;
pub mod text;
mod watching;
mod write;

pub use answer::Body;
pub(crate) use answer::{Peer, answer, boxed};
pub(crate) use write::create_namespace;

use http::StatusCode;

use crate::status::Failure;

/// An answer that is no object: a `Status`, or the plain page that paths outside of every known group get.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Status(#[from] Failure),
    /// `text/plain; charset=utf-8`.
    #[error("{body}")]
    Page { code: StatusCode, body: String },
}

impl Refusal {
    /// What a path gets that belongs to no group, and every path of a custom group that leads nowhere.
    pub fn page_not_found() -> Self {
        Self::Page { code: StatusCode::NOT_FOUND, body: "404 page not found\n".to_owned() }
    }

    /// What `/openapi/v3/...` gives for a document it does not have.
    pub fn empty_not_found() -> Self {
        Self::Page { code: StatusCode::NOT_FOUND, body: String::new() }
    }
}

#[cfg(test)]
pub(crate) mod fixtures;
