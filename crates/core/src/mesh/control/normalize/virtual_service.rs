//! VirtualServices: flat as in the document, or with all in `listener` as the shipped operator has it.

use serde_json::{Map, Value};

use super::extensions;
use super::fields::{Fields, invalid, text};
use super::route::{rule, rules};
use super::selector::selector;
use super::socket::{Side, socket};
use crate::mesh::control::types::{RuleObject, Rules, Socket, VirtualService};
use crate::mesh::control::{Diagnostic, Reason};

/// Reads the spec of a VirtualService.
pub(super) fn virtual_service(value: &Value, notes: &mut Vec<Diagnostic>) -> Result<VirtualService, Diagnostic> {
    let mut fields = Fields::of("spec", value)?;
    let placed = selector("spec.selector", fields.require("selector")?, notes)?;
    let mut inner = Fields::of("spec.listener", fields.require("listener")?)?;
    let rules = both(&mut fields, &mut inner, "rules")?;
    let named = both(&mut fields, &mut inner, "rulesRef")?;
    let rules = match (rules, named) {
        (Some((one, _)), Some((other, _))) => {
            let message = format!("{one} and {other} exclude each other: remove one of them");
            return Err(Diagnostic::new(Reason::ConflictingFields, message));
        }
        (Some((at, value)), None) => Rules::List(self::rules(&at, value, notes)?),
        (None, Some((at, value))) => Rules::Named(text(&at, value)?.to_owned()),
        (None, None) => Rules::Stub,
    };
    let extensions = extensions::of_listener(&mut fields)?;
    let update_owners = fields.flag("updateOwners")?;
    let options = options(&mut fields, &mut inner)?;
    fields.finish(notes);
    let listener = listener(&mut inner, notes)?;
    inner.finish(notes);
    Ok(VirtualService { selector: placed, listener, rules, options, update_owners, extensions })
}

/// Reads the spec of a Rule.
pub(super) fn rule_object(value: &Value, notes: &mut Vec<Diagnostic>) -> Result<RuleObject, Diagnostic> {
    let mut fields = Fields::of("spec", value)?;
    let placed = selector("spec.selector", fields.require("selector")?, notes)?;
    let rulelist = text("spec.rulelist", fields.require("rulelist")?)?.to_owned();
    if rulelist.contains(char::is_whitespace) {
        return Err(invalid("spec.rulelist", &rulelist.into(), "names of rulelists have no spaces"));
    }
    let position = fields.number("position")?.unwrap_or(0);
    let rule = rule("spec.rule", fields.require("rule")?, notes)?;
    let update_owners = fields.flag("updateOwners")?;
    fields.finish(notes);
    Ok(RuleObject { selector: placed, rulelist, position, rule, update_owners })
}

/// A field that stands in the spec or in its listener, but not in both.
fn both<'v>(
    outer: &mut Fields<'v>,
    inner: &mut Fields<'v>,
    key: &str,
) -> Result<Option<(String, &'v Value)>, Diagnostic> {
    match (outer.get(key), inner.get(key)) {
        (Some(_), Some(_)) => {
            let message = format!("{} and {} say the same thing: remove one", outer.path(key), inner.path(key));
            Err(Diagnostic::new(Reason::DuplicateField, message))
        }
        (Some(value), None) => Ok(Some((outer.path(key), value))),
        (None, Some(value)) => Ok(Some((inner.path(key), value))),
        (None, None) => Ok(None),
    }
}

/// Options of both places; `mode` in a flat listener belongs to its socket.
fn options(outer: &mut Fields<'_>, inner: &mut Fields<'_>) -> Result<Map<String, Value>, Diagnostic> {
    let is_flat = !inner.has("spec");
    let mut options = Map::new();
    let mut found = Vec::new();
    let places = [(outer.path("options"), outer.get("options")), (inner.path("options"), inner.get("options"))];
    for (at, value) in places {
        let Some(value) = value else { continue };
        Fields::of(at.clone(), value)?;
        let members = value.as_object().into_iter().flatten();
        let mut members: Map<String, Value> = members.map(|(key, value)| (key.clone(), value.clone())).collect();
        if is_flat && at == inner.path("options") {
            members.remove("mode");
        }
        if !members.is_empty() {
            found.push(at);
            options.extend(members);
        }
    }
    if let [one, other] = &found[..] {
        let message = format!("{one} and {other} say the same thing: remove one");
        return Err(Diagnostic::new(Reason::DuplicateField, message));
    }
    for (key, is_good, hint) in [
        ("track", (|value| value.as_f64().is_some_and(|track| track >= 0.0)) as fn(&Value) -> bool, "seconds from 0"),
        ("removeOrphanSessions", Value::is_boolean, "true or false is expected"),
    ] {
        if let Some(value) = options.get(key).filter(|value| !is_good(value)) {
            return Err(invalid(&format!("spec.options.{key}"), value, hint));
        }
    }
    Ok(options)
}

fn listener(fields: &mut Fields<'_>, notes: &mut Vec<Diagnostic>) -> Result<Socket, Diagnostic> {
    if fields.get("name").is_some() {
        let message = "spec.listener.name has no effect: the listener is named after the object: remove it";
        notes.push(Diagnostic::new(Reason::IgnoredField, message));
    }
    let Some(value) = fields.get("spec") else { return flat(fields, notes) };
    let mut inner = Fields::of("spec.listener.spec", value)?;
    let socket = socket(&mut inner, Side::Listener, notes)?;
    inner.finish(notes);
    Ok(socket)
}

/// A spec among the listener's other keys: `{UDP: {port: 1}, rules: []}` is one too.
fn flat(fields: &mut Fields<'_>, notes: &mut Vec<Diagnostic>) -> Result<Socket, Diagnostic> {
    let named = fields.unread().find(|(key, _)| super::socket::is_protocol(key));
    let Some((key, value)) = named.filter(|_| !fields.has("protocol")) else {
        return socket(fields, Side::Listener, notes);
    };
    fields.get(key);
    let wrapped = Value::Object(Map::from_iter([(key.to_owned(), value.clone())]));
    socket(&mut Fields::of("spec.listener", &wrapped)?, Side::Listener, notes)
}
