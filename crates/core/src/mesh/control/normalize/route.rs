//! Rules and the ways they lead.

use serde_json::Value;

use super::fields::{Fields, invalid, list, text};
use super::target::hop;
use crate::mesh::Predicate;
use crate::mesh::control::types::{Hop, Retry, Route, RouteRef, Rule};
use crate::mesh::control::{Diagnostic, Reason};

/// Rules of one list, at most: what the proxy takes.
const MOST_RULES: usize = 10_000;

const RETRY_ON: [&str; 4] = ["never", "connect-failure", "disconnect", "always"];

/// Reads rules: a list, or one of them.
pub(super) fn rules(at: &str, value: &Value, notes: &mut Vec<Diagnostic>) -> Result<Vec<Rule>, Diagnostic> {
    if value.is_object() {
        return Ok(vec![rule(at, value, notes)?]);
    }
    let items = list(at, value)?;
    if items.len() > MOST_RULES {
        let message = format!("{at} has {} rules, {MOST_RULES} are allowed: use several VirtualServices", items.len());
        return Err(Diagnostic::new(Reason::SpecTooLarge, message));
    }
    items.iter().enumerate().map(|(place, item)| rule(&format!("{at}[{place}]"), item, notes)).collect()
}

/// Reads one rule.
pub(super) fn rule(at: &str, value: &Value, notes: &mut Vec<Diagnostic>) -> Result<Rule, Diagnostic> {
    let mut fields = Fields::of(at, value)?;
    let matching = fields.get("match");
    if let Err(error) = Predicate::compile(matching) {
        let message = format!("{at}.match{}: {}: correct it", error.path, error.kind);
        return Err(Diagnostic::new(Reason::BadMatch, message));
    }
    let mut action = Fields::of(fields.path("action"), fields.require("action")?)?;
    fields.finish(notes);
    let rewrite = rewrites(&mut action, notes)?;
    let route = match action.one_of(&["route", "routeRef"])? {
        Some((at, value)) if value.is_string() => Some(RouteRef::Name(text(&at, value)?.to_owned())),
        Some((at, value)) => Some(RouteRef::Inline(Box::new(route(&at, value, notes)?))),
        None => None,
    };
    let apply = action.text("apply")?.map(str::to_owned);
    action.finish(notes);
    if route.is_none() && apply.is_none() {
        let message = format!("{}: the rule leads nowhere: add `route` or `apply`", action.at);
        return Err(Diagnostic::new(Reason::NoRoute, message));
    }
    if apply.is_some() && (route.is_some() || !rewrite.is_empty()) {
        let message = format!("{}: with `apply` neither `route` nor `rewrite` has an effect: remove them", action.at);
        notes.push(Diagnostic::new(Reason::IgnoredField, message));
    }
    Ok(Rule { matching: matching.cloned(), rewrite, route, apply })
}

fn rewrites(action: &mut Fields<'_>, notes: &mut Vec<Diagnostic>) -> Result<Vec<(String, Value)>, Diagnostic> {
    let at = action.path("rewrite");
    let mut rewrites = Vec::new();
    for (place, item) in action.list("rewrite")?.iter().enumerate() {
        let mut fields = Fields::of(format!("{at}[{place}]"), item)?;
        let path_at = fields.path("path");
        let path = text(&path_at, fields.require("path")?)?;
        if path.trim_matches('/').contains("//") {
            let message = format!("{path_at}: \"{path}\" has an empty part and would never be written: correct it");
            return Err(Diagnostic::new(Reason::BadMatch, message));
        }
        let null = fields.has("value") || fields.has("valueStr");
        let value = fields.one_of(&["value", "valueStr"])?.map(|(_, value)| value.clone());
        let value = value.unwrap_or_default();
        if !null && item.get("value").is_none() {
            let message = format!("{}.value is missing: add it", fields.at);
            return Err(Diagnostic::new(Reason::MissingField, message));
        }
        fields.finish(notes);
        rewrites.push((path.to_owned(), value));
    }
    Ok(rewrites)
}

/// Reads a way.
pub(super) fn route(at: &str, value: &Value, notes: &mut Vec<Diagnostic>) -> Result<Route, Diagnostic> {
    let mut fields = Fields::of(at, value)?;
    let found = fields.one_of(&["destination", "destinationRef", "cluster", "clusterRef"])?;
    let Some((destination_at, value)) = found else {
        return Err(Diagnostic::new(Reason::MissingField, format!("{at}.destination is missing: say where it leads")));
    };
    let destination = hop(&destination_at, value, notes)?;
    let ingress = chain(&mut fields, "ingress", notes)?;
    let egress = chain(&mut fields, "egress", notes)?;
    let retry = retry(&mut fields, notes)?;
    fields.finish(notes);
    Ok(Route { destination, ingress, egress, retry })
}

fn chain(fields: &mut Fields<'_>, key: &str, notes: &mut Vec<Diagnostic>) -> Result<Vec<Hop>, Diagnostic> {
    let at = fields.path(key);
    let items = fields.list(key)?.iter().enumerate();
    items.map(|(place, item)| hop(&format!("{at}[{place}]"), item, notes)).collect()
}

fn retry(fields: &mut Fields<'_>, notes: &mut Vec<Diagnostic>) -> Result<Retry, Diagnostic> {
    let at = fields.path("retry");
    let mut retry = Retry::default();
    let Some(value) = fields.get("retry") else { return Ok(retry) };
    let mut inner = Fields::of(at, value)?;
    let word_at = inner.path("retry_on");
    if let Some(value) = inner.get("retry_on") {
        let known = RETRY_ON.into_iter().find(|word| value.as_str() == Some(*word));
        let hint = format!("use one of {}", RETRY_ON.join(", "));
        retry.retry_on = known.ok_or_else(|| invalid(&word_at, value, &hint))?;
    }
    retry.num_retries = inner.number("num_retries")?.unwrap_or(retry.num_retries);
    retry.timeout = inner.number("timeout")?.unwrap_or(retry.timeout);
    inner.finish(notes);
    Ok(retry)
}
