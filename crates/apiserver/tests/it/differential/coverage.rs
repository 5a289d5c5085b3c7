//! Counts the distinct requests, and checks that nothing on the list was left out.

use std::collections::BTreeSet;

use serde_json::Value;

use super::story::Step;

/// How many distinct requests the suite must send.
const REQUESTS: usize = 300;

/// What must have come up at least once: verbs, patch types, selectors, options, forms of answers, errors and events.
const CHECKLIST: &str = "
    verb create, verb get, verb list, verb watch, verb update, verb patch, verb delete, verb deletecollection,
    patch json, patch merge, patch strategic, patch apply,
    label equals, label not equals, label in, label notin, label exists, label not exists,
    field equals, field not equals,
    option limit, option continue, option resourceVersion, option resourceVersionMatch=Exact,
    option resourceVersionMatch=NotOlderThan, option dryRun, option fieldManager, option force,
    option fieldValidation=Strict, option fieldValidation=Warn, option fieldValidation=Ignore,
    option propagationPolicy=Orphan, option propagationPolicy=Background, option propagationPolicy=Foreground,
    option gracePeriodSeconds, option timeoutSeconds, option sendInitialEvents, option allowWatchBookmarks,
    subresource status, subresource scale, body yaml, answer protobuf, watch protobuf,
    accept Table, accept PartialObjectMetadata, accept PartialObjectMetadataList, accept yaml,
    accept APIGroupDiscoveryList,
    event ADDED, event MODIFIED, event DELETED, event BOOKMARK, event ERROR,
    reason AlreadyExists, reason BadRequest, reason Conflict, reason Expired, reason Forbidden, reason Invalid,
    reason MethodNotAllowed, reason NotAcceptable, reason NotFound, reason RequestEntityTooLarge, reason Timeout,
    reason Unauthorized, reason UnsupportedMediaType,
    warning,
";

/// What the suite has seen.
#[derive(Default)]
pub(crate) struct Coverage {
    requests: BTreeSet<String>,
    seen: BTreeSet<String>,
}

impl Coverage {
    /// Takes in a step and an answer to it.
    pub(crate) fn see(&mut self, step: &Step, answer: &Value) {
        if step.events.is_none() {
            self.requests.insert(format!(
                "{:?}",
                (
                    &step.request,
                    &step.body,
                    &step.raw,
                    &step.content_type,
                    &step.accept,
                    &step.agent,
                    &step.headers,
                    step.anonymous
                )
            ));
            self.see_request(step);
        }
        let body = &answer["body"];
        if answer["type"][0].as_str().is_some_and(|kind| kind.contains("protobuf")) {
            self.saw(if step.watch.is_some() { "watch" } else { "answer" }, "protobuf");
        }
        let code = answer["code"].as_u64().unwrap_or(0);
        if let Some(reason) = body["reason"].as_str().filter(|_| code >= 400) {
            self.saw("reason", reason);
        }
        if answer.get("warnings").is_some() {
            self.seen.insert("warning".to_owned());
        }
        for event in body.as_array().into_iter().flatten() {
            self.saw("event", event["type"].as_str().unwrap_or_default());
            if event["type"] == "ERROR" {
                self.saw("reason", event["object"]["reason"].as_str().unwrap_or_default());
            }
        }
    }

    pub(crate) fn distinct(&self) -> usize {
        self.requests.len()
    }

    /// What is on the list and never came up, and whether the requests were too few.
    pub(crate) fn missing(&self) -> impl Iterator<Item = String> {
        let listed = CHECKLIST.split(',').map(str::trim).filter(|item| !item.is_empty());
        let missing = listed.filter(|item| !self.seen.contains(*item)).map(|item| format!("no story has: {item}"));
        let few = self.distinct() < REQUESTS;
        missing.chain(few.then(|| format!("only {} distinct requests, not {REQUESTS}", self.distinct())))
    }

    fn saw(&mut self, what: &str, which: &str) {
        self.seen.insert(format!("{what} {which}"));
    }

    fn see_request(&mut self, step: &Step) {
        self.saw("verb", verb(step));
        let content_type = step.content_type.as_deref().unwrap_or_default();
        for (part, name) in
            [("json-patch", "json"), ("merge-patch", "merge"), ("strategic", "strategic"), ("apply", "apply")]
        {
            if content_type.contains(part) && (part != "merge-patch" || !content_type.contains("strategic")) {
                self.saw("patch", name);
            }
        }
        if content_type == "application/yaml" {
            self.saw("body", "yaml");
        }
        for (option, value) in step.options() {
            self.saw("option", option);
            self.seen.insert(format!("option {option}={value}"));
            if option == "labelSelector" {
                value.split(',').for_each(|part| self.saw("label", label_operator(part)));
            }
            if option == "fieldSelector" {
                self.saw("field", if value.contains("!=") { "not equals" } else { "equals" });
            }
        }
        if let Some(last) = step.path().rsplit('/').next().filter(|last| ["status", "scale"].contains(last)) {
            self.saw("subresource", last);
        }
        let accept = step.accept.as_deref().unwrap_or_default();
        if accept.contains("yaml") {
            self.saw("accept", "yaml");
        }
        for part in accept.split(';').filter_map(|part| part.strip_prefix("as=")) {
            self.saw("accept", part.split(',').next().unwrap_or_default());
        }
    }
}

fn verb(step: &Step) -> &'static str {
    let segments: Vec<&str> = step.path().split('/').filter(|segment| !segment.is_empty()).collect();
    let below = match segments.first() {
        Some(&"api") => 2,
        Some(&"apis") => 3,
        _ => return "other",
    };
    let of_kind = match segments.get(below..) {
        Some(["namespaces", _, rest @ ..]) if !rest.is_empty() => rest.len(),
        Some(rest) => rest.len(),
        None => return "discover",
    };
    let is_watch = step.options().any(|option| option == ("watch", "1") || option == ("watch", "true"));
    match (step.method(), of_kind) {
        ("GET", 1) if is_watch => "watch",
        ("GET", 1) => "list",
        ("GET", _) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", 1) => "deletecollection",
        ("DELETE", _) => "delete",
        _ => "other",
    }
}

fn label_operator(requirement: &str) -> &'static str {
    let requirement = requirement.trim();
    if requirement.contains(" notin ") {
        "notin"
    } else if requirement.contains(" in ") {
        "in"
    } else if requirement.contains("!=") {
        "not equals"
    } else if requirement.contains('=') {
        "equals"
    } else if requirement.starts_with('!') {
        "not exists"
    } else {
        "exists"
    }
}
