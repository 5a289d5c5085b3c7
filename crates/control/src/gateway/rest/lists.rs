//! Accounts, groups, and lists in pages.

use http::StatusCode;
use kube::ResourceExt as _;
use portolan_core::gateway::{PROVIDER_NAMESPACE, namespace_of};
use serde_json::{Value, json};

use super::context::{Context, key};
use super::refusal::{Refusal, Refused};
use super::reply::{self, Reply};
use super::{links, views};
use crate::runtime::store::Key;

const LIMIT: usize = 100;
const MOST: usize = 500;

/// Which part of a list is wanted.
struct Page {
    limit: usize,
    after: Option<String>,
}

impl Page {
    fn read(query: &str) -> Refused<Self> {
        let mut page = Self { limit: LIMIT, after: None };
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| *limit > 0);
                    let limit: usize =
                        limit.ok_or_else(|| Refusal::malformed("limit", "use a number from 1 to 500"))?;
                    page.limit = limit.min(MOST);
                }
                "continue" => page.after = Some(value.to_owned()),
                _ => {}
            }
        }
        Ok(page)
    }

    /// The answer with those of this page; items come in order of name.
    fn answer(&self, what: &str, path: &str, items: impl Iterator<Item = (String, Value)>) -> Reply {
        let mut items = items.filter(|(name, _)| self.after.as_ref().is_none_or(|after| name > after));
        let page: Vec<(String, Value)> = items.by_ref().take(self.limit).collect();
        let last = page.last().map(|(name, _)| name.clone());
        let next = items.next().and(last).map(|last| format!("{path}?limit={}&continue={last}", self.limit));
        let mut link = json!({ "self": path });
        if let Some(next) = next {
            link["next"] = next.into();
        }
        let page: Vec<Value> = page.into_iter().map(|(_, view)| view).collect();
        reply::json(StatusCode::OK, &json!({ "link": link, what: page }))
    }
}

pub(super) fn account(context: &Context, account: &str) -> Refused<Reply> {
    let key = Key { namespace: PROVIDER_NAMESPACE.to_owned(), name: account.to_owned() };
    let object = context.cache.accounts.get(&key).ok_or_else(|| Refusal::missing("account", account))?;
    Ok(reply::shown(StatusCode::OK, &views::account(&object), object.metadata.resource_version.as_ref()))
}

pub(super) fn group(context: &Context, account: &str, name: &str) -> Refused<Reply> {
    let object = context.cache.groups.get(&key(account, name)).ok_or_else(|| Refusal::missing("group", name))?;
    Ok(reply::shown(StatusCode::OK, &views::group(account, &object), object.metadata.resource_version.as_ref()))
}

pub(super) fn groups(context: &Context, account: &str, query: &str) -> Refused<Reply> {
    let page = Page::read(query)?;
    let mut found = Vec::new();
    context.cache.groups.in_namespace(&namespace_of(account), |_, group| found.push(group.clone()));
    let items = found.iter().map(|group| (group.name_any(), views::group(account, group)));
    Ok(page.answer("groups", &links::groups(account), items))
}

pub(super) fn services(context: &Context, account: &str, query: &str) -> Refused<Reply> {
    let page = Page::read(query)?;
    let mut found = Vec::new();
    context.cache.load_balancers.in_namespace(&namespace_of(account), |_, service| found.push(service.clone()));
    let items = found.iter().map(|service| (service.name_any(), views::service(account, service)));
    Ok(page.answer("services", &links::services(account), items))
}

pub(super) fn endpoints(context: &Context, account: &str, service: &str, query: &str) -> Refused<Reply> {
    let page = Page::read(query)?;
    context.service(account, service)?;
    let found = context.endpoints_of(account, service);
    let items = found.iter().map(|endpoint| (endpoint.name_any(), views::endpoint(account, endpoint)));
    Ok(page.answer("endpoints", &links::endpoints(account, service), items))
}
