//! Lists as tables, which is what `kubectl get` asks for, and lists of metadata only.

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::age::age;
use super::jsonpath::JsonPath;
use super::options::Query;
use super::text::quote;
use crate::kinds::{Column, ColumnValue, Kind};
use crate::status::Failure;

/// What each row carries beside its cells.
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
        match query.first("includeObject").unwrap_or_default() {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(Failure::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', \
                 'Object', 'None', or empty",
                quote(other)
            ))),
        }
    }
}

/// How a table is made.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// `v1` or `v1beta1`.
    pub version: &'static str,
    pub include: Include,
    /// Only the first event of a watch has the columns.
    pub headers: bool,
    pub now: Timestamp,
}

/// Makes a table of objects; `metadata` is that of the list, or of the one object: its revision and page.
pub fn table(kind: &Kind, objects: &[Value], metadata: &Value, style: Style) -> Value {
    let columns = columns(kind);
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells: Vec<Value> = columns.iter().map(|column| cell(column, object, style.now)).collect();
            let shown = match style.include {
                Include::None => Value::Null,
                Include::Metadata => partial(object, style.version),
                Include::Object => object.clone(),
            };
            json!({ "cells": cells, "object": shown })
        })
        .collect();
    let definitions = if style.headers { columns.iter().map(Shown::definition).collect() } else { Value::Null };
    json!({
        "kind": "Table", "apiVersion": format!("meta.k8s.io/{}", style.version), "metadata": list_metadata(metadata),
        "columnDefinitions": definitions, "rows": rows,
    })
}

/// The metadata of an object alone.
pub fn partial(object: &Value, version: &str) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    // Inside of Kubernetes this is a field, and becomes an annotation with the whole object only.
    if object["kind"] == "DaemonSet"
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove("deprecated.daemonset.template.generation");
        if annotations.is_empty() {
            metadata.as_object_mut().map(|metadata| metadata.remove("annotations"));
        }
    }
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata,
    })
}

/// A list of the metadata of objects.
pub fn partial_list(objects: &[Value], metadata: &Value, version: &str) -> Value {
    let items: Vec<Value> = objects.iter().map(|object| partial(object, version)).collect();
    json!({
        "kind": "PartialObjectMetadataList", "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": list_metadata(metadata), "items": items,
    })
}

/// The refusal of `as=PartialObjectMetadata` for a list.
pub fn partial_of_list(kind: &Kind) -> Failure {
    let type_ = if kind.custom { "*unstructured.UnstructuredList".to_owned() } else { go_type(kind, &kind.list_kind) };
    let message = format!("you requested PartialObjectMetadata, but the requested object is a list ({type_})");
    Failure::new(http::StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
}

/// The refusal of `as=PartialObjectMetadataList` for one object.
pub fn partial_list_of_object(kind: &Kind) -> Failure {
    if kind.custom {
        // Kubernetes blames itself here.
        return Failure::new(http::StatusCode::INTERNAL_SERVER_ERROR, "", "content is not a list");
    }
    let type_ = go_type(kind, &kind.kind);
    let message = format!("you requested PartialObjectMetadataList, but the requested object is not a list ({type_})");
    Failure::new(http::StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
}

/// The name of a built-in type inside of Kubernetes, such as `*core.ConfigMap`.
fn go_type(kind: &Kind, name: &str) -> String {
    let package = if kind.group.is_empty() { "core" } else { kind.group.split('.').next().unwrap_or_default() };
    format!("*{package}.{name}")
}

/// A column with its path read.
struct Shown<'k> {
    name: &'k str,
    type_: &'k str,
    format: &'k str,
    description: String,
    priority: i32,
    source: Source,
}

enum Source {
    Name,
    /// As an age; `<unknown>` where there is none.
    Created,
    /// As it is written.
    CreatedAt,
    Path(Option<JsonPath>),
    Computed(fn(&Value, Timestamp) -> Value),
    /// The age of a time in a built-in kind.
    Since(Option<JsonPath>),
}

impl Shown<'_> {
    fn definition(&self) -> Value {
        json!({
            "name": self.name, "type": self.type_, "format": self.format, "description": self.description,
            "priority": self.priority,
        })
    }
}

/// The columns of a kind. Custom kinds begin with the name and get an age when they name no column; built-in kinds
/// without columns show when they were made.
fn columns(kind: &Kind) -> Vec<Shown<'_>> {
    let mut columns: Vec<Shown<'_>> =
        kind.columns.iter().map(|column| if kind.custom { custom(column) } else { builtin(column) }).collect();
    let named = columns.iter().any(|column| column.format == "name");
    if columns.is_empty() {
        let (name, source) = if kind.custom { ("Age", Source::Created) } else { ("Created At", Source::CreatedAt) };
        let description = DESCRIPTIONS.created.clone();
        columns.push(Shown { name, type_: "date", format: "", description, priority: 0, source });
    }
    if !named {
        let (description, source) = (DESCRIPTIONS.name.clone(), Source::Name);
        columns.insert(0, Shown { name: "Name", type_: "string", format: "name", description, priority: 0, source });
    }
    columns
}

fn custom(column: &Column) -> Shown<'_> {
    let (source, path) = match &column.value {
        // A bookmark has no name, and still a text in its place.
        ColumnValue::Path(path) if column.format == "name" => (Source::Name, path.as_str()),
        ColumnValue::Path(path) => (Source::Path(JsonPath::parse(path)), path.as_str()),
        ColumnValue::Computed(compute) => (Source::Computed(*compute), ""),
    };
    let description = if column.description.is_empty() {
        format!("Custom resource definition column (in JSONPath format): {path}")
    } else {
        column.description.clone()
    };
    Shown { description, ..shown(column, source) }
}

/// Built-in ages are texts; the kinds declare them as dates, or as the path of the time an object was made.
fn builtin(column: &Column) -> Shown<'_> {
    let source = match &column.value {
        ColumnValue::Path(path) if path == ".metadata.creationTimestamp" => Source::Created,
        ColumnValue::Path(path) if path == ".metadata.name" => Source::Name,
        ColumnValue::Path(path) if column.type_ == "date" => Source::Since(JsonPath::parse(path)),
        ColumnValue::Path(path) => Source::Path(JsonPath::parse(path)),
        ColumnValue::Computed(compute) => Source::Computed(*compute),
    };
    let is_age = column.type_ == "date" && column.name != "Created At";
    let type_ = if is_age { "string" } else { &column.type_ };
    Shown { type_, ..shown(column, source) }
}

fn shown(column: &Column, source: Source) -> Shown<'_> {
    Shown {
        name: &column.name,
        type_: &column.type_,
        format: &column.format,
        description: column.description.clone(),
        priority: column.priority,
        source,
    }
}

fn cell(column: &Shown<'_>, object: &Value, now: Timestamp) -> Value {
    let metadata = &object["metadata"];
    match &column.source {
        Source::Name => metadata["name"].as_str().unwrap_or_default().into(),
        Source::Created if column.type_ == "date" => date(&metadata["creationTimestamp"], now),
        Source::Created => since(&metadata["creationTimestamp"], now),
        Source::CreatedAt => metadata["creationTimestamp"].clone(),
        Source::Computed(compute) => compute(object, now),
        Source::Path(path) => {
            let found = path.as_ref().and_then(|path| path.first(object));
            found.map_or(Value::Null, |value| typed(column.type_, value, now))
        }
        Source::Since(path) => {
            let found = path.as_ref().and_then(|path| path.first(object));
            since(found.unwrap_or(&Value::Null), now)
        }
    }
}

/// A value as a cell of a type; null where it does not fit.
fn typed(type_: &str, value: &Value, now: Timestamp) -> Value {
    match (type_, value) {
        ("string", value) => text(value).into(),
        ("boolean", Value::Bool(_)) => value.clone(),
        ("integer", Value::Number(number)) => number.as_i64().map_or_else(|| whole(number.as_f64()), Value::from),
        ("number", Value::Number(number)) => match number.as_f64().map(|float| (float, whole(Some(float)))) {
            Some((float, Value::Number(whole))) if whole.as_f64() == Some(float) => whole.into(),
            _ => value.clone(),
        },
        ("date", value) => date(value, now),
        _ => Value::Null,
    }
}

/// A text as kubectl's JSONPath prints it.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<no value>".to_owned(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (None, Some(float)) => float_text(float),
            _ => number.to_string(),
        },
        other @ (Value::Bool(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    }
}

/// A float as Go prints it: with an exponent from a million on and below a ten-thousandth, whole ones as integers.
fn float_text(float: f64) -> String {
    if let Some(whole) = whole(Some(float)).as_i64().filter(|_| float.fract() == 0.0 && float.abs() < 9e18) {
        return whole.to_string();
    }
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or_default() {
        -4..6 => float.to_string(),
        exponent => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "Go cuts a float to an integer in the same way")]
fn whole(float: Option<f64>) -> Value {
    float.map_or(Value::Null, |float| (float as i64).into())
}

/// A date column of a custom kind: an age, nothing when there is no text, `<invalid>` when it is no time.
fn date(value: &Value, now: Timestamp) -> Value {
    let Some(text) = value.as_str() else { return Value::Null };
    if matches!(text, "" | "null") {
        return "<unknown>".into();
    }
    time(text).map_or_else(|| "<invalid>".into(), |time| shown_age(Some(time), now))
}

/// An age of a built-in kind.
fn since(value: &Value, now: Timestamp) -> Value {
    shown_age(value.as_str().and_then(time), now)
}

/// An age, or what stands for the lack of one; Go's zero time is no time.
fn shown_age(time: Option<Timestamp>, now: Timestamp) -> Value {
    let zero = Timestamp::constant(-62_135_596_800, 0);
    time.filter(|time| *time != zero).map_or_else(|| "<unknown>".to_owned(), |time| age(time, now)).into()
}

/// Reads RFC 3339 as strictly as Go does: capital letters, seconds and a zone.
fn time(text: &str) -> Option<Timestamp> {
    let shape: String = text.chars().take(19).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    (shape == "0000-00-00T00:00:00" && !text.ends_with('z')).then(|| text.parse().ok()).flatten()
}

/// Of a list's or object's metadata, what tables and lists of metadata keep.
fn list_metadata(metadata: &Value) -> Value {
    let kept = ["resourceVersion", "continue", "remainingItemCount"].into_iter().filter_map(|name| {
        let value = metadata.get(name).filter(|value| !value.is_null() && value.as_str() != Some(""))?;
        Some((name.to_owned(), value.clone()))
    });
    Value::Object(kept.collect::<Map<_, _>>())
}

struct Descriptions {
    name: String,
    created: String,
}

/// What the columns say about themselves: the documentation of the fields they show.
static DESCRIPTIONS: LazyLock<Descriptions> = LazyLock::new(|| {
    let schema = super::openapi::object_meta();
    let of = |name: &str| schema["properties"][name]["description"].as_str().unwrap_or_default().to_owned();
    Descriptions { name: of("name"), created: of("creationTimestamp") }
});

#[cfg(test)]
mod tests;
