//! Lists as tables, which `kubectl get` requests, and lists of metadata only.

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::age::age;
use super::jsonpath::JsonPath;
use super::openapi::object_meta;
use super::options::Query;
use crate::kinds::{Column, ColumnValue, Kind};
use crate::status::Failure;

/// What each row includes beside its cells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

impl Include {
    /// Reads the `includeObject` parameter.
    pub fn parse(query: &Query) -> Result<Self, Failure> {
        match query.text("includeObject") {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(Failure::bad_request(format!("includeObject may be None, Metadata or Object, not {other:?}"))),
        }
    }
}

/// How a table is made.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    pub include: Include,
    /// Only the first event of a watch has the columns.
    pub headers: bool,
    pub now: Timestamp,
}

/// Makes a table of objects; `metadata` is that of the list, or of the one object: its revision and page.
pub fn table(kind: &Kind, objects: &[Value], metadata: &Value, style: Style) -> Value {
    let columns = columns(kind);
    let row = |object: &Value| {
        let cells: Vec<Value> = columns.iter().map(|column| cell(column, object, style.now)).collect();
        let shown = match style.include {
            Include::None => Value::Null,
            Include::Metadata => partial(object),
            Include::Object => object.clone(),
        };
        json!({ "cells": cells, "object": shown })
    };
    let rows: Vec<Value> = objects.iter().map(row).collect();
    let definitions = if style.headers { columns.iter().map(definition).collect() } else { Value::Null };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_metadata(metadata),
        "columnDefinitions": definitions, "rows": rows,
    })
}

/// The metadata of an object alone.
pub fn partial(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
}

/// A list of the metadata of objects.
pub fn partial_list(objects: &[Value], metadata: &Value) -> Value {
    let items: Vec<Value> = objects.iter().map(partial).collect();
    json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": list_metadata(metadata),
        "items": items,
    })
}

/// Where the cells of a column come from.
enum Source {
    Name,
    /// The age of the time at a path.
    Age(Option<JsonPath>),
    Path(Option<JsonPath>),
    Computed(fn(&Value) -> Value),
}

/// The columns of a kind: its name first, and its age if it declares no other.
fn columns(kind: &Kind) -> Vec<(Column, Source)> {
    let own = |name: &str, type_: &str, format: &str, description: &String, path: &str| Column {
        name: name.to_owned(),
        type_: type_.to_owned(),
        format: format.to_owned(),
        description: description.clone(),
        priority: 0,
        value: ColumnValue::Path(path.to_owned()),
    };
    let [name, created] = &*DESCRIPTIONS;
    let mut columns = kind.columns.clone();
    if columns.is_empty() {
        columns.push(own("Age", "date", "", created, ".metadata.creationTimestamp"));
    }
    if columns.iter().all(|column| column.format != "name") {
        columns.insert(0, own("Name", "string", "name", name, ".metadata.name"));
    }
    columns.into_iter().map(|column| sourced(column, kind.custom)).collect()
}

fn sourced(mut column: Column, custom: bool) -> (Column, Source) {
    let is_age = column.type_ == "date";
    let source = match &column.value {
        // A bookmark has no name, and still a text in its place.
        ColumnValue::Path(path) if column.format == "name" || path == ".metadata.name" => Source::Name,
        ColumnValue::Path(path) if is_age => Source::Age(JsonPath::parse(path)),
        ColumnValue::Path(path) => Source::Path(JsonPath::parse(path)),
        ColumnValue::Computed(compute) => Source::Computed(*compute),
    };
    if let ColumnValue::Path(path) = &column.value
        && custom
        && column.description.is_empty()
    {
        column.description = format!("Custom resource definition column (in JSONPath format): {path}");
    }
    if is_age && !custom {
        // Ages of built-in kinds are declared as texts.
        "string".clone_into(&mut column.type_);
    }
    (column, source)
}

fn definition((column, _): &(Column, Source)) -> Value {
    let Column { name, type_, format, description, priority, .. } = column;
    json!({ "name": name, "type": type_, "format": format, "description": description, "priority": priority })
}

fn cell((column, source): &(Column, Source), object: &Value, now: Timestamp) -> Value {
    let at = |path: &Option<JsonPath>| path.as_ref().and_then(|path| path.first(object)).cloned();
    match source {
        Source::Name => object["metadata"]["name"].as_str().unwrap_or_default().into(),
        Source::Computed(compute) => compute(object),
        Source::Age(path) => match at(path).as_ref().and_then(Value::as_str) {
            Some(time) => time.parse().map_or_else(|_| "<invalid>".to_owned(), |time| age(time, now)).into(),
            // A custom kind shows nothing where it has nothing.
            None if column.type_ == "date" => Value::Null,
            None => "<unknown>".into(),
        },
        Source::Path(path) => at(path).map_or(Value::Null, |value| typed(&column.type_, value)),
    }
}

/// A value as a cell of a type; null where it does not fit.
fn typed(type_: &str, value: Value) -> Value {
    match (type_, &value) {
        ("string" | "date", Value::String(_))
        | ("boolean", Value::Bool(_))
        | ("number" | "integer", Value::Number(_)) => value,
        ("string", _) => value.to_string().into(),
        _ => Value::Null,
    }
}

/// Of a list's or object's metadata, what tables and lists of metadata keep.
fn list_metadata(metadata: &Value) -> Value {
    let kept = ["resourceVersion", "continue", "remainingItemCount"].into_iter().filter_map(|name| {
        let value = metadata.get(name).filter(|value| !value.is_null() && value.as_str() != Some(""))?;
        Some((name.to_owned(), value.clone()))
    });
    Value::Object(kept.collect::<Map<_, _>>())
}

/// What the columns of name and age say about themselves: the documentation of the fields they show.
static DESCRIPTIONS: LazyLock<[String; 2]> = LazyLock::new(|| {
    let schema = object_meta();
    ["name", "creationTimestamp"]
        .map(|name| schema["properties"][name]["description"].as_str().unwrap_or_default().to_owned())
});

#[cfg(test)]
mod tests {
    use super::super::fixtures::{builtin_kind, planet, widget};
    use super::*;

    fn style(include: Include) -> Style {
        Style { include, headers: true, now: "2026-11-15T04:18:49Z".parse().unwrap() }
    }

    #[test]
    fn cells_are_those_of_the_columns() {
        let widgets = [
            json!({
                "metadata": { "name": "w1", "creationTimestamp": "2026-11-15T04:18:49Z", "labels": { "a.b/c": "dotted" } },
                "spec": { "desk": "d1", "replicas": 3, "f": 1.5, "b": true, "when": "2020-01-02T03:04:05Z",
                          "tags": ["a", "b"], "map": { "a": 1 } },
                "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
            }),
            json!({ "metadata": { "name": "w2" }, "spec": { "when": "nonsense", "tags": [] } }),
        ];
        let metadata = json!({ "resourceVersion": "234", "continue": "" });
        let table = table(&widget(), &widgets, &metadata, style(Include::Metadata));
        let full = json!([
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
            "{\"a\":1}",
            "dotted",
            "1.5",
            "3",
            "true",
            null
        ]);
        assert_eq!(table["rows"][0]["cells"], full);
        let poor = &table["rows"][1]["cells"];
        assert_eq!(
            (&poor[0], &poor[5], &poor[6], &poor[7]),
            (&json!("w2"), &json!("<invalid>"), &json!(null), &json!(null))
        );
        assert_eq!(table["metadata"], json!({ "resourceVersion": "234" }));
        let row = &table["rows"][0]["object"];
        assert_eq!((row["kind"].as_str(), row.get("spec")), (Some("PartialObjectMetadata"), None));
    }

    #[test]
    fn columns_are_described() {
        let names = |kind: &Kind| {
            let table = table(kind, &[], &json!({}), style(Include::None));
            let columns = table["columnDefinitions"].as_array().unwrap().clone();
            columns
                .into_iter()
                .map(|column| (column["name"].to_string(), column["type"].to_string()))
                .collect::<Vec<_>>()
        };
        let pair = |name: &str, type_: &str| (format!("{name:?}"), format!("{type_:?}"));
        assert_eq!(names(&planet()), [pair("Name", "string"), pair("Age", "date")]);
        let secret = builtin_kind("", "secrets", "Secret", true);
        assert_eq!(names(&secret), [pair("Name", "string"), pair("Age", "string")]);
        let definitions = table(&widget(), &[], &json!({}), style(Include::None))["columnDefinitions"].clone();
        assert_eq!(definitions[1]["description"], "Custom resource definition column (in JSONPath format): .spec.desk");
        assert_eq!((&definitions[2]["description"], &definitions[2]["priority"]), (&json!("how many"), &json!(1)));
    }
}
