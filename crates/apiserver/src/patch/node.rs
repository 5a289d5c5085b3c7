//! A schema at one path of an object, as merging needs it: which fields are known, how lists and maps merge.
//!
//! It adds two rules to `Schema`: the metadata of every object has one schema, whatever the kind's schema says
//! about it, and preserved unknown fields accept anything, with atomic lists.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::Value;

use crate::kinds::Kind;
use crate::schema::prune::OBJECT_META;
use crate::schema::{ListType, Schema, Type};

/// A schema at one path of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a> {
    pub schema: &'a Schema,
    /// A schema above keeps unknown fields.
    preserve: bool,
    /// The object itself: it has `apiVersion`, `kind` and `metadata`.
    root: bool,
    /// Of a built-in kind: a key that an item lacks is empty.
    built_in: bool,
}

/// How a value is treated. Without a type in the schema, the value decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Map,
    Scalar,
    List,
}

/// How the items of a list are identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Items<'a> {
    Atomic,
    Set,
    Keyed(Cow<'a, [String]>),
}

static ANYTHING: LazyLock<Schema> = LazyLock::new(|| Schema { preserve_unknown_fields: true, ..Schema::default() });
static TEXT: LazyLock<Schema> = LazyLock::new(|| Schema { type_: Some(Type::String), ..Schema::default() });

impl<'a> Node<'a> {
    /// The schema of a kind.
    pub(super) fn of(kind: &'a Kind) -> Self {
        Self { schema: &kind.schema, preserve: false, root: true, built_in: !kind.custom }
    }

    /// The schema of a built-in kind.
    pub(super) fn built_in(schema: &'a Schema) -> Self {
        Self { schema, preserve: false, root: true, built_in: true }
    }

    fn anything() -> Self {
        Self { schema: &ANYTHING, preserve: true, root: false, built_in: false }
    }

    fn below(self, schema: &'a Schema) -> Self {
        Self { schema, preserve: self.keeps_unknown(), root: false, ..self }
    }

    fn keeps_unknown(self) -> bool {
        self.preserve || self.schema.preserve_unknown_fields
    }

    /// The schema of a field that is declared here.
    pub(super) fn named(self, key: &str) -> Option<Self> {
        if self.root || self.schema.embedded_resource {
            match key {
                "metadata" => return Some(Self { built_in: true, ..self.below(&OBJECT_META) }),
                "apiVersion" | "kind" => return Some(self.below(&TEXT)),
                _ => {}
            }
        }
        self.schema.properties.get(key).map(|schema| self.below(schema))
    }

    /// The schema of a member, declared or not; none if it is not allowed.
    pub(super) fn member(self, key: &str) -> Option<Self> {
        if let Some(named) = self.named(key) {
            return Some(named);
        }
        if let Some(additional) = &self.schema.additional {
            return Some(self.below(additional));
        }
        let open = self.keeps_unknown() || (self.schema.properties.is_empty() && !self.root);
        open.then(Self::anything)
    }

    /// The schema of a list's items.
    pub(super) fn item(self) -> Self {
        self.schema.items.as_deref().map_or_else(Self::anything, |items| self.below(items))
    }

    /// How a value is treated here: by its own form if the schema allows that, else by the schema's.
    pub(super) fn shape(self, value: Option<&Value>) -> Shape {
        let fixed = match self.schema.type_ {
            Some(Type::Object) => Some(Shape::Map),
            Some(Type::Array) => Some(Shape::List),
            Some(Type::String | Type::Integer | Type::Number | Type::Boolean) => Some(Shape::Scalar),
            None => None,
        };
        fixed.unwrap_or(match value {
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => Shape::Scalar,
            Some(Value::Array(_)) => Shape::List,
            Some(Value::Object(_) | Value::Null) | None => Shape::Map,
        })
    }

    /// How the items of a list here are identified. Without a list type, the patch strategy of built-in kinds decides.
    pub(super) fn items(self) -> Items<'a> {
        let schema = self.schema;
        match &schema.list_type {
            ListType::Set => Items::Set,
            ListType::Map(keys) => Items::Keyed(Cow::Borrowed(keys)),
            ListType::Atomic if schema.patch.merge && !schema.raw.contains_key("x-kubernetes-list-type") => {
                schema.patch.merge_key.as_ref().map_or(Items::Set, |key| Items::Keyed(Cow::Owned(vec![key.clone()])))
            }
            ListType::Atomic => Items::Atomic,
        }
    }

    /// The default of a key that a list item lacks, if there is one.
    pub(super) fn key_default(self, key: &str) -> Option<Value> {
        let field = self.named(key)?.schema;
        let empty = || match field.type_ {
            Some(Type::String) if self.built_in => Some("".into()),
            Some(Type::Integer) if self.built_in => Some(0.into()),
            _ => None,
        };
        field.default.clone().or_else(empty)
    }

    /// A string that is any string: those with a format (dates, say) may be written otherwise too.
    pub(super) fn plain_text(self) -> bool {
        matches!(self.schema.raw.get("format").and_then(Value::as_str), None | Some("" | "byte"))
    }
}
