//! Structural schemas: what a kind looks like, for pruning, defaulting, validation and merging.

pub mod cel;
mod check;
pub mod default;
pub mod embedded;
pub mod fault;
mod formats;
mod lists;
pub mod names;
pub mod parse;
pub(crate) mod pattern;
pub mod prune;
#[cfg(test)]
mod recorded;
pub mod strict;
pub mod validate;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// One node of a schema. Built-in kinds and custom ones share it.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own in OpenAPI")]
pub struct Schema {
    /// `object`, `array`, `string`, `integer`, `number`, `boolean`; none for int-or-string and free-form values.
    pub type_: Option<Type>,
    pub nullable: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown_fields: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded_resource: bool,
    pub properties: BTreeMap<String, Schema>,
    /// `additionalProperties`: the schema of a map's values; a node that takes anything for `true`.
    pub additional: Option<Box<Schema>>,
    pub items: Option<Box<Schema>>,
    pub default: Option<Value>,
    pub list_type: ListType,
    /// `x-kubernetes-map-type: atomic`.
    pub atomic_map: bool,
    /// Strategic merge of built-in kinds: `x-kubernetes-patch-strategy` and `x-kubernetes-patch-merge-key`.
    pub patch: PatchStrategy,
    /// What becomes of a property without a value; custom kinds keep what was written.
    pub zero: Zero,
    /// `allOf`, `anyOf`, `oneOf` and `not`, when there is one.
    pub junctors: Option<Box<Junctors>>,
    /// The node as it was written, for `kubectl explain` and the value rules (enum, pattern, minimum, ...,
    /// `x-kubernetes-validations`), without `properties`, `items` and `additionalProperties`.
    pub raw: Map<String, Value>,
}

/// Schemas that a value must meet on top of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Junctors {
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Schema>,
}

/// JSON types as schemas name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as one. The default.
    #[default]
    Atomic,
    Set,
    /// Items are told apart by these fields.
    Map(Vec<String>),
}

/// How a strategic merge patch treats a list or map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    pub merge: bool,
    pub retain_keys: bool,
    pub merge_key: Option<String>,
}

/// How a built-in property looks when it has no value or an empty one, as Go's types have it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Zero {
    /// An empty value that was written stays: pointers, and everything in custom kinds.
    #[default]
    Keep,
    /// `""`, `0`, `false`, `[]` and `{}` are the same as absent.
    Drop,
    /// Always written, with an empty value if need be.
    Always,
}
