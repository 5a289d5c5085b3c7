//! From what users write, in any dialect, to the one model; or to what they should write instead.
//!
//! Every function here gives the remarks with the outcome, because a refused object may deserve remarks as well.

mod extensions;
mod fields;
mod route;
mod selector;
mod socket;
mod target;
mod virtual_service;

use serde_json::Value;

use super::types::{Route, RuleObject, Target, VirtualService};
use super::{Diagnostic, Reason};

/// Bytes of one object, at most, counted roughly: what the proxy takes.
const MOST_BYTES: usize = 1 << 20;
/// Values inside one another, at most: what the proxy takes.
const DEEPEST: usize = 32;

/// A spec in the normal form.
#[derive(Debug, Clone)]
pub struct Normalized<T> {
    /// The object, or why it is invalid.
    pub outcome: Result<T, Diagnostic>,
    /// Warnings, which an invalid object may have as well.
    pub warnings: Vec<Diagnostic>,
}

/// Reads the spec of a VirtualService.
pub fn virtual_service(spec: &Value) -> Normalized<VirtualService> {
    read(spec, virtual_service::virtual_service)
}

/// Reads the spec of a Route.
pub fn route(spec: &Value) -> Normalized<Route> {
    read(spec, |spec, notes| route::route("spec", spec, notes))
}

/// Reads the spec of a Target.
pub fn target(spec: &Value) -> Normalized<Target> {
    read(spec, target::target)
}

/// Reads the spec of a Rule.
pub fn rule(spec: &Value) -> Normalized<RuleObject> {
    read(spec, virtual_service::rule_object)
}

fn read<T>(spec: &Value, reader: impl FnOnce(&Value, &mut Vec<Diagnostic>) -> Result<T, Diagnostic>) -> Normalized<T> {
    let mut notes = Vec::new();
    let outcome = bounded(spec).and_then(|()| reader(spec, &mut notes));
    Normalized { outcome, warnings: notes }
}

fn bounded(spec: &Value) -> Result<(), Diagnostic> {
    let mut left = MOST_BYTES;
    match fits(spec, DEEPEST, &mut left) {
        Ok(()) => Ok(()),
        Err(what) => Err(Diagnostic::new(Reason::SpecTooLarge, format!("spec: {what}: split it into several objects"))),
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
