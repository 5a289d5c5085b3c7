//! REST as Kubernetes speaks it: from a request to its response.
//!
//! ```text
//! handler: path -> route -> options, negotiate, select
//!           |-> discovery, openapi, openapi_v2
//!           |-> read, watching -------------------------------------------> response, table
//!           `-> create, binding, update, patch, scale, delete -> pipeline, webhooks -> response
//! ```

pub mod age;
mod binding;
pub mod body;
mod call;
mod create;
mod delete;
pub mod discovery;
mod handler;
pub mod jsonpath;
pub mod negotiate;
pub mod openapi;
pub mod openapi_v2;
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
mod untyped;
mod update;
mod watching;
mod webhooks;

pub use body::Body;
pub(crate) use body::boxed;
pub(crate) use handler::{create_namespace, handle};

#[cfg(test)]
pub(crate) mod fixtures;
