//! Schemas from and to OpenAPI: those of CustomResourceDefinitions, and documents with references.

use serde_json::{Map, Value, json};

use super::{Junctors, ListType, PatchStrategy, Schema, Type};

/// Deeper nodes take anything: no schema of a real kind comes near.
const MAX_DEPTH: usize = 200;

impl Schema {
    /// Reads an `openAPIV3Schema`.
    pub fn parse(openapi: &Value) -> Self {
        Parser { definitions: None, open: Vec::new() }.node(openapi, 0)
    }

    /// Reads a node of a document whose `$ref`s name entries of `definitions`.
    ///
    /// A definition that contains itself takes anything from there on, and so does an object without fields.
    pub fn parse_with(openapi: &Value, definitions: &Map<String, Value>) -> Self {
        Parser { definitions: Some(definitions), open: Vec::new() }.node(openapi, 0)
    }

    /// The node as OpenAPI, with what is below it.
    pub fn to_openapi(&self) -> Value {
        let mut node = self.raw.clone();
        if !self.properties.is_empty() {
            let properties = self.properties.iter().map(|(name, schema)| (name.clone(), schema.to_openapi()));
            node.insert("properties".to_owned(), Value::Object(properties.collect()));
        }
        if let Some(items) = &self.items {
            node.insert("items".to_owned(), items.to_openapi());
        }
        if let Some(additional) = &self.additional {
            let schema = match additional.as_ref() {
                nothing if nothing.is_nothing() => Value::Bool(false),
                anything if anything.raw.is_empty() && anything.properties.is_empty() => Value::Bool(true),
                schema => schema.to_openapi(),
            };
            node.insert("additionalProperties".to_owned(), schema);
        }
        Value::Object(node)
    }

    /// Whether no value at all is taken: `additionalProperties: false`.
    pub(crate) fn is_nothing(&self) -> bool {
        self.raw.get("not").and_then(Value::as_object).is_some_and(Map::is_empty)
    }

    /// A number among the value rules, such as `maxLength`.
    pub(crate) fn limit(&self, name: &str) -> Option<i64> {
        let number = self.raw.get(name)?;
        #[expect(clippy::cast_possible_truncation, reason = "Go truncates too")]
        number.as_i64().or_else(|| number.as_f64().map(|float| float as i64))
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.raw.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn list(&self, name: &str) -> &[Value] {
        self.raw.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.raw.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
}

impl Type {
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
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

struct Parser<'a> {
    definitions: Option<&'a Map<String, Value>>,
    /// References that are being read.
    open: Vec<&'a str>,
}

impl Parser<'_> {
    fn node(&mut self, openapi: &Value, depth: usize) -> Schema {
        let Value::Object(node) = openapi else { return self.free_form() };
        if depth > MAX_DEPTH {
            return anything();
        }
        if let Some((name, own)) = reference(node) {
            return self.definition(name, own, depth);
        }
        let own = merged_null(node);
        let node = own.as_ref().unwrap_or(node);
        let mut schema = Schema { raw: node.clone(), ..Schema::default() };
        for structure in ["properties", "items", "additionalProperties"] {
            schema.raw.remove(structure);
        }
        let (type_, nullable) = type_of(node);
        let flag = |name: &str| node.get(name).and_then(Value::as_bool).unwrap_or(false);
        schema.int_or_string = flag("x-kubernetes-int-or-string") || schema.text("format") == "int-or-string";
        schema.type_ = if schema.int_or_string { None } else { type_ };
        schema.nullable = nullable || flag("nullable");
        schema.preserve_unknown_fields = flag("x-kubernetes-preserve-unknown-fields");
        schema.embedded_resource = flag("x-kubernetes-embedded-resource");
        schema.default = node.get("default").filter(|value| !value.is_null()).cloned();
        schema.list_type = list_type(node);
        schema.atomic_map = schema.text("x-kubernetes-map-type") == "atomic";
        schema.patch = patch_strategy(&schema);
        if let Some(Value::Object(properties)) = node.get("properties") {
            let children = properties.iter().map(|(name, child)| (name.clone(), self.node(child, depth + 1)));
            schema.properties = children.collect();
        }
        schema.items =
            node.get("items").filter(|items| items.is_object()).map(|items| Box::new(self.node(items, depth + 1)));
        schema.additional = match node.get("additionalProperties") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(false)) => Some(Box::new(nothing())),
            Some(child) => Some(Box::new(self.node(child, depth + 1))),
        };
        schema.junctors = self.junctors(node, depth);
        if self.definitions.is_some() && is_opaque(&schema) {
            schema.preserve_unknown_fields = true;
        }
        schema
    }

    /// What `additionalProperties: true` means: anything, of which custom resources keep no unknown fields.
    fn free_form(&self) -> Schema {
        if self.definitions.is_some() { anything() } else { Schema::default() }
    }

    fn definition(&mut self, name: &str, own: Map<String, Value>, depth: usize) -> Schema {
        let Some((name, target)) = self.definitions.and_then(|definitions| {
            let (key, value) = definitions.get_key_value(name)?;
            Some((key.as_str(), value))
        }) else {
            return anything();
        };
        if self.open.contains(&name) {
            let mut cut = anything();
            cut.raw.extend(own);
            return cut;
        }
        let mut node = target.as_object().cloned().unwrap_or_default();
        node.extend(own);
        self.open.push(name);
        let schema = self.node(&Value::Object(node), depth + 1);
        self.open.pop();
        schema
    }

    fn junctors(&mut self, node: &Map<String, Value>, depth: usize) -> Option<Box<Junctors>> {
        if !["allOf", "anyOf", "oneOf", "not"].iter().any(|name| node.contains_key(*name)) {
            return None;
        }
        let mut branches = |name: &str| -> Vec<Schema> {
            let list = node.get(name).and_then(Value::as_array);
            list.into_iter().flatten().map(|branch| self.node(branch, depth + 1)).collect()
        };
        let (all_of, any_of, one_of) = (branches("allOf"), branches("anyOf"), branches("oneOf"));
        let not = node.get("not").map(|not| self.node(not, depth + 1));
        Some(Box::new(Junctors { all_of, any_of, one_of, not }))
    }
}

/// The definition a node stands for, with what it says itself: `$ref`, or an `allOf` of one `$ref`.
fn reference(node: &Map<String, Value>) -> Option<(&str, Map<String, Value>)> {
    let (key, target) = match (node.get("$ref"), node.get("allOf").and_then(Value::as_array).map(Vec::as_slice)) {
        (Some(target), _) => ("$ref", target),
        (None, Some([only])) => ("allOf", only.get("$ref")?),
        (None, _) => return None,
    };
    let name = target.as_str()?.rsplit('/').next()?;
    let own = node.iter().filter(|(name, _)| *name != key).map(|(name, value)| (name.clone(), value.clone()));
    Some((name, own.collect()))
}

/// `anyOf: [X, {type: "null"}]` is X or null.
fn merged_null(node: &Map<String, Value>) -> Option<Map<String, Value>> {
    let branches = node.get("anyOf")?.as_array()?;
    let is_null = |branch: &Value| branch.get("type") == Some(&json!("null"));
    let [one, other] = branches.as_slice() else { return None };
    let kept = if is_null(other) {
        one
    } else if is_null(one) {
        other
    } else {
        return None;
    };
    let mut merged = node.clone();
    merged.remove("anyOf");
    merged.extend(kept.as_object()?.clone());
    merged.insert("nullable".to_owned(), Value::Bool(true));
    Some(merged)
}

fn type_of(node: &Map<String, Value>) -> (Option<Type>, bool) {
    match node.get("type") {
        Some(Value::String(name)) => (Type::parse(name), false),
        Some(Value::Array(names)) => {
            let mut names = names.iter().filter_map(Value::as_str);
            let nullable = names.clone().any(|name| name == "null");
            (names.find_map(Type::parse), nullable)
        }
        _ => (None, false),
    }
}

fn list_type(node: &Map<String, Value>) -> ListType {
    match node.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => {
            let keys = node.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            ListType::Map(keys.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect())
        }
        _ => ListType::Atomic,
    }
}

fn patch_strategy(schema: &Schema) -> PatchStrategy {
    let strategies: Vec<&str> = schema.text("x-kubernetes-patch-strategy").split(',').collect();
    let merge_key = schema.text("x-kubernetes-patch-merge-key");
    PatchStrategy {
        merge: strategies.contains(&"merge"),
        retain_keys: strategies.contains(&"retainKeys"),
        merge_key: (!merge_key.is_empty()).then(|| merge_key.to_owned()),
    }
}

/// An object or a value of which a document says nothing more: raw JSON in the built-in kinds.
fn is_opaque(schema: &Schema) -> bool {
    let shapeless = schema.properties.is_empty() && schema.additional.is_none() && schema.items.is_none();
    shapeless && !schema.int_or_string && matches!(schema.type_, None | Some(Type::Object)) && schema.junctors.is_none()
}

fn anything() -> Schema {
    let raw = Map::from_iter([("x-kubernetes-preserve-unknown-fields".to_owned(), Value::Bool(true))]);
    Schema { preserve_unknown_fields: true, raw, ..Schema::default() }
}

fn nothing() -> Schema {
    let raw = Map::from_iter([("not".to_owned(), json!({}))]);
    Schema { raw, ..Schema::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_survives_the_way_there_and_back() {
        let openapi = json!({
            "type": "object", "description": "a boat", "required": ["spec"],
            "properties": {
                "spec": { "type": "object", "additionalProperties": { "type": "string", "maxLength": 5 } },
                "open": { "type": "object", "additionalProperties": true },
                "shut": { "type": "object", "additionalProperties": false },
                "list": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                          "items": { "type": "object", "properties": { "k": { "type": "string", "default": "x" } } } },
                "port": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
            },
        });
        assert_eq!(Schema::parse(&openapi).to_openapi(), openapi);
    }

    #[test]
    fn references_are_resolved_and_their_neighbours_win() {
        let definitions = json!({ "io.k8s.Spec": { "type": "object", "description": "theirs", "properties": { "n": { "type": "integer" } } } });
        let node =
            json!({ "allOf": [{ "$ref": "#/components/schemas/io.k8s.Spec" }], "description": "ours", "default": {} });
        let schema = Schema::parse_with(&node, definitions.as_object().unwrap());
        assert_eq!(schema.properties["n"].type_, Some(Type::Integer));
        assert_eq!((schema.text("description"), schema.default.as_ref()), ("ours", Some(&json!({}))));
    }

    #[test]
    fn a_definition_inside_itself_takes_anything() {
        let definitions = json!({ "Props": { "type": "object", "properties": {
            "not": { "$ref": "#/$defs/Props" },
            "properties": { "type": "object", "additionalProperties": { "$ref": "#/$defs/Props" } },
        } } });
        let schema = Schema::parse_with(&json!({ "$ref": "#/$defs/Props" }), definitions.as_object().unwrap());
        assert!(schema.properties["not"].preserve_unknown_fields);
        assert!(schema.properties["properties"].additional.as_ref().unwrap().preserve_unknown_fields);
    }

    #[test]
    fn types_with_null_are_nullable() {
        let schema = Schema::parse(&json!({ "type": ["string", "null"] }));
        assert_eq!((schema.type_, schema.nullable), (Some(Type::String), true));
        let schema = Schema::parse(&json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }));
        assert_eq!((schema.type_, schema.nullable), (Some(Type::Integer), true));
    }
}
