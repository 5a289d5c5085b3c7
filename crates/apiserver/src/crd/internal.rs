//! Parts of a definition as Kubernetes' internal types print them in messages.

use serde_json::Value;

use crate::schema::fault::go_json;

/// Fields of the internal schema, in order: Go's name, the JSON name, and what an unset one prints.
const FIELDS: [(&str, &str, &str); 44] = [
    ("ID", "id", "\"\""),
    ("Schema", "$schema", "\"\""),
    ("Ref", "$ref", "null"),
    ("Description", "description", "\"\""),
    ("Type", "type", "\"\""),
    ("Nullable", "nullable", "false"),
    ("Format", "format", "\"\""),
    ("Title", "title", "\"\""),
    ("Default", "default", "null"),
    ("Maximum", "maximum", "null"),
    ("ExclusiveMaximum", "exclusiveMaximum", "false"),
    ("Minimum", "minimum", "null"),
    ("ExclusiveMinimum", "exclusiveMinimum", "false"),
    ("MaxLength", "maxLength", "null"),
    ("MinLength", "minLength", "null"),
    ("Pattern", "pattern", "\"\""),
    ("MaxItems", "maxItems", "null"),
    ("MinItems", "minItems", "null"),
    ("UniqueItems", "uniqueItems", "false"),
    ("MultipleOf", "multipleOf", "null"),
    ("Enum", "enum", "null"),
    ("MaxProperties", "maxProperties", "null"),
    ("MinProperties", "minProperties", "null"),
    ("Required", "required", "null"),
    ("Items", "items", "null"),
    ("AllOf", "allOf", "null"),
    ("OneOf", "oneOf", "null"),
    ("AnyOf", "anyOf", "null"),
    ("Not", "not", "null"),
    ("Properties", "properties", "null"),
    ("AdditionalProperties", "additionalProperties", "null"),
    ("PatternProperties", "patternProperties", "null"),
    ("Dependencies", "dependencies", "null"),
    ("AdditionalItems", "additionalItems", "null"),
    ("Definitions", "definitions", "null"),
    ("ExternalDocs", "externalDocs", "null"),
    ("Example", "example", "null"),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", "null"),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", "false"),
    ("XIntOrString", "x-kubernetes-int-or-string", "false"),
    ("XListMapKeys", "x-kubernetes-list-map-keys", "null"),
    ("XListType", "x-kubernetes-list-type", "null"),
    ("XMapType", "x-kubernetes-map-type", "null"),
    ("XValidations", "x-kubernetes-validations", "null"),
];

pub(super) fn schema(node: &Value) -> String {
    let field = |(go, json, unset): &(&str, &str, &str)| {
        let shown = match node.get(*json).filter(|value| !value.is_null()) {
            None => (*unset).to_owned(),
            Some(value) => match *go {
                "Not" => schema(value),
                "Items" => format!("{{\"Schema\":{},\"JSONSchemas\":null}}", schema(value)),
                "AllOf" | "OneOf" | "AnyOf" => array(value, schema),
                "Properties" | "PatternProperties" | "Definitions" => map(value),
                "AdditionalProperties" | "AdditionalItems" => match value.as_bool() {
                    Some(allows) => format!("{{\"Allows\":{allows},\"Schema\":null}}"),
                    None => format!("{{\"Allows\":true,\"Schema\":{}}}", schema(value)),
                },
                "XValidations" => array(value, rule),
                _ => go_json(value),
            },
        };
        format!("\"{go}\":{shown}")
    };
    format!("{{{}}}", FIELDS.iter().map(field).collect::<Vec<_>>().join(","))
}

pub(super) fn rule(rule: &Value) -> String {
    let text = |name: &str| go_json(rule.get(name).unwrap_or(&Value::String(String::new())));
    let pointer = |name: &str| go_json(rule.get(name).unwrap_or(&Value::Null));
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        pointer("reason"),
        text("fieldPath"),
        pointer("optionalOldSelf"),
    )
}

/// Versions whose common parts were moved up, named in `hoisted`.
pub(super) fn versions(versions: &[Value], hoisted: &[&str]) -> String {
    let version = |version: &Value| {
        let own = |name: &str| version.get(name).filter(|value| !value.is_null() && !hoisted.contains(&name));
        let flag = |name: &str| version.get(name).and_then(Value::as_bool).unwrap_or(false);
        let text = |value: &Value, name: &str| go_json(value.get(name).unwrap_or(&Value::String(String::new())));
        let or_null = |shown: Option<String>| shown.unwrap_or_else(|| "null".to_owned());
        let column = |column: &Value| {
            let priority = column.get("priority").and_then(Value::as_i64).unwrap_or(0);
            format!(
                "{{\"Name\":{},\"Type\":{},\"Format\":{},\"Description\":{},\"Priority\":{priority},\"JSONPath\":{}}}",
                text(column, "name"),
                text(column, "type"),
                text(column, "format"),
                text(column, "description"),
                text(column, "jsonPath"),
            )
        };
        let subresources = |value: &Value| {
            let status = if value.get("status").is_some_and(Value::is_object) { "{}" } else { "null" };
            let scale = value.get("scale").map(|scale| {
                format!(
                    "{{\"SpecReplicasPath\":{},\"StatusReplicasPath\":{},\"LabelSelectorPath\":{}}}",
                    text(scale, "specReplicasPath"),
                    text(scale, "statusReplicasPath"),
                    go_json(scale.get("labelSelectorPath").unwrap_or(&Value::Null)),
                )
            });
            format!("{{\"Status\":{status},\"Scale\":{}}}", or_null(scale))
        };
        let selectable = |field: &Value| format!("{{\"JSONPath\":{}}}", text(field, "jsonPath"));
        format!(
            "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{},\"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
            text(version, "name"),
            flag("served"),
            flag("storage"),
            flag("deprecated"),
            go_json(version.get("deprecationWarning").unwrap_or(&Value::Null)),
            or_null(
                own("schema").map(|value| format!(
                    "{{\"OpenAPIV3Schema\":{}}}",
                    or_null(value.get("openAPIV3Schema").map(schema))
                ))
            ),
            or_null(own("subresources").map(subresources)),
            or_null(own("additionalPrinterColumns").map(|value| array(value, column))),
            or_null(own("selectableFields").map(|value| array(value, selectable))),
        )
    };
    format!("[{}]", versions.iter().map(version).collect::<Vec<_>>().join(","))
}

fn array(value: &Value, show: impl Fn(&Value) -> String) -> String {
    let shown: Vec<String> = value.as_array().into_iter().flatten().map(show).collect();
    format!("[{}]", shown.join(","))
}

fn map(value: &Value) -> String {
    let fields = value.as_object().into_iter().flatten();
    let shown: Vec<String> =
        fields.map(|(name, value)| format!("{}:{}", go_json(&name.as_str().into()), schema(value))).collect();
    format!("{{{}}}", shown.join(","))
}
