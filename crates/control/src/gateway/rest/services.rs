//! Services: LoadBalancers of an account.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use portolan_api::gateway::{LoadBalancer, LoadBalancerSpec, ServiceGroup};
use portolan_api::well_known::gateway::ALLOW_PINNED;
use portolan_core::gateway::namespace_of;
use ring::digest::{SHA256, digest};
use serde_json::json;
use tokio::time::Instant;

use super::context::{Context, key};
use super::reason::{self, Reason};
use super::refusal::{Refusal, Refused};
use super::reply::{self, Reply};
use super::wishes::{LABEL, ServiceWish, is_label};
use super::writes::{Failed, TRIES};
use super::{links, names, views};
use crate::gateway::validate;

/// An address is awaited for this long.
const PATIENCE: Duration = Duration::from_secs(5);
/// A request that is sent again within this time is the same one.
const RETRIED_SECONDS: i64 = 60;
/// On a service: hash of the key that its request had.
const IDEMPOTENCY: &str = "portolan.dev/idempotency-key";

/// What a POST is about.
pub(super) struct Creation {
    pub(super) account: String,
    pub(super) group: String,
    pub(super) wish: ServiceWish,
    /// Hash of the client's own key for the request.
    pub(super) idempotency: Option<String>,
}

/// Hash of a client's key: it may be of any length.
pub(super) fn idempotency(headers: &HeaderMap) -> Option<String> {
    let hash = digest(&SHA256, headers.get("idempotency-key")?.as_bytes());
    Some(names::hex(&hash.as_ref()[..16]))
}

/// Makes a service and sends the client to it. It goes on when the client hangs up, so that nothing half made is left.
pub(super) async fn create(context: &Arc<Context>, creation: Creation) -> Refused<Reply> {
    let (done, answer) = tokio::sync::oneshot::channel();
    let of = Arc::clone(context);
    context.tasks.spawn_finite("gateway rest create", async move {
        let answer = created(&of, creation).await;
        done.send(answer).ok();
    });
    let stopped = || Err(Refusal::not_ready("the server is stopping: try again"));
    answer.await.unwrap_or_else(|_| stopped())
}

async fn created(context: &Context, creation: Creation) -> Refused<Reply> {
    let Creation { account, group, wish, .. } = &creation;
    let Some(name) = &wish.name else {
        return Err(Refusal::invalid("service.metadata.name", LABEL));
    };
    let Some(of_group) = context.cache.groups.get(&key(account, group)) else {
        return Err(Refusal::missing("group", group));
    };
    if let Some(stored) = context.cache.load_balancers.get(&key(account, name)) {
        return met(context, &creation, &of_group, &stored).await;
    }
    let object = wanted(&creation, name, &of_group);
    if let Some(problem) = validate::load_balancer(&object).problem {
        return Err(Refusal::from(problem));
    }
    let namespace = namespace_of(account);
    match context.writes.create(&namespace, &object).await {
        Ok(made) => awaited(context, account, &made).await,
        Err(Failed::Exists) => match context.writes.get::<LoadBalancer>(&namespace, name).await? {
            Some(stored) => met(context, &creation, &of_group, &stored).await,
            None => Err(Refusal::not_ready("the service was deleted at the same time: try again")),
        },
        Err(failed) => Err(failed.into()),
    }
}

fn wanted(creation: &Creation, name: &str, group: &ServiceGroup) -> LoadBalancer {
    let Creation { account, group: group_name, wish, idempotency } = creation;
    let may_pin = group.annotations().get(ALLOW_PINNED).is_some_and(|value| value == "true");
    let address = wish.address.filter(|_| may_pin);
    let annotations = idempotency.clone().map(|key| [(IDEMPOTENCY.to_owned(), key)].into());
    LoadBalancer {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace_of(account)),
            annotations,
            ..ObjectMeta::default()
        },
        spec: LoadBalancerSpec {
            service_group: group_name.clone(),
            public_address: address.map(|address| address.to_string()).unwrap_or_default(),
            public_ports: wish.ports.clone(),
            gue_key: 0,
            sharing_key: wish.sharing_key.clone(),
        },
        status: None,
    }
}

/// Another service has the name: perhaps this very request made it.
async fn met(context: &Context, creation: &Creation, group: &ServiceGroup, stored: &LoadBalancer) -> Refused<Reply> {
    let account = &creation.account;
    let name = stored.name_any();
    if stored.metadata.deletion_timestamp.is_some() {
        return Err(Refusal::not_ready(format!("service `{name}` is being deleted: try again")));
    }
    let recorded = stored.annotations().get(IDEMPOTENCY);
    let is_same_key = creation.idempotency.is_some() && recorded == creation.idempotency.as_ref();
    if is_same_key || is_retry(context, creation, group, stored) {
        return awaited(context, account, stored).await;
    }
    let path = links::service(account, &name);
    let view = views::service(account, stored);
    Err(Refusal::new(reason::ALREADY_EXISTS, format!("service `{name}` exists already"))
        .beside("link", json!({ "self": path }))
        .beside("service", view["service"].clone())
        .header(header::LOCATION, &path))
}

fn is_retry(context: &Context, creation: &Creation, group: &ServiceGroup, stored: &LoadBalancer) -> bool {
    let name = stored.name_any();
    let wanted = wanted(creation, &name, group).spec;
    let is_same = wanted.service_group == stored.spec.service_group
        && wanted.public_ports == stored.spec.public_ports
        && wanted.sharing_key == stored.spec.sharing_key
        && (wanted.public_address.is_empty() || wanted.public_address == stored.spec.public_address);
    let age = stored.metadata.creation_timestamp.as_ref().map(|made| Timestamp::now().as_second() - made.0.as_second());
    let is_young = age.is_some_and(|age| age < RETRIED_SECONDS);
    is_same && is_young && context.endpoints_of(&creation.account, &name).is_empty()
}

/// Where a service stands.
enum Standing {
    Allocated,
    Refused(Refusal),
    Waits(Option<Refusal>),
}

/// Waits for the address; a service that is given none is deleted again.
async fn awaited(context: &Context, account: &str, made: &LoadBalancer) -> Refused<Reply> {
    let name = made.name_any();
    let of = key(account, &name);
    let mut last = None;
    let settled = context
        .until(Instant::now() + PATIENCE, || {
            let shown = context.cache.load_balancers.get(&of)?;
            if shown.metadata.uid != made.metadata.uid {
                return None;
            }
            match standing(&shown) {
                Standing::Allocated => Some(Ok(())),
                Standing::Refused(refusal) => Some(Err(refusal)),
                Standing::Waits(refusal) => {
                    last = refusal;
                    None
                }
            }
        })
        .await;
    let refusal = match settled {
        Some(Ok(())) => return Ok(reply::found(&links::service(account, &name))),
        Some(Err(refusal)) => refusal,
        None => last.unwrap_or_else(|| Refusal::not_ready("no address was given in time: try again")),
    };
    let uid = made.metadata.uid.as_deref();
    let deleted = context.writes.delete::<LoadBalancer>(&of.namespace, &of.name, uid).await;
    match deleted {
        Ok(()) => context.shown_deleted(&context.cache.load_balancers, &of, uid).await,
        Err(Failed::Gone | Failed::Changed) => {}
        Err(Failed::Exists | Failed::Other(_)) => {
            tracing::warn!(service = %of, "a service that was given no address could not be deleted: delete it");
        }
    }
    Err(refusal)
}

fn standing(object: &LoadBalancer) -> Standing {
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let has_all = !object.spec.public_address.is_empty() && object.spec.gue_key != 0;
    if has_all && conditions.iter().any(|one| one.type_ == "Allocated" && one.status == "True") {
        return Standing::Allocated;
    }
    let current = |generation: Option<i64>| generation == object.metadata.generation;
    let mut waits = None;
    for kind in ["Accepted", "ResolvedRefs", "Allocated"] {
        let problem = conditions.iter().find(|one| one.type_ == kind && one.status == "False");
        let Some(problem) = problem.filter(|one| current(one.observed_generation)) else { continue };
        let reason = Reason::of_condition(&problem.reason);
        let refusal = Refusal::new(reason, problem.message.clone());
        if !reason.passes {
            return Standing::Refused(refusal);
        }
        waits.get_or_insert(refusal);
    }
    Standing::Waits(waits)
}

pub(super) fn show(context: &Context, account: &str, name: &str) -> Refused<Reply> {
    let object = context.service(account, name)?;
    Ok(answer(account, &object))
}

fn answer(account: &str, object: &LoadBalancer) -> Reply {
    reply::shown(StatusCode::OK, &views::service(account, object), object.metadata.resource_version.as_ref())
}

/// Replaces ports and sharing key.
pub(super) async fn replace(
    context: &Context,
    account: &str,
    name: &str,
    wish: &ServiceWish,
    headers: &HeaderMap,
) -> Refused<Reply> {
    let mut stored = LoadBalancer::clone(&*context.service(account, name)?);
    let namespace = namespace_of(account);
    for _ in 0..TRIES {
        check_match(headers, stored.metadata.resource_version.as_deref())?;
        check_same(wish, name, &stored)?;
        let mut next = stored.clone();
        next.spec.public_ports.clone_from(&wish.ports);
        next.spec.sharing_key.clone_from(&wish.sharing_key);
        if let Some(problem) = validate::load_balancer(&next).problem {
            return Err(Refusal::from(problem));
        }
        if next.spec == stored.spec {
            return Ok(answer(account, &stored));
        }
        match context.writes.replace(&namespace, &next).await {
            Ok(written) => {
                context.shown(&context.cache.load_balancers, &written).await;
                return Ok(answer(account, &written));
            }
            Err(Failed::Changed) => {}
            Err(Failed::Gone) => return Err(Refusal::missing("service", name)),
            Err(failed @ (Failed::Exists | Failed::Other(_))) => return Err(failed.into()),
        }
        let fresh = context.writes.get::<LoadBalancer>(&namespace, name).await?;
        stored = fresh.ok_or_else(|| Refusal::missing("service", name))?;
    }
    Err(Refusal::new(reason::CONFLICT, "the service changes too often at this moment: try again"))
}

/// The version that the client has seen must be the one that is there.
fn check_match(headers: &HeaderMap, version: Option<&str>) -> Refused<()> {
    let Some(wanted) = headers.get(header::IF_MATCH) else { return Ok(()) };
    let wanted = wanted.to_str().unwrap_or_default();
    let is_it = |tag: &str| tag == "*" || Some(tag.trim_start_matches("W/").trim_matches('"')) == version;
    if wanted.split(',').map(str::trim).any(is_it) {
        return Ok(());
    }
    Err(Refusal::new(
        reason::PRECONDITION_FAILED,
        "the service has changed since: read it again, and repeat the change",
    ))
}

/// What a client may not change must be as it is, where it is sent at all.
fn check_same(wish: &ServiceWish, name: &str, stored: &LoadBalancer) -> Refused<()> {
    let spec = &stored.spec;
    let fixed = "this cannot be changed: delete the service and create it again";
    if wish.name.as_ref().is_some_and(|wanted| wanted != name) {
        return Err(Refusal::invalid("service.metadata.name", "the path names another service"));
    }
    if wish.group.as_ref().is_some_and(|group| *group != spec.service_group) {
        return Err(Refusal::invalid("service.spec.service-group", fixed));
    }
    if wish.address.is_some_and(|address| spec.public_address.parse() != Ok(address)) {
        return Err(Refusal::invalid("service.spec.public-address", fixed));
    }
    if wish.key.is_some_and(|key| key != i64::from(spec.gue_key)) {
        return Err(Refusal::invalid("service.spec.gue-key", fixed));
    }
    Ok(())
}

/// Deletes a service; one that is gone already is as good.
pub(super) async fn delete(context: &Context, account: &str, name: &str) -> Refused<Reply> {
    if is_label(name) {
        let of = key(account, name);
        match context.writes.delete::<LoadBalancer>(&of.namespace, &of.name, None).await {
            Ok(()) => context.shown_deleted(&context.cache.load_balancers, &of, None).await,
            Err(Failed::Gone) => {}
            Err(failed @ (Failed::Exists | Failed::Changed | Failed::Other(_))) => return Err(failed.into()),
        }
    }
    Ok(reply::json(StatusCode::OK, &json!({ "message": "delete successful" })))
}
