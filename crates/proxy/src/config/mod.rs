//! The configuration: objects, the registry that holds them, and what the engine gets to see of them.
//!
//! ```text
//!   REST, config file --> registry --> Snapshot --> Engine::apply --> workers
//!                         (JSON as given,  (typed, immutable,
//!                          one writer)      looked up by name)
//! ```
//!
//! Objects refer to each other by name and are looked up when a session is set up, so a name may be used before
//! there is such an object. [`types`], [`snapshot`] and [`engine`] are all that the engine needs to know.

pub mod delete;
pub mod document;
pub mod engine;
pub mod host_mapping;
pub mod json;
pub mod kind;
pub mod options;
pub(crate) mod parse;
pub(crate) mod reader;
pub mod refusal;
pub mod registry;
pub mod snapshot;
pub mod socket;
pub mod spec;
pub mod state;
pub mod strict;
pub mod types;
pub mod view;
mod write;
mod write_cluster;

pub use registry::Registry;
