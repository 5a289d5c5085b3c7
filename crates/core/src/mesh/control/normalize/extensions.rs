//! Fields that only our proxy acts on: camel case for users, snake case and their places on the wire.

use serde_json::{Map, Value};

use super::fields::Fields;
use crate::mesh::control::Diagnostic;
use crate::mesh::control::types::Extensions;

/// Where a field's members go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldPlacement {
    /// Into the options, member by member.
    Members,
    /// Into the options, as one object.
    Nested,
}

/// Reads `tls`, `limits`, `qos` and `monitoring` of a VirtualService.
pub(super) fn of_listener(fields: &mut Fields<'_>) -> Result<Extensions, Diagnostic> {
    let places =
        [("limits", FieldPlacement::Members), ("qos", FieldPlacement::Nested), ("monitoring", FieldPlacement::Nested)];
    extensions(fields, &places)
}

/// Reads `tls`, `circuitBreaker`, `qos`, `healthCheck` and `outlier` of a cluster.
pub(super) fn of_cluster(fields: &mut Fields<'_>) -> Result<Extensions, Diagnostic> {
    let places = [
        ("circuitBreaker", FieldPlacement::Members),
        ("qos", FieldPlacement::Nested),
        ("healthCheck", FieldPlacement::Nested),
        ("outlier", FieldPlacement::Nested),
    ];
    extensions(fields, &places)
}

fn extensions(fields: &mut Fields<'_>, places: &[(&str, FieldPlacement)]) -> Result<Extensions, Diagnostic> {
    let mut extensions = Extensions::default();
    let at = fields.path("tls");
    if let Some(tls) = fields.get("tls") {
        Fields::of(at, tls)?;
        extensions.tls = Some(snake(tls, false));
    }
    for (key, place) in places {
        let at = fields.path(key);
        let Some(value) = fields.get(key) else { continue };
        Fields::of(at, value)?;
        let value = snake(value, matches!(*key, "limits" | "outlier" | "circuitBreaker"));
        match (place, value) {
            (FieldPlacement::Members, Value::Object(members)) => extensions.options.extend(members),
            (_, value) => drop(extensions.options.insert(snake_word(key), value)),
        }
    }
    Ok(extensions)
}

/// The same with its keys in snake case; with `quantities` also percentages and durations as numbers (of seconds).
fn snake(value: &Value, quantities: bool) -> Value {
    match value {
        Value::Object(map) => {
            let members = map.iter().map(|(key, value)| (snake_word(key), snake(value, quantities)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| snake(item, quantities)).collect(),
        Value::String(text) if quantities => quantity(text).unwrap_or_else(|| value.clone()),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn snake_word(word: &str) -> String {
    let mut snake = String::with_capacity(word.len() + 4);
    for letter in word.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

fn quantity(text: &str) -> Option<Value> {
    let units = [("%", 1.0), ("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, factor) = units.into_iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let number = number.parse::<f64>().ok()? * factor;
    if number.fract() == 0.0 && (0.0..1e9).contains(&number) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and in range")]
        return Some(Value::from(number as u64));
    }
    serde_json::Number::from_f64(number).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_and_objects_land_where_the_proxy_reads_them() {
        let spec = json!({"circuitBreaker": {"maxSessions": 5}, "outlier": {"ejectFor": "1m", "maxEjected": "50%"},
            "qos": {"perSource": {"packetsPerSecond": 7}}, "tls": {"secretName": "s"}});
        let extensions = of_cluster(&mut Fields::of("spec.cluster", &spec).unwrap()).unwrap();
        let options = json!({"max_sessions": 5, "outlier": {"eject_for": 60, "max_ejected": 50},
            "qos": {"per_source": {"packets_per_second": 7}}});
        assert_eq!(Value::Object(extensions.options), options);
        assert_eq!(extensions.tls, Some(json!({"secret_name": "s"})));
    }

    #[test]
    fn durations_are_seconds() {
        assert_eq!(quantity("500ms"), Some(json!(0.5)));
        assert_eq!(quantity("2h"), Some(json!(7200)));
        assert_eq!(quantity("fast"), None);
    }
}
