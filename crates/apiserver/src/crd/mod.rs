//! CustomResourceDefinitions: defaulted, validated, and turned into served kinds.

pub mod definition;
mod kinds;
#[cfg(test)]
mod recorded;
mod scale;
mod served;
pub mod status;
mod structural;
mod tidy;

pub use definition::validate_definition;
pub use kinds::kinds;
pub use scale::scale_errors;
pub(crate) use served::{Served, ServedKind};
pub use status::{CLEANUP, Names, conditions, is_established, prepare, terminate};
pub use tidy::defaulted;
