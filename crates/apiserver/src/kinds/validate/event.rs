//! Events of both API groups, by the rules for the stored form.

use serde_json::Value;

use super::super::json::{has, number, text};
use super::super::{Kind, events};
use super::{Faults, metadata, names, quoted};
use crate::kinds::validate::NameRule;

/// Fields that events.k8s.io lets nobody change, as the stored form names them.
const FIXED: [&str; 14] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "reason",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
];

pub(super) fn event(kind: &Kind, new: &Value, old: Option<&Value>, faults: &mut Faults) {
    let strict = events::is_view(kind);
    let stored = |event: &Value| {
        let mut event = event.clone();
        if strict {
            events::to_stored(&mut event);
        }
        event
    };
    let new = &stored(new);
    common(new, strict, faults);
    if !strict {
        return;
    }
    let Some(old) = old.map(stored) else {
        metadata::kubernetes_full(NameRule::DnsSubdomain, true, new, faults);
        series(new, faults);
        created(new, faults);
        return;
    };
    metadata::kubernetes_update(new, &old, faults);
    if new.get("series") != old.get("series") {
        series(new, faults);
    }
    for key in FIXED {
        let field = if key == "reportingComponent" { "reportingController" } else { key };
        faults.immutable(field, new.get(key), old.get(key));
    }
}

fn common(new: &Value, strict: bool, faults: &mut Faults) {
    let (own, about) = (text(new, "/metadata/namespace"), text(new, "/involvedObject/namespace"));
    let timed = has(new, "/eventTime");
    let fits = match (timed, about.is_empty()) {
        (false, true) => matches!(own, "" | "default"),
        (false, false) => own == about,
        (true, true) => matches!(own, "default" | "kube-system"),
        (true, false) => true,
    };
    if !fits {
        faults.invalid("involvedObject.namespace", &quoted(about), "does not match event.namespace");
    }
    if !timed {
        return;
    }
    let controller = text(new, "/reportingComponent");
    let field = if strict { "reportingController" } else { "reportingComponent" };
    if controller.is_empty() {
        faults.required(field, "");
    }
    faults.invalid_text(field, controller, names::qualified(controller));
    for (key, needed, most) in
        [("reportingInstance", true, 128), ("action", true, 128), ("reason", true, 128), ("message", false, 1024)]
    {
        let value = text(new, &format!("/{key}"));
        if needed && value.is_empty() {
            faults.required(key, "");
        }
        if value.len() > most {
            faults.invalid(key, "\"\"", &format!("can have at most {most} characters"));
        }
    }
}

fn series(new: &Value, faults: &mut Faults) {
    if !has(new, "/series") {
        return;
    }
    if number(new, "/series/count") < 2 {
        faults.invalid("series.count", "\"\"", "should be at least 2");
    }
    if !has(new, "/series/lastObservedTime") {
        faults.required("series.lastObservedTime", "");
    }
}

fn created(new: &Value, faults: &mut Faults) {
    if !has(new, "/eventTime") {
        faults.required("eventTime", "");
    }
    let kind = text(new, "/type");
    if !["Normal", "Warning"].contains(&kind) {
        faults.invalid("type", "\"\"", &format!("has invalid value: {kind}"));
    }
    let sourced = !text(new, "/source/component").is_empty() || !text(new, "/source/host").is_empty();
    for (key, set) in [
        ("firstTimestamp", has(new, "/firstTimestamp")),
        ("lastTimestamp", has(new, "/lastTimestamp")),
        ("count", number(new, "/count") != 0),
        ("source", sourced),
    ] {
        if set {
            faults.invalid(key, "\"\"", "needs to be unset");
        }
    }
}
