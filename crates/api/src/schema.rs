//! Pieces of schema that several kinds share, and the finish that every definition gets.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use schemars::{Schema, SchemaGenerator, json_schema};

/// Conditions, one per type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": { "type": "string", "maxLength": 316 },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "reason": { "type": "string", "minLength": 1, "maxLength": 1024 },
                "message": { "type": "string", "maxLength": 32768 }
            }
        }
    })
}

/// A label selector, as Kubernetes has it, with bounds that keep CEL rules cheap.
pub(crate) fn selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": { "type": "object", "additionalProperties": { "type": "string" } },
            "matchExpressions": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string" },
                        "operator": { "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"] },
                        "values": { "type": "array", "x-kubernetes-list-type": "atomic", "items": { "type": "string" } }
                    }
                }
            }
        }
    })
}

/// CIDRs, at most 1,000.
pub(crate) fn subnets(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 1000,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "string",
            "maxLength": 49,
            "x-kubernetes-validations": [
                { "rule": "isCIDR(self)", "message": "not a CIDR: write it like 10.1.0.0/16 or fd00:1::/64" }
            ]
        }
    })
}

/// CIDRs, at least one.
pub(crate) fn some_subnets(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = subnets(generator);
    schema.insert("minItems".to_owned(), 1.into());
    schema
}

/// A duration as Go writes it.
pub(crate) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "pattern": r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"
    })
}

/// As the original has it: `metadata` is required at the top level. Where an empty spec will do, one that is missing
/// is read as empty.
pub(crate) fn finished(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut definition.spec.versions {
        let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) else {
            continue;
        };
        let properties = schema.properties.get_or_insert_default();
        let object = JSONSchemaProps { type_: Some("object".to_owned()), ..JSONSchemaProps::default() };
        properties.insert("metadata".to_owned(), object);
        let mut required = vec!["metadata".to_owned()];
        match properties.get_mut("spec") {
            Some(spec)
                if spec.x_kubernetes_validations.is_none() && spec.required.as_ref().is_none_or(Vec::is_empty) =>
            {
                spec.default = Some(JSON(serde_json::json!({})));
            }
            Some(_) => required.push("spec".to_owned()),
            None => {}
        }
        schema.required = Some(required);
        drop_unknown_formats(schema);
    }
    definition
}

/// API servers know `int32` and `int64` alone and warn of others; the limits stand beside the format.
fn drop_unknown_formats(schema: &mut JSONSchemaProps) {
    if schema.format.as_deref().is_some_and(|format| format.starts_with("uint")) {
        schema.format = None;
    }
    let properties = schema.properties.iter_mut().flat_map(BTreeMap::values_mut);
    properties.for_each(drop_unknown_formats);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        drop_unknown_formats(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        drop_unknown_formats(values);
    }
}

/// Adds a rule on the whole object, which may speak of `metadata.name`.
pub(crate) fn ruled(mut definition: CustomResourceDefinition, rule: &str, message: &str) -> CustomResourceDefinition {
    for version in &mut definition.spec.versions {
        let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) else {
            continue;
        };
        let rule =
            ValidationRule { rule: rule.to_owned(), message: Some(message.to_owned()), ..ValidationRule::default() };
        schema.x_kubernetes_validations.get_or_insert_default().push(rule);
    }
    definition
}
