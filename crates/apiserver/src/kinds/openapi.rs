//! The schemas of built-in kinds: k8s-openapi's, plus what it leaves out (list types, patch strategies, which empty
//! values Go's types write, defaults, rules for values), read from `markers.txt`.
//!
//! One line of `markers.txt` is a type and its remarkable fields, `=` for itself: `name!` is always written, `name*`
//! keeps a zero that was given, `:` opens the rules, `+` joins them. `atomic`, `set`, `map`, `merge` and `retainKeys`
//! are the merge rules of the real server's `/openapi/v3` documents, `default` is what the server fills in, and
//! `needed`, `fixed`, `enum`, `range` and `form` are what `validate` checks.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{Kind, builtin};
use crate::schema::{Schema, Zero};

/// How `!` and `*` are kept in a schema.
const ZERO: &str = "x-portolan-zero";

/// The OpenAPI v3 form of a built-in kind: the name of its own definition, and all definitions it needs, with
/// descriptions. Made anew at each call; a custom kind has none.
pub fn openapi_of(kind: &Kind) -> Option<(String, Map<String, Value>)> {
    let (root, mut definitions) = definitions(builtin::refer(kind)?);
    if let Some(definition) = definitions.get_mut(&root) {
        definition["x-kubernetes-group-version-kind"] =
            json!([{ "group": kind.group, "kind": kind.kind, "version": kind.version }]);
    }
    Some((root, definitions))
}

/// The compact schema of the type that `refer` names, for pruning, merging and canonical form; without descriptions.
pub(super) fn schema_of(refer: builtin::Refer) -> Schema {
    let (root, definitions) = definitions(refer);
    let whole = inlined(&definitions, &json!({ "$ref": root }), &mut Vec::new());
    let mut schema = Schema::parse(&whole);
    finish(&mut schema);
    schema
}

fn definitions(refer: builtin::Refer) -> (String, Map<String, Value>) {
    let mut settings = SchemaSettings::openapi3();
    settings.definitions_path = "/components/schemas".into();
    settings.transforms.clear();
    let mut generator = settings.into_generator();
    let root = refer(&mut generator);
    let mut definitions = generator.take_definitions(false);
    for (name, definition) in &mut definitions {
        decorate(name, definition);
    }
    (root, definitions)
}

/// Adds the marks of a type to its definition.
fn decorate(name: &str, definition: &mut Value) {
    static MARKS: LazyLock<BTreeMap<&str, Marks>> =
        LazyLock::new(|| include_str!("markers.txt").lines().filter_map(marks_of_line).collect());
    let marks = MARKS.get(name);
    let mark = |field: &str| marks.and_then(|marks| marks.get(field)).cloned().unwrap_or_default();
    let Some(definition) = definition.as_object_mut() else { return };
    definition.extend(mark("="));
    let properties = definition.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten();
    for (field, property) in properties.filter_map(|(field, property)| Some((field, property.as_object_mut()?))) {
        // OpenAPI 3.0 ignores what stands beside a `$ref`.
        if let Some(reference) = property.remove("$ref") {
            property.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
        }
        property.extend(mark(field));
    }
}

/// What `markers.txt` says of the fields of one type, as extensions of OpenAPI.
type Marks = BTreeMap<&'static str, Map<String, Value>>;

fn marks_of_line(line: &'static str) -> Option<(&'static str, Marks)> {
    let (name, words) = line.split_once(' ')?;
    let mut marks = Marks::new();
    for word in words.split(' ') {
        let (field, rules) = word.split_once(':').unwrap_or((word, ""));
        let mark = marks.entry(field.trim_end_matches(['!', '*'])).or_default();
        for zero in ['!', '*'].into_iter().filter(|zero| field.ends_with(*zero)) {
            mark.insert(ZERO.to_owned(), zero.to_string().into());
        }
        for rule in rules.split('+').filter(|rule| !rule.is_empty()) {
            let (word, argument) = rule.trim_end_matches(')').split_once('(').unwrap_or((rule, ""));
            mark_rule(mark, word, argument);
        }
    }
    Some((name, marks))
}

fn mark_rule(mark: &mut Map<String, Value>, rule: &str, argument: &str) {
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    let arguments = || argument.split(',').collect::<Value>();
    let mut put = |key: &str, value: Value| drop(mark.insert(key.to_owned(), value));
    match rule {
        "atomic" | "set" => put("x-kubernetes-list-type", rule.into()),
        "map" => {
            put("x-kubernetes-list-type", "map".into());
            put("x-kubernetes-list-map-keys", arguments());
        }
        "map-atomic" => put("x-kubernetes-map-type", "atomic".into()),
        "merge" | "retainKeys" => {
            if !argument.is_empty() {
                put("x-kubernetes-patch-merge-key", argument.into());
            }
            let before = mark.get("x-kubernetes-patch-strategy").and_then(Value::as_str);
            let strategy = before.map_or_else(|| rule.to_owned(), |before| format!("{before},{rule}"));
            mark.insert("x-kubernetes-patch-strategy".to_owned(), strategy.into());
        }
        "default" => put("default", value(argument)),
        "enum" => put("enum", arguments()),
        "range" => {
            for (key, bound) in ["minimum", "maximum"].into_iter().zip(argument.split(',')) {
                put(key, value(bound));
            }
        }
        _ => put(&format!("x-portolan-{rule}"), value(argument)),
    }
}

/// A node with its references replaced by what they refer to, without descriptions. A type that contains itself takes
/// anything from there on.
fn inlined<'d>(definitions: &'d Map<String, Value>, node: &'d Value, open: &mut Vec<&'d str>) -> Value {
    let Value::Object(fields) = node else { return node.clone() };
    let reference = node.get("$ref").or_else(|| node.pointer("/allOf/0/$ref")).and_then(Value::as_str);
    let mut whole = Map::new();
    if let Some(name) = reference.and_then(|name| name.rsplit('/').next()) {
        let special = special(name, open);
        open.push(name);
        let target = special.or_else(|| Some(inlined(definitions, definitions.get(name)?, open)));
        open.pop();
        whole = target.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    }
    for (key, value) in fields.iter().filter(|(key, _)| !matches!(key.as_str(), "description" | "$ref" | "allOf")) {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                fields.iter().map(|(name, inner)| (name.clone(), inlined(definitions, inner, open))).collect()
            }
            ("items" | "additionalProperties", inner) => inlined(definitions, inner, open),
            (_, other) => other.clone(),
        };
        whole.insert(key.clone(), value);
    }
    // An object of which nothing is said takes anything.
    let is_object = whole.get("type").is_some_and(|type_| type_ == "object");
    if is_object && !whole.contains_key("properties") && !whole.contains_key("additionalProperties") {
        whole.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
    }
    whole.into()
}

/// Types that write themselves in their own way, or hold any JSON.
fn special(name: &str, open: &[&str]) -> Option<Value> {
    let free = json!({ "x-kubernetes-preserve-unknown-fields": true });
    match name.rsplit('.').next().unwrap_or_default() {
        "Time" => Some(json!({ "type": "string", "format": "date-time" })),
        "MicroTime" => Some(json!({ "type": "string", "format": "micro-time" })),
        "Quantity" => Some(json!({ "x-kubernetes-int-or-string": true, "format": "quantity" })),
        "IntOrString" => Some(json!({ "x-kubernetes-int-or-string": true })),
        "FieldsV1" | "RawExtension" | "JSON" => Some(free),
        type_ if type_.starts_with("JSONSchemaPropsOr") || open.contains(&name) => Some(free),
        _ => None,
    }
}

/// Reads what the schemas of custom kinds have no use for.
fn finish(schema: &mut Schema) {
    for property in schema.properties.values_mut() {
        let structure = !property.properties.is_empty() || property.preserve_unknown_fields;
        property.zero = match property.raw.get(ZERO).and_then(Value::as_str) {
            Some("!") => Zero::Always,
            None if !structure => Zero::Drop,
            _ => Zero::Keep,
        };
    }
    let below =
        schema.properties.values_mut().chain(schema.items.as_deref_mut()).chain(schema.additional.as_deref_mut());
    below.for_each(finish);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ListType;

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
        assert!(volumes.patch.merge);
    }

    #[test]
    fn every_marker_names_a_field_that_k8s_openapi_has() {
        for kind in builtin::all() {
            let (_, definitions) = openapi_of(&kind).unwrap();
            for (name, definition) in &definitions {
                let line =
                    include_str!("markers.txt").lines().filter_map(marks_of_line).find(|(type_, _)| type_ == name);
                for field in line.iter().flat_map(|(_, marks)| marks.keys()).filter(|field| **field != "=") {
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
