//! Values as rules see them, and what rules may do with them.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, ExecutionError, Value as Cel, functions};
use serde_json::Value;

use crate::schema::{Schema, Type};

/// What every rule may use.
pub(super) fn context() -> Context<'static> {
    let mut context = Context::default().with_all();
    // The engine has no types as values: texts that no rule would write stand for them.
    let named = |name: &str| Cel::String(Arc::new(format!("the type {name}")));
    context.add_function("type", move |value: Cel| Ok::<Cel, ExecutionError>(named(type_name(&value))));
    for name in ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"] {
        context.add_variable_from_value(name, named(name));
    }
    context
}

fn type_name(value: &Cel) -> &'static str {
    match value {
        Cel::Bool(_) => "bool",
        Cel::Bytes(_) => "bytes",
        Cel::Float(_) => "double",
        Cel::Int(_) => "int",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Null => "null_type",
        Cel::String(_) => "string",
        Cel::UInt(_) => "uint",
        Cel::Duration(_) => "google.protobuf.Duration",
        Cel::Timestamp(_) => "google.protobuf.Timestamp",
        Cel::Function(..) | Cel::Opaque(_) => "dyn",
    }
}

/// A value as CEL sees it: fields by their escaped names, times and bytes by their formats.
pub(super) fn to_cel(schema: Option<&Schema>, value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => {
            let is_float = schema.is_some_and(|schema| schema.type_ == Some(Type::Number));
            match number.as_i64().filter(|_| !is_float) {
                Some(int) => Cel::Int(int),
                None => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
            }
        }
        Value::String(string) => {
            let text = || Arc::new(string.clone());
            let typed = match schema.map_or("", |schema| &schema.checks.format) {
                "date-time" => functions::timestamp(Arc::new(string.to_uppercase())).ok(),
                "date" => functions::timestamp(Arc::new(format!("{string}T00:00:00Z"))).ok(),
                "duration" => functions::duration(text()).ok(),
                "byte" => {
                    let bytes = base64::engine::general_purpose::STANDARD.decode(string).ok();
                    bytes.map(|bytes| Cel::Bytes(Arc::new(bytes)))
                }
                _ => None,
            };
            typed.unwrap_or_else(|| Cel::String(text()))
        }
        Value::Array(items) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            Cel::List(Arc::new(items.iter().map(|item| to_cel(schema, item)).collect()))
        }
        Value::Object(fields) => {
            let is_map = schema.is_some_and(|schema| schema.additional.is_some());
            let entry = |(name, value): (&String, &Value)| {
                let key = if is_map { name.clone() } else { escape(name) };
                let value = match schema.map(|schema| schema.field(name)) {
                    // of metadata, rules see the names alone
                    Some(None) if name == "metadata" => to_cel(None, &names_of(value)),
                    below => to_cel(below.flatten(), value),
                };
                (Key::String(Arc::new(key)), value)
            };
            Cel::Map(Map { map: Arc::new(fields.iter().map(entry).collect::<HashMap<_, _>>()) })
        }
    }
}

fn names_of(metadata: &Value) -> Value {
    let names = ["name", "generateName"];
    names.into_iter().filter_map(|name| Some((name, metadata.get(name)?.clone()))).collect()
}

/// Field names that are no identifiers, or reserved words, have another spelling in CEL.
fn escape(name: &str) -> String {
    const RESERVED: &str = "true false null in as break const continue else for function if import let loop package \
        namespace return var void while";
    if name.contains(['_', '.', '-', '/']) {
        let escaped = name.replace("__", "__underscores__").replace('.', "__dot__");
        return escaped.replace('-', "__dash__").replace('/', "__slash__");
    }
    if RESERVED.split(' ').any(|word| word == name) { format!("__{name}__") } else { name.to_owned() }
}
