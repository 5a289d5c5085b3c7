//! Reads an object key by key, knows where it is, and tells of the keys nobody asked for.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::mesh::control::{Diagnostic, Reason};

/// An object that is being read.
pub(super) struct Fields<'v> {
    /// Where it stands, for example `spec.listener`.
    pub(super) at: String,
    map: &'v Map<String, Value>,
    read: BTreeSet<&'v str>,
}

impl<'v> Fields<'v> {
    /// Begins with an object; anything else is invalid.
    pub(super) fn of(at: impl Into<String>, value: &'v Value) -> Result<Self, Diagnostic> {
        let at = at.into();
        match value {
            Value::Object(map) => Ok(Self { at, map, read: BTreeSet::new() }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(invalid(&at, value, "an object like {key: value} is expected"))
            }
        }
    }

    /// A value that is there and not null.
    pub(super) fn get(&mut self, key: &str) -> Option<&'v Value> {
        let (key, value) = self.map.get_key_value(key)?;
        self.read.insert(key);
        Some(value).filter(|value| !value.is_null())
    }

    /// Whether a key is there, without reading it.
    pub(super) fn has(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|value| !value.is_null())
    }

    /// The only key, without reading it.
    pub(super) fn only_key(&self) -> Option<&'v str> {
        let mut keys = self.map.keys();
        keys.next().filter(|_| keys.next().is_none()).map(String::as_str)
    }

    /// A value that must be there.
    pub(super) fn require(&mut self, key: &str) -> Result<&'v Value, Diagnostic> {
        let at = self.path(key);
        self.get(key).ok_or_else(|| Diagnostic::new(Reason::MissingField, format!("{at} is missing: add it")))
    }

    /// The first of several names for one thing; two of them at once are one too many.
    pub(super) fn one_of(&mut self, keys: &[&str]) -> Result<Option<(String, &'v Value)>, Diagnostic> {
        let mut found: Vec<(String, &Value)> = Vec::new();
        for key in keys {
            if let Some(value) = self.get(key) {
                found.push((self.path(key), value));
            }
        }
        if let [(first, _), (second, _), ..] = &found[..] {
            let message = format!("{first} and {second} say the same thing: remove one of them");
            return Err(Diagnostic::new(Reason::DuplicateField, message));
        }
        Ok(found.pop())
    }

    /// A text.
    pub(super) fn text(&mut self, key: &str) -> Result<Option<&'v str>, Diagnostic> {
        let at = self.path(key);
        self.get(key).map(|value| text(&at, value)).transpose()
    }

    /// Yes or no; absent is no.
    pub(super) fn flag(&mut self, key: &str) -> Result<bool, Diagnostic> {
        let at = self.path(key);
        let Some(value) = self.get(key) else { return Ok(false) };
        value.as_bool().ok_or_else(|| invalid(&at, value, "true or false is expected"))
    }

    /// A whole number from zero.
    pub(super) fn number(&mut self, key: &str) -> Result<Option<u64>, Diagnostic> {
        let at = self.path(key);
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_u64().map(Some).ok_or_else(|| invalid(&at, value, "a whole number from 0 is expected"))
    }

    /// A list; absent is empty.
    pub(super) fn list(&mut self, key: &str) -> Result<&'v [Value], Diagnostic> {
        let at = self.path(key);
        let Some(value) = self.get(key) else { return Ok(&[]) };
        list(&at, value)
    }

    /// The path of a key.
    pub(super) fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.at)
    }

    /// Keys that nobody has read yet, with their values.
    pub(super) fn unread(&self) -> impl Iterator<Item = (&'v str, &'v Value)> {
        self.map.iter().map(|(key, value)| (key.as_str(), value)).filter(|(key, _)| !self.read.contains(key))
    }

    /// Tells of keys that nobody has read; they are never sent on.
    pub(super) fn finish(&self, notes: &mut Vec<Diagnostic>) {
        for (key, _) in self.unread() {
            let message = format!("{} is not known and has no effect: remove it or correct its name", self.path(key));
            notes.push(Diagnostic::new(Reason::UnknownField, message));
        }
    }
}

/// A text, or what is wrong.
pub(super) fn text<'v>(at: &str, value: &'v Value) -> Result<&'v str, Diagnostic> {
    let found = value.as_str().filter(|text| !text.is_empty());
    found.ok_or_else(|| invalid(at, value, "a text is expected"))
}

/// A list, or what is wrong.
pub(super) fn list<'v>(at: &str, value: &'v Value) -> Result<&'v [Value], Diagnostic> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| invalid(at, value, "a list is expected"))
}

/// A value that will not do.
pub(super) fn invalid(at: &str, value: &Value, hint: &str) -> Diagnostic {
    Diagnostic::new(Reason::InvalidField, format!("{at}: {}: {hint}", short(value)))
}

/// A port, as a number or as the text of one.
pub(super) fn port(at: &str, value: &Value) -> Result<u16, Diagnostic> {
    let bad =
        |hint: &str| Diagnostic::new(Reason::BadPort, format!("{at}: {} is not a port number: {hint}", short(value)));
    let whole = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => {
            let trimmed = text.trim_end_matches([',', ';', ' ']);
            if trimmed != text && trimmed.parse::<u16>().is_ok() {
                return Err(bad(if text.contains(',') {
                    "remove the comma"
                } else {
                    "remove what follows the number"
                }));
            }
            text.parse().ok()
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let port = whole.and_then(|whole| u16::try_from(whole).ok()).filter(|port| *port != 0);
    port.ok_or_else(|| bad("write one from 1 to 65535"))
}

/// A value on one line, cut where it gets long.
fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 80 { text } else { text.chars().take(77).chain("...".chars()).collect() }
}
