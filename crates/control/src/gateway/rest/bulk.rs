//! The endpoints of one node, all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{StreamExt as _, TryStreamExt as _, iter};
use http::StatusCode;
use kube::ResourceExt as _;
use portolan_api::gateway::Endpoint;
use portolan_core::gateway::namespace_of;
use serde_json::json;

use super::context::{Context, key};
use super::endpoints::{Identity, given_name, identity, service_for, wanted};
use super::links;
use super::refusal::{Refusal, Refused};
use super::reply::{self, Reply};
use super::wishes::EndpointWish;
use super::writes::Failed;

/// Writes under way at the same time.
const AT_ONCE: usize = 16;

/// Makes the endpoints of a node exactly these. What broke off in the middle is completed by sending it again.
pub(super) async fn replace(
    context: &Context,
    account: &str,
    [service, node]: [&str; 2],
    wishes: &[EndpointWish],
) -> Refused<Reply> {
    let of = service_for(context, account, service)?;
    let node: IpAddr =
        node.parse().map_err(|_| Refusal::invalid("path", "the node is an address like 192.0.2.1 or 2001:db8::1"))?;
    let mut stored: BTreeMap<Identity, Endpoint> = BTreeMap::new();
    let mut extra: Vec<Endpoint> = Vec::new();
    for endpoint in context.endpoints_of(account, service) {
        let is_here = endpoint.spec.node_address.parse() == Ok(node);
        match identity(&endpoint).filter(|_| is_here) {
            Some(known) => extra.extend(stored.insert(known, Endpoint::clone(&endpoint))),
            None if is_here => extra.push(Endpoint::clone(&endpoint)),
            None => {}
        }
    }
    let (mut new, mut changed, mut same, mut seen) = (Vec::new(), Vec::new(), 0_usize, BTreeSet::new());
    for wish in wishes {
        if wish.node.is_some_and(|other| other != node) {
            return Err(Refusal::invalid(format!("{}node-address", wish.path), "the path names another node"));
        }
        if !seen.insert((wish.address, wish.number)) {
            let field = wish.path.trim_end_matches('.');
            return Err(Refusal::invalid(field, "an earlier one has the same address, port and protocol: remove one"));
        }
        match stored.remove(&(wish.address, wish.number)) {
            None => new.push(wanted(account, service, given_name(&of, wish), wish, node)),
            Some(before) if before.spec.port == wish.port => same += 1,
            Some(mut before) => {
                before.spec.port = wish.port.clone();
                changed.push(before);
            }
        }
    }
    extra.extend(stored.into_values());
    let counts = json!({
        "created": new.len(), "updated": changed.len(), "deleted": extra.len(), "unchanged": same,
    });
    let namespace = &namespace_of(account);
    // first what is new, so that the service does not run dry in between
    let mut written = at_once(new.iter().map(|object| make(context, namespace, object).boxed())).await?;
    written.extend(at_once(changed.iter().map(|object| change(context, namespace, object).boxed())).await?);
    at_once(extra.iter().map(|object| remove(context, namespace, object).boxed())).await?;
    for object in &written {
        context.shown(&context.cache.endpoints, object).await;
    }
    for object in &extra {
        let of = key(account, &object.name_any());
        context.shown_deleted(&context.cache.endpoints, &of, object.metadata.uid.as_deref()).await;
    }
    let mut body = json!({ "link": { "self": links::node(account, service, &node.to_string()) } });
    json_patch::merge(&mut body, &counts);
    Ok(reply::json(StatusCode::OK, &body))
}

async fn at_once<'a, T>(all: impl Iterator<Item = BoxFuture<'a, Refused<T>>>) -> Refused<Vec<T>> {
    // collected first: a stream that borrows what its futures borrow is not sent to other threads
    let all: Vec<_> = all.collect();
    iter(all).buffer_unordered(AT_ONCE).try_collect().await
}

async fn make(context: &Context, namespace: &str, object: &Endpoint) -> Refused<Endpoint> {
    match context.writes.create(namespace, object).await {
        Ok(made) => Ok(made),
        Err(Failed::Exists) => moved(context, namespace, object).await,
        Err(failed @ (Failed::Gone | Failed::Changed | Failed::Other(_))) => Err(failed.into()),
    }
}

async fn change(context: &Context, namespace: &str, object: &Endpoint) -> Refused<Endpoint> {
    Ok(context.writes.change(namespace, object).await?)
}

async fn remove(context: &Context, namespace: &str, object: &Endpoint) -> Refused<()> {
    let uid = object.metadata.uid.as_deref();
    match context.writes.delete::<Endpoint>(namespace, &object.name_any(), uid).await {
        Ok(()) | Err(Failed::Gone | Failed::Changed) => Ok(()),
        Err(failed @ (Failed::Exists | Failed::Other(_))) => Err(failed.into()),
    }
}

/// A pod cannot be on two nodes: the same socket that is known on another node has moved here.
async fn moved(context: &Context, namespace: &str, object: &Endpoint) -> Refused<Endpoint> {
    let Some(stored) = context.writes.get::<Endpoint>(namespace, &object.name_any()).await? else {
        return Err(Refusal::not_ready("an endpoint was deleted at the same time: try again"));
    };
    if stored.spec.node_address == object.spec.node_address {
        return Ok(stored);
    }
    remove(context, namespace, &stored).await?;
    Ok(context.writes.create(namespace, object).await?)
}
