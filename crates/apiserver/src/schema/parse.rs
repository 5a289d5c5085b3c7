//! Schemas from the `openAPIV3Schema` of CustomResourceDefinitions.

use serde_json::{Map, Value};

use super::{Checks, Junctors, ListType, PatchStrategy, Schema, Size, Type, pattern};

impl Schema {
    /// Reads an `openAPIV3Schema`.
    pub fn parse(openapi: &Value) -> Self {
        node(openapi)
    }

    /// `x-kubernetes-validations`.
    pub(crate) fn rules(&self) -> &[Value] {
        list(&self.raw, "x-kubernetes-validations")
    }

    /// Whether there are rules here or below.
    pub(super) fn has_rules(&self) -> bool {
        let mut below = self.properties.values().chain(self.additional.as_deref()).chain(self.items.as_deref());
        !self.rules().is_empty() || below.any(Self::has_rules)
    }
}

impl Type {
    pub fn parse(name: &str) -> Option<Self> {
        let all = [Self::Object, Self::Array, Self::String, Self::Integer, Self::Number, Self::Boolean];
        all.into_iter().find(|type_| type_.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

fn node(openapi: &Value) -> Schema {
    let Value::Object(node) = openapi else { return Schema::default() };
    let mut raw = node.clone();
    for structure in ["properties", "items", "additionalProperties"] {
        raw.remove(structure);
    }
    let int_or_string = flag(node, "x-kubernetes-int-or-string");
    let properties = node.get("properties").and_then(Value::as_object).into_iter().flatten();
    Schema {
        type_: Type::parse(text(node, "type")).filter(|_| !int_or_string),
        nullable: flag(node, "nullable"),
        int_or_string,
        preserve_unknown_fields: flag(node, "x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag(node, "x-kubernetes-embedded-resource"),
        properties: properties.map(|(name, child)| (name.clone(), self::node(child))).collect(),
        additional: match node.get("additionalProperties") {
            None | Some(Value::Null | Value::Bool(false)) => None,
            Some(child) => Some(Box::new(self::node(child))),
        },
        items: node.get("items").filter(|items| items.is_object()).map(|items| Box::new(self::node(items))),
        default: node.get("default").filter(|value| !value.is_null()).cloned(),
        list_type: match text(node, "x-kubernetes-list-type") {
            "set" => ListType::Set,
            "map" => ListType::Map(texts(node, "x-kubernetes-list-map-keys")),
            _ => ListType::Atomic,
        },
        atomic_map: text(node, "x-kubernetes-map-type") == "atomic",
        patch: patch(node),
        checks: checks(node),
        junctors: junctors(node),
        raw,
        ..Schema::default()
    }
}

fn patch(node: &Map<String, Value>) -> PatchStrategy {
    let merge_key = text(node, "x-kubernetes-patch-merge-key");
    PatchStrategy {
        merge: text(node, "x-kubernetes-patch-strategy").split(',').any(|strategy| strategy == "merge"),
        merge_key: (!merge_key.is_empty()).then(|| merge_key.to_owned()),
    }
}

fn checks(node: &Map<String, Value>) -> Checks {
    let count = |name: &str| node.get(name).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok());
    let number = |name: &str| node.get(name).and_then(Value::as_f64);
    let size = |min: &str, max: &str| Size { min: count(min), max: count(max) };
    Checks {
        required: texts(node, "required"),
        choices: list(node, "enum").to_vec(),
        // a definition with a bad pattern is refused
        pattern: node.get("pattern").and_then(Value::as_str).and_then(|text| pattern(text).ok()),
        format: text(node, "format").to_owned(),
        length: size("minLength", "maxLength"),
        items: size("minItems", "maxItems"),
        properties: size("minProperties", "maxProperties"),
        minimum: number("minimum").map(|bound| (bound, flag(node, "exclusiveMinimum"))),
        maximum: number("maximum").map(|bound| (bound, flag(node, "exclusiveMaximum"))),
        multiple_of: number("multipleOf").filter(|factor| *factor > 0.0),
    }
}

fn junctors(node: &Map<String, Value>) -> Option<Box<Junctors>> {
    let branches = |name: &str| list(node, name).iter().map(self::node).collect();
    let not = node.get("not").map(self::node);
    let any = ["allOf", "anyOf", "oneOf", "not"].iter().any(|name| node.contains_key(*name));
    any.then(|| {
        Box::new(Junctors { all_of: branches("allOf"), any_of: branches("anyOf"), one_of: branches("oneOf"), not })
    })
}

fn flag(node: &Map<String, Value>, name: &str) -> bool {
    node.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn text<'v>(node: &'v Map<String, Value>, name: &str) -> &'v str {
    node.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'v>(node: &'v Map<String, Value>, name: &str) -> &'v [Value] {
    node.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn texts(node: &Map<String, Value>, name: &str) -> Vec<String> {
    list(node, name).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
