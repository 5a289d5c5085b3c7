use super::super::fixtures::{builtin_kind, planet, widget};
use super::*;

fn style(include: Include) -> Style {
    Style { version: "v1", include, headers: true, now: "2026-11-15T04:18:49Z".parse().unwrap() }
}

fn widgets() -> Vec<Value> {
    let made = "2026-11-15T04:18:49Z";
    vec![
        json!({
            "apiVersion": "d.portolan.dev/v1", "kind": "Widget",
            "metadata": { "name": "w1", "creationTimestamp": made, "labels": { "app": "x", "a.b/c": "dotted" } },
            "spec": { "desk": "d1", "replicas": 3, "f": 1.5, "b": true, "when": "2020-01-02T03:04:05Z", "tags": ["a", "b"],
                      "map": { "z": 1, "a": { "q": [1.5, "s", null, true] } } },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        }),
        json!({
            "metadata": { "name": "w2", "creationTimestamp": made },
            "spec": { "desk": "d2", "when": "nonsense", "f": 2, "tags": [] },
        }),
    ]
}

#[test]
fn cells_are_those_of_the_real_server() {
    let table = table(&widget(), &widgets(), &json!({ "resourceVersion": "234" }), style(Include::Metadata));
    assert_eq!(
        table["rows"][0]["cells"],
        json!([
            "w1",
            "d1",
            3,
            1.5,
            true,
            "6y319d",
            "0s",
            "True",
            "a",
            "a",
            "[\"a\",\"b\"]",
            "{\"a\":{\"q\":[1.5,\"s\",null,true]},\"z\":1}",
            "dotted",
            "1.5",
            "3",
            "true",
            null
        ])
    );
    assert_eq!(
        table["rows"][1]["cells"],
        json!([
            "w2",
            "d2",
            null,
            2,
            null,
            "<invalid>",
            "0s",
            null,
            null,
            null,
            "[]",
            null,
            null,
            "2",
            null,
            null,
            null
        ])
    );
    assert_eq!(table["metadata"], json!({ "resourceVersion": "234" }));
    let row = &table["rows"][0]["object"];
    assert_eq!(
        (row["kind"].as_str(), row["apiVersion"].as_str()),
        (Some("PartialObjectMetadata"), Some("meta.k8s.io/v1"))
    );
    assert_eq!((&row["metadata"]["labels"]["app"], row.get("spec")), (&json!("x"), None));
}

#[test]
fn odd_values_are_shown_as_the_real_server_shows_them() {
    let now = style(Include::None).now;
    for (value, expected) in [
        (json!(null), "<no value>"),
        (json!(1e21), "1e+21"),
        (json!(1e20), "1e+20"),
        (json!(1.5e7), "15000000"),
        (json!(123_456_789.125), "1.23456789125e+08"),
        (json!(1e-7), "1e-07"),
        (json!(0.00001), "1e-05"),
        (json!(-0.5), "-0.5"),
        (json!(1_000_000), "1000000"),
    ] {
        assert_eq!(typed("string", &value, now), expected, "{value}");
    }
    for (text, expected) in [
        ("2020-01-02T03:04:05+01:00", "6y319d"),
        ("2020-01-02T03:04:05.5Z", "6y319d"),
        ("2020-01-02 03:04:05Z", "<invalid>"),
        ("2020-01-02T03:04:05", "<invalid>"),
        ("2020-01-02t03:04:05z", "<invalid>"),
        ("2020-01-02", "<invalid>"),
        ("2020-01-02T03:04Z", "<invalid>"),
        ("2099-01-01T00:00:00Z", "<invalid>"),
        ("0001-01-01T00:00:00Z", "<unknown>"),
        ("null", "<unknown>"),
        ("", "<unknown>"),
    ] {
        assert_eq!(typed("date", &json!(text), now), expected, "{text}");
    }
    assert_eq!(typed("date", &json!(5), now), Value::Null);
    assert_eq!(typed("integer", &json!(2.7), now), 2);
    assert_eq!(typed("number", &json!(2.0), now), json!(2));
}

#[test]
fn columns_describe_themselves() {
    let table = table(&widget(), &[], &json!({}), style(Include::None));
    let columns = table["columnDefinitions"].as_array().unwrap();
    assert_eq!(columns.len(), 17);
    assert_eq!(columns[0]["format"], "name");
    assert!(
        columns[0]["description"].as_str().unwrap().starts_with("Name must be unique within a namespace. Is required")
    );
    let expected = "Custom resource definition column (in JSONPath format): .spec.desk";
    assert_eq!(
        columns[1],
        json!({ "name": "Desk", "type": "string", "format": "", "description": expected, "priority": 0 })
    );
    assert_eq!((&columns[2]["priority"], &columns[2]["description"]), (&json!(1), &json!("how many")));
    assert_eq!(table["rows"], json!([]));
}

#[test]
fn kinds_without_columns_show_their_age_or_when_they_were_made() {
    let object = json!({ "metadata": { "name": "p", "creationTimestamp": "2026-11-15T04:17:49Z" } });
    let objects = std::slice::from_ref(&object);
    let custom = table(&planet(), objects, &json!({}), style(Include::None));
    assert_eq!(custom["rows"], json!([{ "cells": ["p", "60s"], "object": null }]));
    let age = &custom["columnDefinitions"][1];
    assert_eq!((age["name"].as_str(), age["type"].as_str()), (Some("Age"), Some("date")));
    assert!(age["description"].as_str().unwrap().contains("in UTC.\n\nPopulated by the system. Read-only."));
    let builtin = builtin_kind("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", false);
    let table = table(&builtin, objects, &json!({}), style(Include::None));
    assert_eq!(table["rows"][0]["cells"], json!(["p", "2026-11-15T04:17:49Z"]));
    assert_eq!(table["columnDefinitions"][1]["name"], "Created At");
}

#[test]
fn built_in_ages_are_texts() {
    let column = |name: &str, type_: &str, value: ColumnValue| Column {
        name: name.to_owned(),
        type_: type_.to_owned(),
        format: String::new(),
        description: String::new(),
        priority: 0,
        value,
    };
    let kind = Kind {
        columns: vec![
            Column {
                format: "name".to_owned(),
                ..column("Name", "string", ColumnValue::Path(".metadata.name".to_owned()))
            },
            column("Status", "string", ColumnValue::Computed(|object, _| object["status"]["phase"].clone())),
            column("Age", "string", ColumnValue::Path(".metadata.creationTimestamp".to_owned())),
            column("Seen", "date", ColumnValue::Path(".lastSeen".to_owned())),
        ],
        ..builtin_kind("", "namespaces", "Namespace", false)
    };
    let object = json!({ "metadata": { "name": "a", "creationTimestamp": "2026-11-15T04:11:12Z" }, "status": { "phase": "Active" } });
    let table = table(&kind, &[object], &json!({}), style(Include::None));
    assert_eq!(table["rows"][0]["cells"], json!(["a", "Active", "7m37s", "<unknown>"]));
    assert_eq!(table["columnDefinitions"][3]["type"], "string");
}

#[test]
fn a_bookmark_of_a_watch_is_a_row_without_a_name() {
    let bookmark =
        json!({ "metadata": { "resourceVersion": "311", "annotations": { "k8s.io/initial-events-end": "true" } } });
    let later = Style { headers: false, ..style(Include::Metadata) };
    let table = table(&planet(), std::slice::from_ref(&bookmark), &bookmark["metadata"], later);
    assert_eq!(
        table,
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": { "resourceVersion": "311" },
            "columnDefinitions": null,
            "rows": [{ "cells": ["", null], "object": {
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": bookmark["metadata"] } }],
        })
    );
}

#[test]
fn metadata_alone_and_refusals() {
    let list = partial_list(&widgets(), &json!({ "resourceVersion": "5", "continue": "" }), "v1");
    assert_eq!(list["metadata"], json!({ "resourceVersion": "5" }));
    assert_eq!(list["items"][1]["kind"], "PartialObjectMetadata");
    let config_map = builtin_kind("", "configmaps", "ConfigMap", true);
    assert_eq!(
        partial_of_list(&config_map).message,
        "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)"
    );
    assert_eq!(
        partial_list_of_object(&config_map).message,
        "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)"
    );
    assert_eq!(partial_list_of_object(&widget()).code, 500);
    assert_eq!(
        Include::parse(&Query::parse("includeObject=Foo")).unwrap_err().message,
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Foo\": must be 'Metadata', 'Object', 'None', or empty"
    );
}
