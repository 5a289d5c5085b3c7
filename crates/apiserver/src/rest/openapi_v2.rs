//! OpenAPI v2, derived from the documents of v3: what kubectl needs for `kind: List`, and kubectl before 1.29 for
//! everything.

use serde_json::{Map, Value, json};

use super::negotiate::Accepted;
use super::openapi;
use crate::json;
use crate::kinds::Kind;
use crate::protobuf;
use crate::status::Failure;

/// The two names of the protobuf encoding. The first is asked for by old clients, and no valid `Content-Type`.
const PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];

/// The document of all kinds in an encoding that the client accepts, and its content type.
pub fn answer(kinds: &[&Kind], wanted: Option<&str>) -> Result<(Vec<u8>, &'static str), Failure> {
    let wanted = wanted.filter(|wanted| !wanted.is_empty()).unwrap_or("*/*");
    for choice in wanted.split(',').map(|choice| choice.split(';').next().unwrap_or_default().trim()) {
        if PROTOBUF.contains(&choice) {
            return Ok((protobuf::encode_openapi(&document(kinds)), PROTOBUF[1]));
        }
        if matches!(choice, "application/json" | "application/*" | "*/*") {
            return Ok((document(kinds).to_string().into_bytes(), Accepted::JSON.content_type()));
        }
    }
    let message = format!("OpenAPI v2 is available in JSON and protobuf, and {wanted:?} asks for neither");
    Err(Failure::new(http::StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message))
}

fn document(kinds: &[&Kind]) -> Value {
    let mut v3 = openapi::document(kinds);
    let mut definitions = Map::new();
    if let Some(schemas) = v3["components"]["schemas"].as_object_mut() {
        for (name, schema) in std::mem::take(schemas) {
            let schema = definition(&name, schema);
            definitions.insert(name, schema);
        }
    }
    let mut paths = Map::new();
    if let Some(of_v3) = v3["paths"].as_object_mut() {
        for (path, mut item) in std::mem::take(of_v3) {
            paths.insert(path, json!({ "patch": operation(item["patch"].take()) }));
        }
    }
    json!({ "swagger": "2.0", "info": v3["info"].take(), "paths": paths, "definitions": definitions })
}

/// The operation with its query parameters, and the types of bodies that it consumes.
fn operation(mut v3: Value) -> Value {
    let parameter =
        |parameter: &Value| json!({ "name": parameter["name"], "in": "query", "type": "string", "uniqueItems": true });
    let parameters: Vec<Value> = v3["parameters"].as_array().into_iter().flatten().map(parameter).collect();
    let content = v3.pointer("/requestBody/content").and_then(Value::as_object);
    let consumes: Vec<&String> = content.into_iter().flat_map(Map::keys).collect();
    let mut v2 = json!({ "consumes": consumes, "parameters": parameters });
    for field in ["responses", "x-kubernetes-action", "x-kubernetes-group-version-kind"] {
        v2[field] = v3[field].take();
    }
    v2
}

/// A schema of v3 in the words of v2, which has no choices and no null, as the real server converts it for kubectl.
fn converted(schema: Value) -> Value {
    let Value::Object(mut fields) = schema else { return schema };
    // `$ref` has its description beside it.
    if let Some(reference) = fields.remove("allOf").and_then(|all| all.get(0)?.get("$ref").cloned()) {
        fields.insert("$ref".to_owned(), reference);
        fields.remove("default");
    }
    if let Some(Value::String(reference)) = fields.get_mut("$ref") {
        *reference = reference.replace("#/components/schemas/", "#/definitions/");
    }
    for choice in ["anyOf", "oneOf", "not"] {
        fields.remove(choice);
    }
    let has = |fields: &Map<String, Value>, mark: &str| fields.get(mark).is_some_and(|set| *set == true);
    let (nullable, open) = (has(&fields, "nullable"), has(&fields, "x-kubernetes-preserve-unknown-fields"));
    fields.remove("nullable");
    // kubectl reads a value without a type as anything, and cannot read one with a type and unknown fields.
    if nullable || open {
        fields.remove("items");
        fields.remove("properties");
    }
    let is = |type_: &str| fields.get("type").is_some_and(|own| own == type_);
    if nullable || (open && is("object")) || (is("array") && !fields.contains_key("items")) {
        fields.remove("type");
    }
    let mut optional = Vec::new();
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        for (name, inner) in properties {
            if inner["nullable"] == true {
                optional.push(Value::from(name.as_str()));
            }
            *inner = converted(inner.take());
        }
    }
    if let Some(Value::Array(required)) = fields.get_mut("required") {
        required.retain(|name| !optional.contains(name));
    }
    if fields.get("required").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        fields.remove("required");
    }
    for field in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(field) {
            *inner = converted(inner.take());
        }
    }
    fields.into()
}

/// A definition: a kind that keeps unknown fields is an object of any, and numbers that are written as texts are texts.
fn definition(name: &str, schema: Value) -> Value {
    const KIND: &str = "x-kubernetes-group-version-kind";
    if schema["x-kubernetes-preserve-unknown-fields"] == true && schema[KIND].is_array() {
        return json!({ "type": "object", KIND: schema[KIND] });
    }
    let mut schema = converted(schema);
    let format = match name.rsplit('.').next() {
        Some("IntOrString") => Some("int-or-string"),
        Some("Quantity") => None,
        _ => return schema,
    };
    json::put(&mut schema, "type", "string");
    if let Some(format) = format {
        json::put(&mut schema, "format", format);
    }
    json::remove(&mut schema, "x-kubernetes-int-or-string");
    schema
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::widget;
    use super::*;
    use crate::kinds::builtin;

    #[test]
    fn definitions_refer_to_one_another_in_the_words_of_v2() {
        let kinds = builtin::all();
        let widget = widget();
        let kinds: Vec<&Kind> = kinds.iter().chain([&widget]).collect();
        let document = document(&kinds);
        let definitions = document["definitions"].as_object().unwrap();
        let pod = &definitions["io.k8s.api.core.v1.Pod"];
        assert_eq!(pod["properties"]["spec"]["$ref"], "#/definitions/io.k8s.api.core.v1.PodSpec");
        assert!(pod["properties"]["spec"]["description"].is_string());
        assert_eq!(pod["x-kubernetes-group-version-kind"][0]["kind"], "Pod");
        assert!(definitions.contains_key("dev.portolan.d.v1.Widget"));
        let text = document.to_string();
        assert!(!text.contains("#/components/") && !text.contains("\"allOf\":[{\"$ref\""));
        for part in text.split("#/definitions/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(definitions.contains_key(name), "{name} is not there");
        }
    }

    #[test]
    fn what_v2_cannot_say_is_left_out() {
        let schema = json!({
            "type": "object", "required": ["a", "b"],
            "properties": {
                "a": { "anyOf": [{ "type": "integer" }, { "type": "boolean" }] },
                "b": { "type": "object", "nullable": true, "properties": { "x": { "type": "string" } } },
                "c": { "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "x": {} } },
                "d": { "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true },
            },
        });
        let expected = json!({
            "type": "object", "required": ["a"],
            "properties": {
                "a": {}, "b": {}, "c": { "x-kubernetes-preserve-unknown-fields": true },
                "d": { "x-kubernetes-int-or-string": true },
            },
        });
        assert_eq!(definition("dev.portolan.d.v1.Widget", schema), expected);
        let number = json!({ "x-kubernetes-int-or-string": true });
        assert_eq!(
            definition("io.k8s.apimachinery.pkg.util.intstr.IntOrString", number),
            json!({ "type": "string", "format": "int-or-string" })
        );
    }

    #[test]
    fn patches_say_what_they_take() {
        let document = document(&[&widget()]);
        let patch = &document["paths"]["/apis/d.portolan.dev/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Widget");
        assert!(patch["parameters"].as_array().unwrap().iter().any(|parameter| parameter["name"] == "fieldValidation"));
        assert!(patch["consumes"].as_array().unwrap().contains(&json!("application/merge-patch+json")));
    }

    #[test]
    fn the_encoding_is_the_one_that_is_asked_for() {
        let widget = widget();
        let ask = |wanted| answer(&[&widget], Some(wanted)).map(|(_, type_)| type_);
        for name in PROTOBUF {
            assert_eq!(ask(name), Ok(PROTOBUF[1]));
        }
        assert_eq!(ask("application/json, */*"), Ok("application/json"));
        assert_eq!(ask("text/plain").unwrap_err().code, 406);
    }
}
