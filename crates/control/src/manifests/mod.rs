//! The files in `deploy` that follow from the capabilities: roles, webhook configurations, and the chart's values.
//! `portolan manifests` writes them, `cargo xtask manifests` commits them, and a test fails while one is stale.

mod flags;
mod form;
mod rbac;
mod webhooks;

pub use flags::{environment, schema, values};
pub use form::Form;
pub use rbac::{cleanup_rbac, rbac};
pub use webhooks::webhooks;
