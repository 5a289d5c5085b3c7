//! OpenAPI v3: an index, and one document per group and version, for `kubectl explain` and `apply`.
//!
//! Documents have what kubectl reads: the schemas with their kinds, and for each kind the patch operation, whose
//! parameters and content types tell kubectl what the server supports.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::kinds::Kind;
use crate::kinds::openapi::openapi_of;
use crate::schema::Schema;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The path of a document, as the index names it: `api/v1` or `apis/G/V`.
pub fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The document of one group and version; `kinds` are those of it.
pub fn document(kinds: &[&Kind]) -> Value {
    let mut schemas = Map::from_iter([(OBJECT_META.to_owned(), object_meta())]);
    let mut paths = Map::new();
    for kind in kinds {
        if let Some((_, definitions)) = openapi_of(kind) {
            schemas.extend(definitions);
        } else {
            let package: Vec<&str> = kind.group.split('.').rev().collect();
            schemas.insert(format!("{}.{}.{}", package.join("."), kind.version, kind.kind), object_schema(kind));
        }
        let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let path = document_path(&kind.group, &kind.version);
        paths.insert(format!("/{path}{scope}/{}/{{name}}", kind.plural), json!({ "patch": patch(kind) }));
    }
    json!({
        "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": "v1.36.4" },
        "paths": paths, "components": { "schemas": schemas },
    })
}

/// The schema of metadata with its documentation, without references.
pub fn object_meta() -> Value {
    library_schema::<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>()
}

fn patch(kind: &Kind) -> Value {
    let parameters = ["dryRun", "fieldManager", "fieldValidation", "force"]
        .map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string" } }));
    let strategic = (!kind.custom).then_some("application/strategic-merge-patch+json");
    let forms = ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
    let content: Map<String, Value> =
        forms.into_iter().chain(strategic).map(|form| (form.to_owned(), json!({ "schema": {} }))).collect();
    json!({
        "parameters": parameters, "requestBody": { "content": content, "required": true },
        "responses": { "200": { "description": "OK" } },
        "x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": kind_entry(kind),
    })
}

fn kind_entry(kind: &Kind) -> Value {
    json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
}

fn object_schema(kind: &Kind) -> Value {
    let mut node = schema(&kind.schema);
    node["type"] = "object".into();
    for field in ["apiVersion", "kind"] {
        node["properties"][field] = KNOWN["properties"][field].clone();
    }
    node["properties"]["metadata"] = json!({
        "allOf": [{ "$ref": format!("#/components/schemas/{OBJECT_META}") }], "default": {},
        "description": KNOWN["properties"]["metadata"]["description"],
    });
    node["x-kubernetes-group-version-kind"] = json!([kind_entry(kind)]);
    node
}

/// A built-in kind, for what all kinds share.
static KNOWN: LazyLock<Value> = LazyLock::new(library_schema::<k8s_openapi::api::core::v1::Namespace>);

/// A schema as JSON.
fn schema(schema: &Schema) -> Value {
    let mut node = schema.raw.clone();
    if !schema.properties.is_empty() {
        let properties = schema.properties.iter().map(|(name, property)| (name.clone(), self::schema(property)));
        node.insert("properties".to_owned(), Value::Object(properties.collect()));
    }
    if let Some(items) = &schema.items {
        node.insert("items".to_owned(), self::schema(items));
    }
    if let Some(additional) = &schema.additional {
        node.insert("additionalProperties".to_owned(), self::schema(additional));
    }
    if schema.int_or_string {
        node.entry("anyOf").or_insert_with(|| json!([{ "type": "integer" }, { "type": "string" }]));
    }
    Value::Object(node)
}

/// The schema that k8s-openapi has for a type, with all that it refers to put in.
fn library_schema<T: schemars::JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("title");
        fields.remove("components");
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{planet, widget};
    use super::*;

    #[test]
    fn kubectl_finds_the_kind_and_the_field_validation_of_patches() {
        let document = document(&[&widget(), &planet()]);
        let path = &document["paths"]["/apis/d.portolan.dev/v1/namespaces/{namespace}/widgets/{name}"];
        let patch = &path["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"], kind_entry(&widget()));
        assert!(patch["parameters"].as_array().unwrap().iter().any(|parameter| parameter["name"] == "fieldValidation"));
        assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_none());
        assert!(document["paths"].get("/apis/d.portolan.dev/v1/planets/{name}").is_some());
    }

    #[test]
    fn schemas_are_those_of_the_definition_with_the_fields_of_every_object() {
        let document = document(&[&widget()]);
        let schema = &document["components"]["schemas"]["dev.portolan.d.v1.Widget"];
        assert_eq!(schema["properties"]["spec"]["properties"]["desk"]["description"], "Where it stands.");
        assert_eq!(schema["properties"]["spec"]["properties"]["tags"]["items"]["type"], "string");
        assert!(schema["properties"]["kind"]["description"].is_string());
        assert!(document["components"]["schemas"][OBJECT_META]["properties"]["uid"].is_object());
    }
}
