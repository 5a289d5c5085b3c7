//! Events have two API groups and one storage: core/v1 holds them, events.k8s.io/v1 shows them under other names.

use serde_json::Value;

use super::Kind;
use crate::json;

/// Names in core/v1 and in events.k8s.io/v1; all other fields are alike.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Whether `kind` is the Event of events.k8s.io, whose objects are stored as those of core.
pub fn is_view(kind: &Kind) -> bool {
    kind.kind == "Event" && kind.group == "events.k8s.io"
}

/// An Event of events.k8s.io/v1 as core/v1 stores it.
pub fn to_stored(event: &mut Value) {
    rename(event, "v1", |(stored, shown)| (shown, stored));
    // These texts core/v1 always writes, and events.k8s.io/v1 only when there is something in them.
    for name in ["reportingComponent", "reportingInstance"] {
        json::fill(event, name, "");
    }
}

/// A stored Event as events.k8s.io/v1 shows it.
pub fn to_view(event: &mut Value) {
    rename(event, "events.k8s.io/v1", |names| names);
    for name in ["reportingController", "reportingInstance"] {
        if event.get(name).and_then(Value::as_str) == Some("") {
            json::remove(event, name);
        }
    }
}

fn rename(event: &mut Value, version: &str, order: fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Some(map) = event.as_object_mut() else { return };
    for (from, to) in NAMES.map(order) {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
    map.insert("apiVersion".to_owned(), version.into());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn there_and_back_is_the_same_event() {
        let stored = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": "e" }, "involvedObject": { "kind": "Pod" },
            "message": "m", "count": 2, "source": { "component": "c" }, "reportingComponent": "", "reportingInstance": "", "reason": "R",
        });
        let mut event = stored.clone();
        to_view(&mut event);
        assert_eq!(event["regarding"]["kind"], "Pod");
        assert_eq!(event["note"], "m");
        assert_eq!(event["deprecatedCount"], 2);
        to_stored(&mut event);
        assert_eq!(event, stored);
    }
}
