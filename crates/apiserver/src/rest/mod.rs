//! REST as Kubernetes speaks it: from a request to its answer.
//!
//! ```text
//! answer: path -> route -> options, negotiate, select
//!           |-> discovery, openapi
//!           |-> read, watching -------------------------------------------> show, table
//!           `-> create, update, patch, scale, delete -> pipeline, webhooks -> show
//! ```

pub mod age;
mod answer;
pub mod body;
mod create;
mod delete;
pub mod discovery;
pub mod jsonpath;
pub mod negotiate;
pub mod openapi;
pub mod options;
mod patch;
pub mod path;
mod pipeline;
mod read;
mod response;
pub mod route;
mod scale;
pub mod select;
pub mod table;
mod update;
mod watching;
mod webhooks;

pub use answer::Body;
pub(crate) use answer::{answer, boxed};
pub(crate) use create::create_namespace;

#[cfg(test)]
pub(crate) mod fixtures;
