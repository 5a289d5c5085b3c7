//! OpenAPI v3: an index, and one document per group and version, for `kubectl explain` and `apply`.
//!
//! Documents say what clients look at: the schemas with their kinds, and per path the operations with the parameters that
//! tell a client what it may leave to the server. Callers keep documents until their kinds change.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::discovery::fingerprint;
use crate::kinds::Kind;
use crate::kinds::openapi::openapi_of;
use crate::schema::Schema;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// The path of a document, as the index names it: `api/v1` or `apis/G/V`.
pub fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `/openapi/v3`: each document with its [`hash`].
pub fn index<'d>(documents: impl IntoIterator<Item = (&'d str, &'d str)>) -> Value {
    let paths: Map<String, Value> = documents
        .into_iter()
        .map(|(path, hash)| {
            let url = format!("/openapi/v3/{path}?hash={hash}");
            (path.to_owned(), json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

/// The hash of a document: its `ETag`, and what the index sends clients to.
pub fn hash(document: &Value) -> String {
    fingerprint(document)
}

/// The document of one group and version; `kinds` are those of it.
pub fn document(kinds: &[&Kind]) -> Value {
    let mut schemas = shared_schemas(kinds);
    let mut paths = Map::new();
    for kind in kinds {
        let name = if let Some((name, definitions)) = openapi_of(kind) {
            schemas.extend(definitions);
            name
        } else {
            let name = schema_name(kind, &kind.kind);
            schemas.insert(name.clone(), object_schema(kind));
            name
        };
        schemas.insert(schema_name(kind, &kind.list_kind), list_schema(kind, &name));
        add_paths(kind, &mut paths);
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

/// A schema as JSON.
pub fn schema(schema: &Schema) -> Value {
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

/// `dev.portolan.d.v1.Widget`, `io.k8s.api.core.v1.Pod`.
fn schema_name(kind: &Kind, name: &str) -> String {
    let package = match kind.group.as_str() {
        "" => "io.k8s.api.core".to_owned(),
        "apiextensions.k8s.io" => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions".to_owned(),
        group if kind.custom => group.split('.').rev().collect::<Vec<_>>().join("."),
        group => format!("io.k8s.api.{}", group.split('.').next().unwrap_or_default()),
    };
    format!("{package}.{}.{name}", kind.version)
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn kind_entry(kind: &Kind, name: &str) -> Value {
    json!({ "group": kind.group, "version": kind.version, "kind": name })
}

fn object_schema(kind: &Kind) -> Value {
    let mut node = schema(&kind.schema);
    node["type"] = "object".into();
    add_type_fields(&mut node);
    node["properties"]["metadata"] = json!({
        "allOf": [reference(OBJECT_META)], "default": {},
        "description": KNOWN["properties"]["metadata"]["description"],
    });
    node["x-kubernetes-group-version-kind"] = json!([kind_entry(kind, &kind.kind)]);
    if kind.custom && !kind.selectable_fields.is_empty() {
        let fields = kind.selectable_fields.iter().map(|field| json!({ "fieldPath": field.trim_start_matches('.') }));
        node["x-kubernetes-selectable-fields"] = fields.collect();
    }
    node
}

fn list_schema(kind: &Kind, item: &str) -> Value {
    let mut node = json!({
        "type": "object", "description": format!("{} is a list of {}", kind.list_kind, kind.kind), "required": ["items"],
        "properties": {
            "items": { "type": "array", "items": reference(item), "description": format!("List of {}.", kind.plural) },
            "metadata": { "allOf": [reference(LIST_META)], "description": "Standard list metadata." },
        },
        "x-kubernetes-group-version-kind": [kind_entry(kind, &kind.list_kind)],
    });
    add_type_fields(&mut node);
    node
}

/// `apiVersion` and `kind`, documented as every built-in kind documents them.
fn add_type_fields(node: &mut Value) {
    for field in ["apiVersion", "kind"] {
        node["properties"][field] = KNOWN["properties"][field].clone();
    }
}

/// A built-in kind, for what all kinds share.
static KNOWN: LazyLock<Value> = LazyLock::new(library_schema::<k8s_openapi::api::core::v1::Namespace>);

fn shared_schemas(kinds: &[&Kind]) -> Map<String, Value> {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
    let mut shared = vec![
        (OBJECT_META, object_meta()),
        (LIST_META, library_schema::<meta::ListMeta>()),
        (DELETE_OPTIONS, library_schema::<meta::DeleteOptions>()),
        (STATUS, library_schema::<meta::Status>()),
        (PATCH, json!({ "type": "object", "description": "A patch, in the form that its content type says." })),
    ];
    if kinds.iter().any(|kind| kind.scale.is_some()) {
        let mut scale = library_schema::<k8s_openapi::api::autoscaling::v1::Scale>();
        let entry = json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" });
        scale["x-kubernetes-group-version-kind"] = json!([entry]);
        shared.push((SCALE, scale));
    }
    shared.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
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

fn add_paths(kind: &Kind, paths: &mut Map<String, Value>) {
    let base = format!("/{}", document_path(&kind.group, &kind.version));
    let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    let all = format!("{base}/{}", kind.plural);
    let collection = format!("{base}{scope}/{}", kind.plural);
    let whole = schema_name(kind, &kind.kind);
    let own = Operations { kind, schema: &whole, entry: kind_entry(kind, &kind.kind), part: "" };

    let mut item = own.item();
    item["delete"] = own.operation("delete", "delete", &DELETE_PARAMETERS, Some(DELETE_OPTIONS), STATUS);
    let mut collective = json!({
        "get": own.list("list"),
        "post": own.operation("post", "create", &WRITE_PARAMETERS, Some(&whole), &whole),
    });
    collective["delete"] =
        own.operation("deletecollection", "deletecollection", &LIST_PARAMETERS, Some(DELETE_OPTIONS), STATUS);
    add_parameters(&mut collective, kind.namespaced, false);
    paths.insert(collection.clone(), collective);
    if kind.namespaced {
        paths.insert(all, json!({ "get": own.list("listForAllNamespaces") }));
    }
    add_parameters(&mut item, kind.namespaced, true);
    paths.insert(format!("{collection}/{{name}}"), item);
    let scale = json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" });
    for (name, served, schema, entry) in [
        ("status", kind.status, whole.as_str(), kind_entry(kind, &kind.kind)),
        ("scale", kind.scale.is_some(), SCALE, scale),
    ] {
        if served {
            let mut part = Operations { kind, schema, entry, part: name }.item();
            add_parameters(&mut part, kind.namespaced, true);
            paths.insert(format!("{collection}/{{name}}/{name}"), part);
        }
    }
}

/// What can be done at the paths of a kind, or of one of its subresources.
struct Operations<'k> {
    kind: &'k Kind,
    schema: &'k str,
    entry: Value,
    part: &'static str,
}

/// Name and type of query parameters.
type Parameters = [(&'static str, &'static str)];
const WRITE_PARAMETERS: [(&str, &str); 3] =
    [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const PATCH_PARAMETERS: [(&str, &str); 4] =
    [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];
const DELETE_PARAMETERS: [(&str, &str); 4] = [
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const LIST_PARAMETERS: [(&str, &str); 10] = [
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];

impl Operations<'_> {
    fn item(&self) -> Value {
        json!({
            "get": self.operation("get", "read", &[], None, self.schema),
            "put": self.operation("put", "replace", &WRITE_PARAMETERS, Some(self.schema), self.schema),
            "patch": self.operation("patch", "patch", &PATCH_PARAMETERS, Some(PATCH), self.schema),
        })
    }

    fn list(&self, verb: &str) -> Value {
        let list = schema_name(self.kind, &self.kind.list_kind);
        self.operation("list", verb, &LIST_PARAMETERS, None, &list)
    }

    fn operation(&self, action: &str, verb: &str, parameters: &Parameters, body: Option<&str>, answer: &str) -> Value {
        let parameters: Vec<Value> = parameters
            .iter()
            .map(|(name, type_)| json!({ "name": name, "in": "query", "schema": { "type": type_, "uniqueItems": true } }))
            .collect();
        let Kind { group, version, kind, .. } = self.kind;
        let id: String = [verb, group, version, kind, self.part].map(capital).concat();
        let mut operation = json!({
            "operationId": format!("{}{}", verb, &id[verb.len()..]), "parameters": parameters,
            "responses": { "200": { "description": "OK", "content": content(&["application/json", "application/yaml"], answer) } },
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": self.entry,
        });
        if let Some(body) = body {
            let forms: &[&str] = match (action, self.kind.custom) {
                ("patch", true) => &PATCH_FORMS[..3],
                ("patch", false) => &PATCH_FORMS,
                _ => &["application/json", "application/yaml"],
            };
            let required = !action.starts_with("delete");
            operation["requestBody"] = json!({ "content": content(forms, body), "required": required });
        }
        operation
    }
}

const PATCH_FORMS: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

fn content(forms: &[&str], schema: &str) -> Value {
    let forms = forms.iter().map(|form| ((*form).to_owned(), json!({ "schema": reference(schema) })));
    Value::Object(forms.collect())
}

/// `d.portolan.dev` becomes `DPortolanDev`.
fn capital(text: &str) -> String {
    let words = text.split(['.', '-']).filter(|word| !word.is_empty());
    words.map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

fn add_parameters(path: &mut Value, namespaced: bool, named: bool) {
    let parameters: Vec<Value> = [("name", named), ("namespace", namespaced)]
        .into_iter()
        .filter(|(_, wanted)| *wanted)
        .map(|(name, _)| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "uniqueItems": true } }))
        .collect();
    path["parameters"] = parameters.into();
}

#[cfg(test)]
mod tests;
