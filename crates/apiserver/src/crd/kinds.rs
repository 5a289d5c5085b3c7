//! The kinds that a definition serves.

use std::sync::Arc;

use serde_json::{Value, json};

use super::status::is_established;
use crate::json::{list, text};
use crate::kinds::{Column, ColumnValue, Kind, Scale};
use crate::object::meta;
use crate::schema::Schema;

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
        warning: (version["deprecated"] == json!(true)).then(|| match text(version, "/deprecationWarning") {
            "" => format!(
                "{}/{} {} is deprecated",
                text(crd, "/spec/group"),
                text(version, "/name"),
                text(names, "/kind")
            ),
            given => given.to_owned(),
        }),
        custom: true,
        defined_at: meta(crd, "resourceVersion").parse().unwrap_or_default(),
    }
}

/// The columns that a version declares; tables add a name and an age.
fn columns(version: &Value) -> Vec<Column> {
    let column = |declared: &Value| Column {
        name: text(declared, "/name").to_owned(),
        type_: text(declared, "/type").to_owned(),
        format: text(declared, "/format").to_owned(),
        description: text(declared, "/description").to_owned(),
        priority: declared["priority"].as_i64().and_then(|priority| i32::try_from(priority).ok()).unwrap_or(0),
        value: ColumnValue::Path(text(declared, "/jsonPath").to_owned()),
    };
    list(version, "/additionalPrinterColumns").iter().map(column).collect()
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
            .map(|kind| (kind.api_version(), kind.status, kind.storage_version.as_str(), kind.columns.len()))
            .collect();
        assert_eq!(
            seen,
            [("d.portolan.dev/v1".to_owned(), true, "v2", 1), ("d.portolan.dev/v2".to_owned(), false, "v2", 0)]
        );
    }
}
