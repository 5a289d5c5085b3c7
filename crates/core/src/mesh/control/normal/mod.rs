//! From what users write, in any dialect, to the one model; or to what they should write instead.
//!
//! Every function here gives the remarks with the outcome, because a refused object may deserve remarks as well.

mod fields;
mod ours;
mod route;
mod selector;
mod socket;
mod target;
mod virtual_service;

use serde_json::Value;

use super::types::{Route, RuleObject, Target, VirtualService};
use super::{Note, Reason};

/// Bytes of one object, at most, counted roughly: what the proxy takes.
const MOST_BYTES: usize = 1 << 20;
/// Values inside one another, at most: what the proxy takes.
const DEEPEST: usize = 32;

/// An object in the normal form, or why it is refused; with remarks.
pub type Read<T> = (Result<T, Note>, Vec<Note>);

/// Reads the spec of a VirtualService.
pub fn virtual_service(spec: &Value) -> Read<VirtualService> {
    read(spec, virtual_service::virtual_service)
}

/// Reads the spec of a Route.
pub fn route(spec: &Value) -> Read<Route> {
    read(spec, |spec, notes| route::route("spec", spec, notes))
}

/// Reads the spec of a Target.
pub fn target(spec: &Value) -> Read<Target> {
    read(spec, target::target)
}

/// Reads the spec of a Rule.
pub fn rule(spec: &Value) -> Read<RuleObject> {
    read(spec, virtual_service::rule_object)
}

fn read<T>(spec: &Value, reader: impl FnOnce(&Value, &mut Vec<Note>) -> Result<T, Note>) -> Read<T> {
    let mut notes = Vec::new();
    let outcome = bounded(spec).and_then(|()| reader(spec, &mut notes));
    (outcome, notes)
}

fn bounded(spec: &Value) -> Result<(), Note> {
    let mut left = MOST_BYTES;
    match fits(spec, DEEPEST, &mut left) {
        Ok(()) => Ok(()),
        Err(what) => Err(Note::new(Reason::SpecTooLarge, format!("spec: {what}: split it into several objects"))),
    }
}

fn fits(value: &Value, depth: usize, left: &mut usize) -> Result<(), &'static str> {
    let Some(depth) = depth.checked_sub(1) else { return Err("more than 32 values inside one another") };
    let size = match value {
        Value::String(text) => text.len() + 2,
        Value::Object(map) => map.keys().map(|key| key.len() + 4).sum(),
        Value::Array(items) => items.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
    };
    *left = left.checked_sub(size).ok_or("more than 1 MiB")?;
    match value {
        Value::Object(map) => map.values().try_for_each(|value| fits(value, depth, left)),
        Value::Array(items) => items.iter().try_for_each(|value| fits(value, depth, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}
