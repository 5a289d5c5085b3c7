//! Printer columns of built-in kinds: `kubectl get` and `-o wide`. Names and descriptions are data, cells are computed.

mod network;
mod pod;
mod workload;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::json::{list, number, text};
use super::{Column, ColumnValue};

pub use pod::row_conditions;

/// Computes a cell.
type Cell = fn(&Value, Timestamp) -> Value;

/// The columns of a built-in kind, as the real server's Table has them.
pub fn of(kind: &str) -> Vec<Column> {
    let definitions = definitions().get(kind).map_or(&[][..], Vec::as_slice);
    definitions
        .iter()
        .map(|(name, type_, format, description, priority)| Column {
            name: name.clone(),
            type_: type_.clone(),
            format: format.clone(),
            description: description.clone(),
            priority: *priority,
            value: ColumnValue::Computed(cell(kind, name)),
        })
        .collect()
}

/// How long ago something happened, in at most two units: `5s`, `3m21s`, `2y319d`.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second() - since.as_second();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let two = |big: i64, unit: char, small: i64, part: char| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{part}") }
    };
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two(hours / 24, 'd', hours % 24, 'h'),
        _ if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        _ if hours < 24 * 365 * 8 => two(hours / 24 / 365, 'y', hours / 24 % 365, 'd'),
        _ => format!("{}y", hours / 24 / 365),
    }
}

/// Name, type, format, description, priority.
type Definition = (String, String, String, String, i32);

fn definitions() -> &'static BTreeMap<String, Vec<Definition>> {
    static DEFINITIONS: OnceLock<BTreeMap<String, Vec<Definition>>> = OnceLock::new();
    DEFINITIONS.get_or_init(|| serde_json::from_str(include_str!("columns/definitions.json")).unwrap_or_default())
}

fn cell(kind: &str, column: &str) -> Cell {
    match (kind, column) {
        ("Event", column) => workload::event_cell(column),
        (_, "Name") => |object, _| text(object, "/metadata/name").into(),
        (_, "Age") => |object, now| since(object.pointer("/metadata/creationTimestamp"), now).into(),
        (_, "Created At") => |object, _| text(object, "/metadata/creationTimestamp").into(),
        ("Pod", column) => pod::cell(column),
        ("Service" | "Node" | "Endpoints" | "EndpointSlice", column) => network::cell(kind, column),
        ("Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" | "PodDisruptionBudget", column) => {
            workload::cell(kind, column)
        }
        ("Namespace", "Status") => |object, _| text(object, "/status/phase").into(),
        ("ConfigMap", "Data") => |object, _| (size(object, "/data") + size(object, "/binaryData")).into(),
        ("Secret", "Data") => |object, _| size(object, "/data").into(),
        ("Secret", "Type") => |object, _| text(object, "/type").into(),
        ("Lease", "Holder") => |object, _| text(object, "/spec/holderIdentity").into(),
        (_, "Role") => {
            |object, _| format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name")).into()
        }
        (_, "Users") => |object, _| subjects(object, "User"),
        (_, "Groups") => |object, _| subjects(object, "Group"),
        (_, "ServiceAccounts") => |object, _| subjects(object, "ServiceAccount"),
        (_, "Webhooks") => |object, _| list(object, "/webhooks").len().into(),
        (_, "Validations") => |object, _| list(object, "/spec/validations").len().into(),
        (_, "ParamKind") => |object, _| pair(object, "/spec/paramKind/apiVersion", "/spec/paramKind/kind"),
        (_, "PolicyName") => |object, _| text(object, "/spec/policyName").into(),
        (_, "ParamRef") => |object, _| pair(object, "/spec/paramRef/namespace", "/spec/paramRef/name"),
        _ => |_, _| json!(""),
    }
}

/// An age, or `<unknown>` without a time.
fn since(time: Option<&Value>, now: Timestamp) -> String {
    let time: Option<Timestamp> = time.and_then(Value::as_str).and_then(|time| time.parse().ok());
    time.map_or_else(|| "<unknown>".to_owned(), |time| age(time, now))
}

fn or_none(text: &str) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

fn size(object: &Value, pointer: &str) -> usize {
    object.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

/// `a=b,c=d`, or `<none>`.
fn labels(object: &Value, pointer: &str) -> Value {
    let labels = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let labels: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    or_none(&labels.join(","))
}

/// The first three and how many more there are.
fn first_three(all: &[String], none: &str) -> Value {
    match all.len() {
        0 => none.into(),
        1..=3 => all.join(",").into(),
        count => format!("{} + {} more...", all[..3].join(","), count - 3).into(),
    }
}

fn subjects(object: &Value, kind: &str) -> Value {
    let subjects = list(object, "/subjects").iter().filter(|subject| text(subject, "/kind") == kind);
    let names = subjects.map(|subject| match kind {
        "ServiceAccount" => format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")),
        _ => text(subject, "/name").to_owned(),
    });
    names.collect::<Vec<_>>().join(", ").into()
}

fn pair(object: &Value, first: &str, second: &str) -> Value {
    let (first, second) = (text(object, first), text(object, second));
    match (first.is_empty(), second.is_empty()) {
        (true, true) => "<unset>".into(),
        (true, false) => format!("*/{second}").into(),
        (false, _) => format!("{first}/{second}").into(),
    }
}

fn count(object: &Value, pointer: &str) -> Value {
    number(object, pointer).into()
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;

    use super::*;

    #[test]
    fn ages_are_written_as_kubectl_shows_them() {
        let now: Timestamp = "2026-11-15T04:30:06Z".parse().unwrap();
        for (seconds, written) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (201, "3m21s"),
            (605, "10m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (9 * 3600 + 60, "9h"),
            (49 * 3600, "2d1h"),
            (9 * 24 * 3600 + 3600, "9d"),
            (-1, "0s"),
            (-5, "<invalid>"),
        ] {
            assert_eq!(age(now - seconds.seconds(), now), written, "{seconds} s");
        }
        assert_eq!(age("2024-01-01T00:00:00Z".parse().unwrap(), now), "2y319d");
    }

    /// Objects and the cells that the real server shows for them, ages left out.
    #[test]
    fn cells_are_those_of_the_real_server() {
        let now: Timestamp = "2026-11-15T04:30:06Z".parse().unwrap();
        let tables: BTreeMap<String, Vec<(Vec<Value>, Value)>> =
            serde_json::from_str(include_str!("recorded/tables.json")).unwrap();
        for (kind, rows) in tables {
            let columns = of(&kind);
            for (cells, object) in rows {
                assert_eq!(cells.len(), columns.len(), "{kind}");
                for (column, expected) in columns.iter().zip(&cells) {
                    let ColumnValue::Computed(compute) = column.value else { panic!("a path") };
                    if column.name != "Age" {
                        let name = &object["metadata"]["name"];
                        assert_eq!(compute(&object, now), *expected, "{kind} {name} {}", column.name);
                    }
                }
            }
        }
    }
}
