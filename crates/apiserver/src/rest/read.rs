//! Reading objects: get and list.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::answer::{Call, Said};
use super::options::{ListOptions, Token, VersionMatch, get_revision};
use super::route::Part;
use super::scale;
use crate::server::Inner;
use crate::status::{About, Failure};
use crate::store::{Entry, Key, Missing, Snapshot};

/// `GET` of one object.
pub(super) fn get(call: &Call<'_>) -> Result<Said, Failure> {
    if let Some(asked) = get_revision(call.query.first("resourceVersion").unwrap_or_default())? {
        not_in_the_future(call, asked)?;
    }
    let mut object = stored(call)?.1;
    if call.part == Part::Scale {
        object = scale::read(call.kind(), &object)?;
    }
    Ok(Said::Object { code: StatusCode::OK, object, warnings: Vec::new() })
}

/// The object that a request names, and its entry.
pub(super) fn stored(call: &Call<'_>) -> Result<(Arc<Entry>, Value), Failure> {
    let about = About { group: &call.kind().group, resource: &call.kind().plural, name: &call.name };
    let entry = call.server.store.get(&key(call, &call.name)).ok_or_else(|| Failure::not_found(about))?;
    let object = Inner::decode(call.kind(), &entry)?;
    Ok((entry, object))
}

pub(super) fn key(call: &Call<'_>, name: &str) -> Key {
    Key::new(&call.served.resource, &call.namespace, name)
}

/// The options of a list or watch.
pub(super) fn options(call: &Call<'_>, watch_path: bool) -> Result<ListOptions, Failure> {
    let name = Some(call.name.as_str()).filter(|name| !name.is_empty());
    ListOptions::parse(&call.query, call.kind(), name, watch_path)
}

/// `GET` of a collection.
pub(super) fn list(call: &Call<'_>, options: &ListOptions) -> Result<Said, Failure> {
    let page = options.page()?;
    let snapshot = snapshot(call, options, page.as_ref())?;
    let start = page.as_ref().map(|token| token.start.as_str());
    let mut items = Vec::new();
    let mut entries = snapshot
        .entries
        .iter()
        .filter(|entry| start.is_none_or(|start| place(call, entry).as_str() >= start))
        .peekable();
    let limit = usize::try_from(options.limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    while items.len() < limit {
        let Some(entry) = entries.next() else { break };
        if let Some(object) = selected(call, options, entry)? {
            items.push(object);
        }
    }
    let mut metadata = json!({ "resourceVersion": snapshot.revision.to_string() });
    // Without a selector the rest can be counted; with one, someone would have to look.
    if let Some(next) = entries.peek() {
        let start = place(call, next);
        let revision = i64::try_from(snapshot.revision).unwrap_or(i64::MAX);
        metadata["continue"] = Token { revision, start }.encode().into();
        if options.labels.is_empty() && options.fields.is_empty() {
            metadata["remainingItemCount"] = entries.count().into();
        }
    }
    Ok(Said::List { metadata, items })
}

/// The place of an entry in the order of a list, as continue tokens have it.
fn place(call: &Call<'_>, entry: &Entry) -> String {
    if call.namespace.is_empty() && call.kind().namespaced {
        format!("{}/{}", entry.key.namespace, entry.key.name)
    } else {
        entry.key.name.to_string()
    }
}

/// The object of an entry, if the selectors want it.
pub(super) fn selected(call: &Call<'_>, options: &ListOptions, entry: &Entry) -> Result<Option<Value>, Failure> {
    if !options.labels.matches_bytes(&entry.json) {
        return Ok(None);
    }
    let object = Inner::decode(call.kind(), entry)?;
    Ok(options.fields.matches(&object).then_some(object))
}

fn snapshot(call: &Call<'_>, options: &ListOptions, page: Option<&Token>) -> Result<Snapshot, Failure> {
    let store = &call.server.store;
    let namespace = Some(call.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let exact = match (page, options.version_match) {
        (Some(token), _) => u64::try_from(token.revision).ok(),
        (None, Some(VersionMatch::Exact)) => options.revision()?,
        (None, Some(VersionMatch::NotOlderThan) | None) => {
            if let Some(asked) = options.revision()? {
                not_in_the_future(call, asked)?;
            }
            None
        }
    };
    let Some(exact) = exact else { return Ok(store.list(&call.served.resource, namespace)) };
    store.list_at(&call.served.resource, namespace, exact).map_err(|missing| match missing {
        Missing::Expired(_) if page.is_some() => Failure::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response to retrieve the remainder of \
             the results. Continuing with the provided token results in an inconsistent list - objects that were \
             created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        ),
        Missing::Expired(_) => Failure::expired("The resourceVersion for the provided list is too old."),
        Missing::Future { requested, current } => too_large(requested, current),
    })
}

/// A revision that is not there yet is refused, as Kubernetes does after waiting in vain.
pub(super) fn not_in_the_future(call: &Call<'_>, asked: u64) -> Result<(), Failure> {
    let current = call.server.store.revision();
    if asked > current { Err(too_large(asked, current)) } else { Ok(()) }
}

fn too_large(requested: u64, current: u64) -> Failure {
    let mut failure = Failure::new(
        StatusCode::GATEWAY_TIMEOUT,
        "Timeout",
        format!("Timeout: Too large resource version: {requested}, current: {current}"),
    );
    failure.details.insert("retryAfterSeconds".to_owned(), 1.into());
    let cause = json!([{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }]);
    failure.details.insert("causes".to_owned(), cause);
    failure
}
