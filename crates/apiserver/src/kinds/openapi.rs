//! The schemas of built-in kinds: k8s-openapi's, plus what it leaves out (list types, patch strategies, which empty
//! values Go's types write), read from `markers.txt`.
//!
//! One line of `markers.txt` is a type and its remarkable fields: `name!` is always written, `name*` keeps a zero that
//! was given, `:` opens the merge rules as the real server's `/openapi/v3` documents state them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::Kind;
use super::builtin;
use crate::schema::{ListType, PatchStrategy, Schema, Type, Zero};

const PREFIX: &str = "#/components/schemas/";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
/// Where a schema keeps the name that its type has in Kubernetes, such as `v1.ConfigMap`.
pub(super) const GO_TYPE: &str = "x-go-type";
/// Types that hold any JSON.
const FREE: [&str; 6] = [
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
];

/// The OpenAPI v3 form of a built-in kind: the name of its own definition, and all definitions it needs, with
/// descriptions. Made anew at each call; a custom kind has none.
pub fn openapi_of(kind: &Kind) -> Option<(String, Map<String, Value>)> {
    let row = builtin::row(&kind.group, &kind.kind)?;
    let mut generator = generator();
    let root = (row.refer)(&mut generator);
    let mut definitions = generator.take_definitions(false);
    for (name, definition) in &mut definitions {
        decorate(name, definition);
    }
    if let Some(definition) = definitions.get_mut(&root) {
        definition["x-kubernetes-group-version-kind"] =
            json!([{ "group": kind.group, "kind": kind.kind, "version": kind.version }]);
    }
    Some((root, definitions))
}

/// The compact schema of the type that `refer` names, for pruning, merging and canonical form; without descriptions.
pub(super) fn schema_of(refer: fn(&mut SchemaGenerator) -> String) -> Schema {
    let mut generator = generator();
    let root = refer(&mut generator);
    let definitions = generator.take_definitions(false);
    Converter { definitions: &definitions, open: Vec::new() }.named(&root)
}

/// What `markers.txt` says of one type.
#[derive(Debug, Default)]
struct Marks {
    atomic: bool,
    fields: BTreeMap<&'static str, Mark>,
}

#[derive(Debug, Default)]
struct Mark {
    zero: Option<Zero>,
    list: Option<ListType>,
    atomic_map: bool,
    patch: PatchStrategy,
    default: Option<&'static str>,
}

fn marks() -> &'static BTreeMap<&'static str, Marks> {
    static MARKS: OnceLock<BTreeMap<&'static str, Marks>> = OnceLock::new();
    MARKS.get_or_init(|| include_str!("markers.txt").lines().filter_map(parse_line).collect())
}

fn parse_line(line: &'static str) -> Option<(&'static str, Marks)> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next()?;
    let mut marks = Marks::default();
    for word in words {
        if word == "=atomic" {
            marks.atomic = true;
            continue;
        }
        let (field, rules) = word.split_once(':').unwrap_or((word, ""));
        let (field, zero) = match (field.strip_suffix('!'), field.strip_suffix('*')) {
            (Some(field), _) => (field, Some(Zero::Always)),
            (_, Some(field)) => (field, Some(Zero::Keep)),
            _ => (field, None),
        };
        let mut mark = Mark { zero, ..Mark::default() };
        for rule in rules.split('+').filter(|rule| !rule.is_empty()) {
            mark.apply(rule);
        }
        marks.fields.insert(field, mark);
    }
    Some((name, marks))
}

impl Mark {
    fn apply(&mut self, rule: &'static str) {
        let (word, argument) = rule.trim_end_matches(')').split_once('(').unwrap_or((rule, ""));
        match word {
            "atomic" => self.list = Some(ListType::Atomic),
            "set" => self.list = Some(ListType::Set),
            "map" => self.list = Some(ListType::Map(argument.split(',').map(str::to_owned).collect())),
            "map-atomic" => self.atomic_map = true,
            "merge" => {
                self.patch.merge = true;
                self.patch.merge_key = (!argument.is_empty()).then(|| argument.to_owned());
            }
            "retainKeys" => self.patch.retain_keys = true,
            "default" => self.default = Some(argument),
            _ => {}
        }
    }

    /// Writes the rules as OpenAPI extensions.
    fn write(&self, property: &mut Value) {
        match &self.list {
            Some(ListType::Atomic) => property["x-kubernetes-list-type"] = "atomic".into(),
            Some(ListType::Set) => property["x-kubernetes-list-type"] = "set".into(),
            Some(ListType::Map(keys)) => {
                property["x-kubernetes-list-type"] = "map".into();
                property["x-kubernetes-list-map-keys"] = json!(keys);
            }
            None => {}
        }
        if self.atomic_map {
            property["x-kubernetes-map-type"] = "atomic".into();
        }
        let strategies = [(self.patch.merge, "merge"), (self.patch.retain_keys, "retainKeys")];
        let strategies: Vec<&str> = strategies.into_iter().filter_map(|(on, name)| on.then_some(name)).collect();
        if !strategies.is_empty() {
            property["x-kubernetes-patch-strategy"] = strategies.join(",").into();
        }
        if let Some(key) = &self.patch.merge_key {
            property["x-kubernetes-patch-merge-key"] = key.as_str().into();
        }
        if let Some(default) = self.default {
            property["default"] = default.into();
        }
    }
}

fn generator() -> SchemaGenerator {
    let mut settings = SchemaSettings::openapi3();
    settings.definitions_path = "/components/schemas".into();
    settings.transforms.clear();
    settings.into_generator()
}

/// Adds the extensions, and writes references with siblings as the real documents do.
fn decorate(name: &str, definition: &mut Value) {
    match name {
        INT_OR_STRING => {
            definition["format"] = "int-or-string".into();
            definition["oneOf"] = json!([{ "type": "integer" }, { "type": "string" }]);
        }
        QUANTITY => definition["oneOf"] = json!([{ "type": "string" }, { "type": "number" }]),
        _ => {}
    }
    if name == INT_OR_STRING || name == QUANTITY {
        super::json::remove(definition, "x-kubernetes-int-or-string");
    }
    let marks = marks().get(name);
    if marks.is_some_and(|marks| marks.atomic) {
        definition["x-kubernetes-map-type"] = "atomic".into();
    }
    let Some(properties) = definition.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (field, property) in properties {
        wrap_reference(property);
        if let Some(mark) = marks.and_then(|marks| marks.fields.get(field.as_str())) {
            mark.write(property);
        }
    }
}

/// OpenAPI 3.0 ignores what stands beside a `$ref`.
fn wrap_reference(property: &mut Value) {
    let Some(map) = property.as_object_mut() else { return };
    if map.len() > 1
        && let Some(reference) = map.remove("$ref")
    {
        map.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
    }
}

/// `v1.ConfigMap` of `io.k8s.api.core.v1.ConfigMap`.
fn go_type(name: &str) -> String {
    let mut parts = name.rsplitn(3, '.');
    let (type_, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    format!("{package}.{type_}")
}

/// Turns definitions into one tree.
struct Converter<'a> {
    definitions: &'a Map<String, Value>,
    /// Names being expanded, to cut recursion.
    open: Vec<String>,
}

impl Converter<'_> {
    fn named(&mut self, name: &str) -> Schema {
        let special = |format: &str| Map::from_iter([("format".to_owned(), Value::from(format))]);
        match name {
            TIME => return Schema { type_: Some(Type::String), raw: special("date-time"), ..Schema::default() },
            MICRO_TIME => return Schema { type_: Some(Type::String), raw: special("micro-time"), ..Schema::default() },
            QUANTITY => return Schema { int_or_string: true, raw: special("quantity"), ..Schema::default() },
            INT_OR_STRING => return Schema { int_or_string: true, ..Schema::default() },
            _ => {}
        }
        let definition = self.definitions.get(name);
        let Some(definition) =
            definition.filter(|_| !FREE.contains(&name) && !self.open.iter().any(|open| open == name))
        else {
            return Schema { preserve_unknown_fields: true, ..Schema::default() };
        };
        self.open.push(name.to_owned());
        let mut schema = self.node(definition);
        self.open.pop();
        schema.raw.insert(GO_TYPE.to_owned(), go_type(name).into());
        let marks = marks().get(name);
        schema.atomic_map = marks.is_some_and(|marks| marks.atomic);
        for (field, property) in &mut schema.properties {
            let mark = marks.and_then(|marks| marks.fields.get(field.as_str()));
            let structure = !property.properties.is_empty() || property.preserve_unknown_fields;
            property.zero = mark.and_then(|mark| mark.zero).unwrap_or(if structure { Zero::Keep } else { Zero::Drop });
            let Some(mark) = mark else { continue };
            property.list_type = mark.list.clone().unwrap_or_default();
            property.atomic_map |= mark.atomic_map;
            property.patch = mark.patch.clone();
            property.default = mark.default.map(Value::from);
        }
        schema
    }

    fn node(&mut self, node: &Value) -> Schema {
        if let Some(reference) = node.get("$ref").and_then(Value::as_str) {
            return self.named(reference.strip_prefix(PREFIX).unwrap_or(reference));
        }
        let mut schema =
            Schema { type_: node.get("type").and_then(Value::as_str).and_then(type_of), ..Schema::default() };
        for key in ["format", "required"] {
            if let Some(value) = node.get(key) {
                schema.raw.insert(key.to_owned(), value.clone());
            }
        }
        schema.items = node.get("items").map(|items| Box::new(self.node(items)));
        schema.additional = node.get("additionalProperties").map(|values| Box::new(self.node(values)));
        if let Some(properties) = node.get("properties").and_then(Value::as_object) {
            schema.properties = properties.iter().map(|(name, inner)| (name.clone(), self.node(inner))).collect();
        } else {
            // An object of which nothing is said takes anything.
            schema.preserve_unknown_fields = schema.type_ == Some(Type::Object) && schema.additional.is_none();
        }
        schema
    }
}

fn type_of(name: &str) -> Option<Type> {
    Some(match name {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> Kind {
        builtin::all().into_iter().find(|kind| kind.kind == name).unwrap()
    }

    #[test]
    fn lists_of_a_pod_merge_as_the_real_server_says() {
        let pod = kind("Pod");
        let containers = &pod.schema.properties["spec"].properties["containers"];
        assert_eq!(containers.list_type, ListType::Map(vec!["name".into()]));
        assert!(containers.patch.merge);
        let ports = &containers.items.as_ref().unwrap().properties["ports"];
        assert_eq!(ports.list_type, ListType::Map(vec!["containerPort".into(), "protocol".into()]));
        assert_eq!(ports.patch.merge_key.as_deref(), Some("containerPort"));
        let volumes = &pod.schema.properties["spec"].properties["volumes"];
        assert!(volumes.patch.merge && volumes.patch.retain_keys);
    }

    #[test]
    fn every_marker_names_a_field_that_k8s_openapi_has() {
        for kind in builtin::all() {
            let (_, definitions) = openapi_of(&kind).unwrap();
            for (name, definition) in &definitions {
                let Some(marks) = marks().get(name.as_str()) else { continue };
                for field in marks.fields.keys() {
                    assert!(definition["properties"].get(field).is_some(), "{name} has no {field}");
                }
            }
        }
    }

    #[test]
    fn a_document_carries_descriptions_extensions_and_its_kind() {
        let (root, definitions) = openapi_of(&kind("Service")).unwrap();
        assert_eq!(root, "io.k8s.api.core.v1.Service");
        assert_eq!(definitions[&root]["x-kubernetes-group-version-kind"][0]["kind"], "Service");
        let ports = &definitions["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ports"];
        assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["port", "protocol"]));
        assert!(ports["description"].as_str().is_some_and(|text| !text.is_empty()));
        let spec = &definitions[&root]["properties"]["spec"];
        assert_eq!(spec["allOf"][0]["$ref"], "#/components/schemas/io.k8s.api.core.v1.ServiceSpec");
    }

    #[test]
    fn a_crd_schema_inside_a_crd_is_cut_at_its_recursion() {
        let crd = kind("CustomResourceDefinition");
        let version = crd.schema.properties["spec"].properties["versions"].items.as_ref().unwrap();
        let props = &version.properties["schema"].properties["openAPIV3Schema"];
        assert!(props.properties["properties"].additional.as_ref().unwrap().preserve_unknown_fields);
    }
}
