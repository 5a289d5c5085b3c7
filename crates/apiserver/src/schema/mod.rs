//! Structural schemas: what a kind looks like, for pruning, defaulting, validation and merging.

pub mod cel;
pub mod default;
pub mod fault;
mod formats;
mod lists;
pub mod parse;
pub mod prune;
#[cfg(test)]
mod recorded;
pub mod strict;
pub mod validate;

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

pub(crate) use fault::Path;
pub(crate) use formats::pattern;

/// One node of a schema. Built-in kinds and custom ones share it.
#[derive(Debug, Clone, Default)]
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
    /// What a value of a custom kind must be beyond its type.
    pub checks: Checks,
    /// `allOf`, `anyOf`, `oneOf` and `not`, when there is one.
    pub junctors: Option<Box<Junctors>>,
    /// The node as it was written, without `properties`, `items` and `additionalProperties`: for `kubectl explain` and
    /// `x-kubernetes-validations`.
    pub raw: Map<String, Value>,
}

/// The value rules of a node, read once.
#[derive(Debug, Clone, Default)]
pub struct Checks {
    pub required: Vec<String>,
    /// `enum`
    pub choices: Vec<Value>,
    pub pattern: Option<Regex>,
    /// Empty for none.
    pub format: String,
    /// Characters of a string.
    pub length: Size,
    pub items: Size,
    pub properties: Size,
    /// A bound, and whether it is exclusive.
    pub minimum: Option<(f64, bool)>,
    pub maximum: Option<(f64, bool)>,
    pub multiple_of: Option<f64>,
}

/// How many there may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    pub min: Option<usize>,
    pub max: Option<usize>,
}

/// Schemas that a value must meet on top of its own.
#[derive(Debug, Clone, Default)]
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

impl Schema {
    /// The schema of a field: declared, or that of a map's values.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional.as_deref())
    }
}
