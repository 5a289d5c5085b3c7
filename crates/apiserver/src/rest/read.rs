//! Reading objects: get and list.

use std::sync::Arc;

use http::StatusCode;
use serde_json::json;

use super::call::Call;
use super::options::{ListOptions, Token, revision};
use super::response::Reply;
use super::route::Subresource;
use super::scale;
use crate::state::ServerState;
use crate::status::Failure;
use crate::store::{Entry, Missing, Snapshot};

/// How long the pages of a list show one state: as long as history is kept.
const PAGES_SECONDS: i64 = 5 * 60;

/// `GET` of one object.
pub(super) fn get(call: &Call<'_>) -> Result<Reply, Failure> {
    not_in_the_future(call, call.query.text("resourceVersion"))?;
    let code = StatusCode::OK;
    if call.subresource == Subresource::Scale {
        return Ok(Reply::Object { code, object: scale::read(call.kind(), &call.stored()?.1)? });
    }
    Ok(Reply::Stored { code, entry: call.entry()? })
}

/// `GET` of a collection.
pub(super) fn list(call: &Call<'_>, options: &ListOptions) -> Result<Reply, Failure> {
    let snapshot = snapshot(call, options)?;
    let start = options.page.as_ref().map(|token| token.start.as_str());
    let mut entries =
        snapshot.entries.iter().filter(|entry| start.is_none_or(|start| *place(call, entry) >= *start)).peekable();
    let limit = usize::try_from(options.limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let everything = options.select_all();
    let mut items = Vec::new();
    while items.len() < limit {
        let Some(entry) = entries.next() else { break };
        if everything || options.select(&ServerState::decode(call.kind(), entry)?) {
            items.push(Arc::clone(entry));
        }
    }
    let mut metadata = json!({ "resourceVersion": snapshot.revision.to_string() });
    if let Some(next) = entries.peek() {
        let first = options.page.as_ref().filter(|page| page.revision != 0).map(|page| page.issued);
        let issued = first.unwrap_or_else(|| call.now.as_second());
        metadata["continue"] = Token { revision: snapshot.revision, issued, start: place(call, next) }.encode().into();
        // With a selector the rest cannot be counted without decoding it.
        if everything {
            metadata["remainingItemCount"] = entries.count().into();
        }
    }
    Ok(Reply::List { metadata, items })
}

/// The position of an entry in a list, as in continue tokens.
fn place(call: &Call<'_>, entry: &Entry) -> String {
    if call.namespace.is_empty() && call.kind().namespaced {
        format!("{}/{}", entry.key.namespace, entry.key.name)
    } else {
        entry.key.name.to_string()
    }
}

fn snapshot(call: &Call<'_>, options: &ListOptions) -> Result<Snapshot, Failure> {
    let (store, resource) = (&call.server.store, &call.served.resource);
    let namespace = Some(call.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let exact = match &options.page {
        Some(page) if page.revision == 0 => None,
        Some(page) if call.now.as_second() - page.issued > PAGES_SECONDS => return Err(too_old(call, Some(page))),
        Some(page) => Some(page.revision),
        None if options.exact => revision(&options.resource_version)?,
        None => {
            not_in_the_future(call, &options.resource_version)?;
            None
        }
    };
    let Some(exact) = exact else { return Ok(store.list(resource, namespace)) };
    store.list_at(resource, namespace, exact).map_err(|missing| match missing {
        Missing::Expired(_) => too_old(call, options.page.as_ref()),
        Missing::Future { requested, current } => too_large(requested, current),
    })
}

/// A list whose state is no longer kept; who reads it page by page may go on at the present state.
fn too_old(call: &Call<'_>, page: Option<&Token>) -> Failure {
    let failure =
        Failure::expired("The continue token is too old: start a new list, or go on with the token in this answer.");
    let next = page.map(|page| Token { revision: 0, issued: call.now.as_second(), start: page.start.clone() }.encode());
    Failure { next_page: next, ..failure }
}

/// Refuses a future revision, as kube-apiserver does after a timeout.
fn not_in_the_future(call: &Call<'_>, asked: &str) -> Result<(), Failure> {
    let current = call.server.store.revision();
    match revision(asked)? {
        Some(asked) if asked > current => Err(too_large(asked, current)),
        Some(_) | None => Ok(()),
    }
}

fn too_large(requested: u64, current: u64) -> Failure {
    let message = format!("Too large resource version: {requested}, current: {current}");
    let mut failure = Failure::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
    failure.details.insert("retryAfterSeconds".to_owned(), 1.into());
    let cause = json!([{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }]);
    failure.details.insert("causes".to_owned(), cause);
    failure
}
