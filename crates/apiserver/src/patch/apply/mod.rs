//! Server-side apply and the bookkeeping of who owns which field (`metadata.managedFields`), after
//! structured-merge-diff.
//!
//! ```text
//! element   the steps of a path
//! fields    sets of paths, and their JSON (FieldsV1)
//! typed     an object under its schema: checks, its set of fields, items of lists
//! compare   two objects: what was added, modified, removed
//! combine   an object under another: merge; an object less some fields: remove
//! entries   managedFields, read and written: who owns what
//! managed   the bookkeeping of creates, updates and patches
//! merge     an applied configuration: merge, prune, conflicts
//! rules     what differs by kind: fields that a request cannot set, the empty object
//! ```

mod combine;
mod compare;
mod element;
mod entries;
mod fields;
mod managed;
mod merge;
mod rules;
mod typed;

pub use self::element::Element;
pub use self::fields::Set;
pub use self::managed::{fits, keep_times, manager_name, scaled, updated};
pub use self::merge::{apply, decode};

use jiff::Timestamp;

use crate::kinds::Kind;

/// A write, as far as the bookkeeping needs to know it.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    pub kind: &'a Kind,
    /// The query parameter `fieldManager`, or `manager_name` of the user agent.
    pub manager: &'a str,
    /// `status`, `scale`; empty for the object itself.
    pub subresource: &'a str,
    pub now: Timestamp,
}
