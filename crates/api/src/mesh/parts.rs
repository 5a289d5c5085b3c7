//! Pieces of schema that the mesh kinds share.

use schemars::{Schema, json_schema};
use serde_json::{Value, json};

/// A field whose dialects have no type in common.
pub(super) fn anything(description: &str) -> Value {
    json!({ "description": description, "x-kubernetes-preserve-unknown-fields": true })
}

/// An object of which only some fields are known here.
pub(super) fn open_object(description: &str, properties: &Value) -> Value {
    json!({
        "description": description,
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": properties,
    })
}

/// A number from 1 to 65535, or the same as a string.
pub(super) fn port(description: &str) -> Value {
    json!({
        "description": description,
        "x-kubernetes-int-or-string": true,
        "x-kubernetes-validations": [{
            "rule": "type(self) == int ? self >= 1 && self <= 65535 \
                     : self.matches('^[0-9]{1,5}$') && int(self) >= 1 && int(self) <= 65535",
            "message": "not a port number: write a number from 1 to 65535, and nothing after it (no comma)",
        }],
    })
}

/// Pods, by what is known of them.
pub(super) fn selector(description: &str) -> Value {
    let mut schema = selector_terms(description);
    schema["properties"]["anyOf"] = json!({
        "description": "Alternatives: a pod that matches the other terms must match at least one of these.",
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "atomic",
        "items": selector_terms("One alternative."),
    });
    schema
}

fn selector_terms(description: &str) -> Value {
    json!({
        "description": description,
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "matchLabels": {
                "description": "Labels that a pod must have.",
                "type": "object",
                "additionalProperties": { "type": "string" },
            },
            "matchExpressions": expressions("Terms on labels: In, NotIn, Exists, DoesNotExist."),
            "matchFields": expressions(
                "Terms on fields: metadata.name, metadata.namespace, spec.nodeName, spec.serviceAccountName, \
                 status.podIP, status.hostIP. In, NotIn, Exists, DoesNotExist, Gt, Lt.",
            ),
            "matchNamespace": {
                "description": "Pods of this namespace, which must allow it with the annotation \
                                l7mp.io/allow-config-from. Empty means the object's own.",
                "type": "string",
            },
            "matchService": {
                "description": "Pods of this Service, or those that the VirtualService of this name selects.",
                "type": "string",
            },
            "serviceName": { "description": "The older spelling of matchService.", "type": "string" },
        },
    })
}

fn expressions(description: &str) -> Value {
    json!({
        "description": description,
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": { "description": "Name of the label or field.", "type": "string" },
                "operator": { "description": "How values are compared.", "type": "string" },
                "values": {
                    "description": "Values to compare with; none for Exists and DoesNotExist.",
                    "type": "array",
                    "x-kubernetes-list-type": "atomic",
                    "items": { "type": "string" },
                },
            },
        },
    })
}

/// How connections are encrypted.
pub(super) fn tls(description: &str) -> Value {
    open_object(
        description,
        &json!({
            "mode": { "description": "None, Simple or Mutual.", "type": "string", "enum": ["None", "Simple", "Mutual"] },
            "secretName": { "description": "Secret with the certificate and its key.", "type": "string" },
            "caSecretName": { "description": "Secret with the trusted certificate authorities.", "type": "string" },
            "sni": { "description": "Server name (SNI) to send.", "type": "string" },
            "minVersion": { "description": "Lowest TLS version to accept.", "type": "string" },
        }),
    )
}

/// Rates and marks.
pub(super) fn qos(description: &str) -> Value {
    open_object(
        description,
        &json!({
            "packetsPerSecond": { "description": "Packets per second.", "type": "number", "minimum": 0 },
            "bytesPerSecond": { "description": "Bytes per second.", "type": "number", "minimum": 0 },
            "burst": { "description": "Burst size in packets.", "type": "number", "minimum": 0 },
            "perSource": anything("The same rates, for each source address."),
            "dscp": { "description": "DSCP of sent packets.", "type": "integer", "minimum": 0, "maximum": 63 },
            "priority": { "description": "Priority of sent packets.", "type": "integer" },
            "dropPolicy": {
                "description": "Which packets are dropped above the rate: the newest or the oldest.",
                "type": "string",
                "enum": ["newest", "oldest"],
            },
        }),
    )
}

/// The schema of a spec.
pub(super) fn spec(description: &str, required: &[&str], properties: &Value) -> Schema {
    json_schema!({
        "description": description,
        "type": "object",
        "required": required,
        "properties": properties,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}
