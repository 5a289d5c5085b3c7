//! Selectors: which objects a list, a watch or a collection delete is about.

pub mod fields;
pub mod labels;

pub use fields::FieldSelector;
pub use labels::{LabelSelector, labels_of};
