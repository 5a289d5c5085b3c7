//! CustomResourceDefinitions: defaulted, judged, and turned into served kinds.

pub mod definition;
mod internal;
mod openapi;
#[cfg(test)]
mod recorded;
mod scale;
pub mod status;
mod structural;
mod tidy;

use std::sync::Arc;

use serde_json::{Value, json};

pub use definition::validate_definition;
pub use scale::scale_faults;
pub use status::{CLEANUP, Names, conditions, is_established, prepare, terminate};
pub use tidy::defaulted;

use crate::kinds::{Column, ColumnValue, Kind, Scale};
use crate::schema::Schema;

const NAME_COLUMN: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources \
    may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation \
    idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const AGE_COLUMN: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not \
    guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented \
    in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The kinds of a definition, one per served version, by its accepted names; none until it is established.
pub fn kinds(crd: &Value) -> Vec<Kind> {
    if !is_established(crd) {
        return Vec::new();
    }
    let versions = list(crd, "/spec/versions");
    let storage = versions.iter().find(|version| version["storage"] == json!(true));
    let storage = storage.map_or_else(String::new, |version| text(version, "/name").to_owned());
    let served = versions.iter().filter(|version| version["served"] == json!(true));
    served.map(|version| kind(crd, version, &storage)).collect()
}

/// Conversion between versions of a kind with strategy `None`: the contents stay.
pub fn convert(object: &mut Value, to_api_version: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), to_api_version.into());
    }
}

fn kind(crd: &Value, version: &Value, storage: &str) -> Kind {
    let names = crd.pointer("/status/acceptedNames").unwrap_or(&Value::Null);
    let strings = |path| list(names, path).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let scale = version.pointer("/subresources/scale").filter(|scale| scale.is_object());
    Kind {
        group: text(crd, "/spec/group").to_owned(),
        version: text(version, "/name").to_owned(),
        kind: text(names, "/kind").to_owned(),
        list_kind: text(names, "/listKind").to_owned(),
        plural: text(names, "/plural").to_owned(),
        singular: text(names, "/singular").to_owned(),
        short_names: strings("/shortNames"),
        categories: strings("/categories"),
        namespaced: text(crd, "/spec/scope") == "Namespaced",
        status: version.pointer("/subresources/status").is_some_and(Value::is_object),
        scale: scale.map(|scale| Scale {
            spec_replicas: text(scale, "/specReplicasPath").to_owned(),
            status_replicas: text(scale, "/statusReplicasPath").to_owned(),
            label_selector: Some(text(scale, "/labelSelectorPath")).filter(|path| !path.is_empty()).map(str::to_owned),
        }),
        schema: Arc::new(version.pointer("/schema/openAPIV3Schema").map_or_else(Schema::default, Schema::parse)),
        columns: columns(version),
        selectable_fields: list(version, "/selectableFields")
            .iter()
            .map(|field| text(field, "/jsonPath").trim_start_matches('.').to_owned())
            .collect(),
        storage_version: storage.to_owned(),
        warning: (version["deprecated"] == json!(true)).then(|| warning(crd, version)),
        custom: true,
    }
}

fn warning(crd: &Value, version: &Value) -> String {
    match text(version, "/deprecationWarning") {
        "" => format!(
            "{}/{} {} is deprecated",
            text(crd, "/spec/group"),
            text(version, "/name"),
            text(crd, "/status/acceptedNames/kind")
        ),
        given => given.to_owned(),
    }
}

fn columns(version: &Value) -> Vec<Column> {
    let column = |name: &str, type_: &str, format: &str, description: &str, priority, path: &str| Column {
        name: name.to_owned(),
        type_: type_.to_owned(),
        format: format.to_owned(),
        description: description.to_owned(),
        priority,
        value: ColumnValue::Path(path.to_owned()),
    };
    let mut columns = vec![column("Name", "string", "name", NAME_COLUMN, 0, ".metadata.name")];
    let declared = list(version, "/additionalPrinterColumns");
    if declared.is_empty() {
        columns.push(column("Age", "date", "", AGE_COLUMN, 0, ".metadata.creationTimestamp"));
    }
    columns.extend(declared.iter().map(|own| {
        let path = text(own, "/jsonPath");
        let description = match text(own, "/description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            given => given.to_owned(),
        };
        let priority = own["priority"].as_i64().and_then(|priority| i32::try_from(priority).ok()).unwrap_or(0);
        column(text(own, "/name"), text(own, "/type"), text(own, "/format"), &description, priority, path)
    }));
    columns
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_served_version_of_an_established_definition_is_a_kind() {
        let mut crd = json!({
            "spec": { "group": "d.portolan.dev", "scope": "Cluster", "names": { "kind": "Oar", "plural": "oars" }, "versions": [
                { "name": "v1", "served": true, "storage": false, "subresources": { "status": {} },
                  "additionalPrinterColumns": [{ "name": "Desk", "type": "string", "jsonPath": ".spec.desk", "priority": 1 }] },
                { "name": "v2", "served": true, "storage": true },
                { "name": "v3", "served": false, "storage": false },
            ] },
            "status": { "acceptedNames": { "kind": "Oar", "listKind": "OarList", "plural": "oars", "singular": "oar", "shortNames": ["o"] } },
        });
        assert!(kinds(&crd).is_empty(), "not established");
        crd["status"]["conditions"] = json!([{ "type": "Established", "status": "True" }]);
        let kinds = kinds(&crd);
        let seen: Vec<_> = kinds
            .iter()
            .map(|kind| (kind.api_version(), kind.status, kind.storage_version.as_str(), kind.columns[1].name.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                ("d.portolan.dev/v1".to_owned(), true, "v2", "Desk"),
                ("d.portolan.dev/v2".to_owned(), false, "v2", "Age")
            ]
        );
        assert_eq!(
            kinds[0].columns[1].description,
            "Custom resource definition column (in JSONPath format): .spec.desk"
        );
    }

    #[test]
    fn conversion_touches_the_version_only() {
        let mut object = json!({ "apiVersion": "d.portolan.dev/v1", "kind": "Oar", "spec": { "x": 1 } });
        convert(&mut object, "d.portolan.dev/v2");
        assert_eq!(object, json!({ "apiVersion": "d.portolan.dev/v2", "kind": "Oar", "spec": { "x": 1 } }));
    }
}
