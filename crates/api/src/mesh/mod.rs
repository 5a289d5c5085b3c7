//! `l7mp.io/v1`: server sockets, the ways between them, and what stands at their ends.
//!
//! People write these kinds in several dialects, and each object is stored as it was written. So a spec here is the
//! written text, the schema says what every dialect has in common, and `control` brings it to one form.

mod parts;
mod route;
mod rule;
mod status;
mod target;
mod virtual_service;

pub use route::*;
pub use rule::*;
pub use status::*;
pub use target::*;
pub use virtual_service::*;

/// A spec that is kept as it was written, under a schema of its own.
macro_rules! written {
    ($spec:ident, $schema:expr) => {
        impl ::schemars::JsonSchema for $spec {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($spec).into()
            }
            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                $schema
            }
        }
    };
}
use written;
