//! Kinds for the tests of this folder; the custom ones were also made on the real server whose answers are expected.

use std::sync::Arc;

use serde_json::json;

use crate::kinds::{Column, ColumnValue, Kind, Scale};
use crate::schema::{Schema, Type};

pub(crate) fn builtin_kind(group: &str, plural: &str, kind: &str, namespaced: bool) -> Kind {
    Kind {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced,
        status: true,
        scale: None,
        schema: Arc::default(),
        columns: Vec::new(),
        selectable_fields: Vec::new(),
        storage_version: "v1".to_owned(),
        warning: None,
        custom: false,
        defined_at: 0,
    }
}

pub(crate) fn planet() -> Kind {
    Kind { custom: true, status: false, ..builtin_kind("d.portolan.dev", "planets", "Planet", false) }
}

pub(crate) fn widget() -> Kind {
    let node = |type_: Type, raw: serde_json::Value| {
        let serde_json::Value::Object(raw) = raw else { panic!("raw is a map") };
        Schema { type_: Some(type_), raw, ..Schema::default() }
    };
    let desk = node(Type::String, json!({ "type": "string", "description": "Where it stands." }));
    let mut spec = node(Type::Object, json!({ "type": "object", "required": ["desk"] }));
    spec.properties.insert("desk".to_owned(), desk);
    let mut tags = node(Type::Array, json!({ "type": "array", "x-kubernetes-list-type": "set" }));
    tags.items = Some(Box::new(node(Type::String, json!({ "type": "string" }))));
    spec.properties.insert("tags".to_owned(), tags);
    let mut schema = node(Type::Object, json!({ "type": "object", "description": "A widget." }));
    schema.properties.insert("spec".to_owned(), spec);
    Kind {
        custom: true,
        short_names: vec!["wd".to_owned()],
        categories: vec!["all".to_owned(), "dd".to_owned()],
        scale: Some(Scale {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: Some(".status.selector".to_owned()),
        }),
        schema: Arc::new(schema),
        columns: columns(),
        selectable_fields: vec!["spec.desk".to_owned()],
        ..builtin_kind("d.portolan.dev", "widgets", "Widget", true)
    }
}

fn columns() -> Vec<Column> {
    [
        ("Desk", "string", ".spec.desk"),
        ("N", "integer", ".spec.replicas"),
        ("F", "number", ".spec.f"),
        ("B", "boolean", ".spec.b"),
        ("When", "date", ".spec.when"),
        ("Made", "date", ".metadata.creationTimestamp"),
        ("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#),
        ("Tags", "string", ".spec.tags[*]"),
        ("Tag0", "string", ".spec.tags[0]"),
        ("AllTags", "string", ".spec.tags"),
        ("Map", "string", ".spec.map"),
        ("Dot", "string", r".metadata.labels['a\.b/c']"),
        ("FS", "string", ".spec.f"),
        ("NS", "string", ".spec.replicas"),
        ("BS", "string", ".spec.b"),
        ("DI", "integer", ".spec.desk"),
    ]
    .into_iter()
    .map(|(name, type_, path)| Column {
        name: name.to_owned(),
        type_: type_.to_owned(),
        format: String::new(),
        description: if name == "N" { "how many".to_owned() } else { String::new() },
        priority: i32::from(name == "N"),
        value: ColumnValue::Path(path.to_owned()),
    })
    .collect()
}
