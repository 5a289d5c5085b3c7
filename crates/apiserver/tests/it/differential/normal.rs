//! Gives common names to what differs between any two servers.
//!
//! The first uid of a story becomes `<uid 1>` on both sides, the second `<uid 2>`: so it still matters which object
//! carries which uid, and whether a write made a new revision of an object.

use jiff::{Span, Timestamp};
use serde_json::{Map, Value};

/// What stands before a revision in a message.
const NUMBERED: [&str; 5] = [
    "ResourceVersion in object meta: ",
    ", current: ",
    "ResourceVersion in precondition: ",
    "ResourceVersion in record (",
    "too old resource version: 1 (",
];

/// What a story has seen so far, in order of appearance.
pub(crate) struct Normal {
    /// The namespace and the word for cluster-wide names, with their placeholders.
    given: [(String, &'static str); 2],
    uids: Vec<String>,
    revisions: Vec<String>,
    generated: Vec<String>,
    addresses: Vec<String>,
}

impl Normal {
    pub(crate) fn new(namespace: &str, id: &str) -> Self {
        let given = [(namespace.to_owned(), "{ns}"), (id.to_owned(), "{id}")];
        Self { given, uids: vec![], revisions: vec![], generated: vec![], addresses: vec![] }
    }

    /// Replaces every such value in an answer.
    pub(crate) fn apply(&mut self, answer: &mut Value) {
        read_page(answer);
        self.learn(answer);
        self.replace(answer, "");
    }

    fn learn(&mut self, value: &Value) {
        let Some(map) = value.as_object() else {
            value.as_array().into_iter().flatten().for_each(|item| self.learn(item));
            return;
        };
        let text = |key| map.get(key).and_then(Value::as_str);
        if let Some(uid) = text("uid").filter(|uid| is_uid(uid)) {
            note(&mut self.uids, uid);
            if let Some(revision) = text("resourceVersion").filter(|_| map.contains_key("name")) {
                note(&mut self.revisions, revision);
            }
        }
        if let (Some(prefix), Some(name)) = (text("generateName"), text("name"))
            && name.strip_prefix(prefix).is_some_and(|suffix| suffix.len() == 5)
        {
            note(&mut self.generated, name);
        }
        if let Some(address) = text("clusterIP").filter(|address| address.contains(['.', ':'])) {
            note(&mut self.addresses, address);
        }
        map.values().for_each(|value| self.learn(value));
    }

    fn replace(&self, value: &mut Value, key: &str) {
        match value {
            Value::Object(map) => {
                self.replace_own(map);
                sort_conflicts(map);
                // The details of a refusal are optional, and empty ones say nothing.
                if map.get("status").is_some_and(|status| status == "Failure") {
                    map.retain(|key, value| {
                        key != "details" || value.as_object().is_none_or(|details| !details.is_empty())
                    });
                }
                for (key, value) in map.iter_mut() {
                    self.replace(value, key);
                }
                let keys: Vec<String> = map.keys().filter(|key| **key != self.text(key)).cloned().collect();
                for key in keys {
                    let value = map.remove(&key).unwrap_or_default();
                    map.insert(self.text(&key), value);
                }
            }
            Value::Array(list) => {
                match key {
                    "managedFields" => list.sort_by_key(whose),
                    // The owners of fields in conflict come in any order, and so do the custom kinds of a group.
                    "causes" if list.iter().any(|cause| cause["reason"] == "FieldManagerConflict") => {
                        list.sort_by_key(Value::to_string);
                    }
                    // The real server tells some faults twice, and each server has its own order.
                    "causes" => {
                        let fault = |cause: &Value| [cause["field"].to_string(), cause["reason"].to_string()];
                        list.sort_by_key(fault);
                        list.dedup_by_key(|cause| fault(cause));
                    }
                    "resources" if list.iter().any(|kind| kind["name"] == "globals") => {
                        list.sort_by_key(|kind| kind["name"].to_string());
                    }
                    _ => {}
                }
                for item in list {
                    self.replace(item, key);
                }
            }
            Value::String(text) => {
                *text = match key {
                    "cells" if is_age(text) => "<age>".to_owned(),
                    "serverAddress" => "<address>".to_owned(),
                    "continue" if !text.is_empty() => "<continue>".to_owned(),
                    _ => self.text(text),
                }
            }
            Value::Number(_) if key == "nodePort" || key == "healthCheckNodePort" => *value = "<port>".into(),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Revisions: those of one object are distinguished, those of the whole server are not.
    fn replace_own(&self, map: &mut Map<String, Value>) {
        let is_object = map.contains_key("uid") && map.contains_key("name");
        if let Some(Value::String(revision)) = map.get_mut("resourceVersion")
            && !revision.is_empty()
        {
            let known = self.revisions.iter().position(|known| known == revision).filter(|_| is_object);
            *revision = known.map_or_else(|| "<revision>".to_owned(), |number| format!("<revision {}>", number + 1));
        }
    }

    fn text(&self, text: &str) -> String {
        if is_recent(text) {
            return if text.contains('.') { "<precise time>" } else { "<time>" }.to_owned();
        }
        let mut text = text.to_owned();
        for (value, name) in &self.given {
            text = text.replace(value, name);
        }
        for (what, values) in [("uid", &self.uids), ("generated", &self.generated), ("address", &self.addresses)] {
            for (number, value) in values.iter().enumerate() {
                text = text.replace(value, &format!("<{what} {}>", number + 1));
            }
        }
        for before in NUMBERED {
            text = without_number(&text, before);
        }
        text
    }
}

/// The value at a path such as `items.0.metadata.name`.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, key| match key.parse::<usize>() {
        Ok(index) if value.is_array() => value.get(index),
        _ => value.get(key),
    })
}

/// Reads the plain page that the real server's router gives for an unknown path as the Status that it stands for.
fn read_page(answer: &mut Value) {
    if answer["body"] == "404 page not found\n" {
        answer["type"] = serde_json::json!(["application/json"]);
        answer["body"] = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
        });
    }
}

fn note(known: &mut Vec<String>, value: &str) {
    if !known.iter().any(|known| known == value) {
        known.push(value.to_owned());
    }
}

/// Orders the entries of managedFields: servers order them by second, which depends on how fast a story ran.
fn whose(entry: &Value) -> [String; 4] {
    ["operation", "manager", "apiVersion", "subresource"].map(|key| entry[key].as_str().unwrap_or_default().to_owned())
}

/// Orders the causes of a conflict: the real server lists the managers in any order.
fn sort_conflicts(map: &mut Map<String, Value>) {
    if map.get("reason").is_some_and(|reason| reason == "Conflict")
        && let Some(Value::Array(causes)) = map.get_mut("details").and_then(|details| details.get_mut("causes"))
    {
        causes.sort_by_key(|cause| (cause["message"].to_string(), cause["field"].to_string()));
    }
}

fn is_uid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Whether this is an age as tables show it, such as `3s` or `2m5s`.
fn is_age(text: &str) -> bool {
    let is_unit = |byte: u8| matches!(byte, b's' | b'm' | b'h');
    text.bytes().next().is_some_and(|byte| byte.is_ascii_digit())
        && text.bytes().last().is_some_and(is_unit)
        && text.bytes().all(|byte| byte.is_ascii_digit() || is_unit(byte))
}

/// Whether this is a time within a day of this moment: a server wrote it, not a story.
fn is_recent(text: &str) -> bool {
    let day = Span::new().hours(24);
    text.parse::<Timestamp>().is_ok_and(|time| {
        let now = Timestamp::now();
        now.checked_sub(day).is_ok_and(|from| from < time) && now.checked_add(day).is_ok_and(|until| time < until)
    })
}

/// Replaces the number that follows these words.
fn without_number(text: &str, before: &str) -> String {
    let Some((head, tail)) = text.split_once(before) else { return text.to_owned() };
    let rest = tail.trim_start_matches(|letter: char| letter.is_ascii_digit());
    if rest.len() == tail.len() { text.to_owned() } else { format!("{head}{before}<revision>{rest}") }
}

#[test]
fn an_object_keeps_its_number_and_a_list_has_none() {
    let uid = "123e4567-e89b-12d3-a456-426614174000";
    let mut normal = Normal::new("ns-1", "id-1");
    let mut object = serde_json::json!({
        "metadata": { "name": "x-id-1", "namespace": "ns-1", "uid": uid, "resourceVersion": "17" },
        "message": format!("the UID in the precondition ({uid}) is wrong"), "cells": ["3m2s", "none"],
    });
    normal.apply(&mut object);
    assert_eq!(object["metadata"]["uid"], "<uid 1>");
    assert_eq!(object["metadata"]["name"], "x-{id}");
    assert_eq!(object["metadata"]["resourceVersion"], "<revision 1>");
    assert_eq!(object["message"], "the UID in the precondition (<uid 1>) is wrong");
    assert_eq!(object["cells"], serde_json::json!(["<age>", "none"]));
    let mut list = serde_json::json!({ "metadata": { "resourceVersion": "17" } });
    normal.apply(&mut list);
    assert_eq!(list["metadata"]["resourceVersion"], "<revision>");
}
