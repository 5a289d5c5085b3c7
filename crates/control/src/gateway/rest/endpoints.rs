//! Endpoints of a service.

use std::net::IpAddr;
use std::sync::Arc;

use http::{StatusCode, header};
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use portolan_api::gateway::{Endpoint, EndpointSpec, LoadBalancer};
use portolan_api::well_known::gateway::OWNING_LB;
use portolan_core::gateway::namespace_of;
use portolan_core::gateway::ports::{PortNumber, Protocol};
use serde_json::json;

use super::context::{Context, key};
use super::reason;
use super::refusal::{Refusal, Refused};
use super::reply::{self, Reply};
use super::wishes::EndpointWish;
use super::writes::Failed;
use super::{links, names, views};

/// What makes an endpoint of a service the same as another.
pub(super) type Identity = (IpAddr, PortNumber);

pub(super) fn identity(endpoint: &Endpoint) -> Option<Identity> {
    let spec = &endpoint.spec;
    let protocol = Protocol::parse(spec.port.protocol.as_deref().unwrap_or_default())?;
    Some((spec.address.parse().ok()?, PortNumber { protocol, port: spec.port.port }))
}

/// The service that endpoints are added to.
pub(super) fn service_for(context: &Context, account: &str, name: &str) -> Refused<Arc<LoadBalancer>> {
    let service = context.service(account, name)?;
    if service.metadata.deletion_timestamp.is_some() {
        return Err(Refusal::new(reason::NOT_FOUND, format!("service `{name}` is being deleted")));
    }
    Ok(service)
}

/// The object that a wish becomes.
pub(super) fn wanted(account: &str, service: &str, name: String, wish: &EndpointWish, node: IpAddr) -> Endpoint {
    Endpoint {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace_of(account)),
            labels: Some([(OWNING_LB.to_owned(), service.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: EndpointSpec {
            load_balancer: service.to_owned(),
            address: wish.address.to_string(),
            node_address: node.to_string(),
            port: wish.port.clone(),
        },
        status: None,
    }
}

pub(super) fn given_name(service: &LoadBalancer, wish: &EndpointWish) -> String {
    names::endpoint(service.metadata.uid.as_deref().unwrap_or_default(), wish.address, wish.number)
}

pub(super) fn node_of(wish: &EndpointWish) -> Refused<IpAddr> {
    wish.node
        .ok_or_else(|| Refusal::invalid(format!("{}node-address", wish.path), "write the pod's node's address here"))
}

fn stored_twin(context: &Context, account: &str, service: &str, wish: &EndpointWish) -> Option<Arc<Endpoint>> {
    let wanted = Some((wish.address, wish.number));
    context.endpoints_of(account, service).into_iter().find(|endpoint| identity(endpoint) == wanted)
}

fn duplicate(account: &str, stored: &Endpoint) -> Refusal {
    let name = stored.name_any();
    let view = views::endpoint(account, stored);
    let message = format!("the service has it already: duplicate endpoint: {name}");
    Refusal::new(reason::DUPLICATE_ENDPOINT, message.clone())
        .beside("message", message.into())
        .beside("link", view["link"].clone())
        .beside("endpoint", view["endpoint"].clone())
        .header(header::LOCATION, &links::endpoint(account, &stored.spec.load_balancer, &name))
}

pub(super) async fn create(context: &Context, account: &str, service: &str, wish: &EndpointWish) -> Refused<Reply> {
    let of = service_for(context, account, service)?;
    let node = node_of(wish)?;
    if let Some(stored) = stored_twin(context, account, service, wish) {
        return Err(duplicate(account, &stored));
    }
    let object = wanted(account, service, given_name(&of, wish), wish, node);
    let namespace = namespace_of(account);
    match context.writes.create(&namespace, &object).await {
        Ok(made) => {
            context.shown(&context.cache.endpoints, &made).await;
            Ok(reply::found(&links::endpoint(account, service, &made.name_any())))
        }
        Err(Failed::Exists) => match context.writes.get::<Endpoint>(&namespace, &object.name_any()).await? {
            Some(stored) => Err(duplicate(account, &stored)),
            None => Err(Refusal::not_ready("the endpoint was deleted at the same time: try again")),
        },
        Err(failed) => Err(failed.into()),
    }
}

pub(super) fn show(context: &Context, account: &str, service: &str, name: &str) -> Refused<Reply> {
    let object = context.endpoint(account, service, name)?;
    Ok(answer(StatusCode::OK, account, &object))
}

fn answer(status: StatusCode, account: &str, object: &Endpoint) -> Reply {
    reply::shown(status, &views::endpoint(account, object), object.metadata.resource_version.as_ref())
}

/// Makes an endpoint of that name, or changes the one that is there.
pub(super) async fn put(
    context: &Context,
    account: &str,
    [service, name]: [&str; 2],
    wish: &EndpointWish,
) -> Refused<Reply> {
    service_for(context, account, service)?;
    let node = node_of(wish)?;
    if wish.name.as_ref().is_some_and(|wanted| wanted != name) {
        return Err(Refusal::invalid("endpoint.metadata.name", "the path names another endpoint"));
    }
    if !is_object_name(name) {
        let problem = "the endpoint's name: use at most 253 lower case letters, digits, dots and dashes";
        return Err(Refusal::invalid("path", problem));
    }
    let namespace = namespace_of(account);
    let stored = match context.cache.endpoints.get(&key(account, name)) {
        Some(stored) => Some(Endpoint::clone(&stored)),
        None => context.writes.get::<Endpoint>(&namespace, name).await?,
    };
    let Some(stored) = stored else {
        if let Some(twin) = stored_twin(context, account, service, wish) {
            return Err(duplicate(account, &twin));
        }
        let object = wanted(account, service, name.to_owned(), wish, node);
        let made = context.writes.create(&namespace, &object).await?;
        context.shown(&context.cache.endpoints, &made).await;
        return Ok(answer(StatusCode::CREATED, account, &made));
    };
    if stored.spec.load_balancer != service {
        return Err(Refusal::new(reason::CONFLICT, format!("endpoint `{name}` belongs to another service")));
    }
    if identity(&stored) != Some((wish.address, wish.number)) || stored.spec.node_address.parse() != Ok(node) {
        let problem = "address, node-address, port and protocol cannot be changed: create another endpoint";
        return Err(Refusal::invalid("endpoint.spec", problem));
    }
    let mut next = stored.clone();
    next.spec.port = wish.port.clone();
    if next.spec == stored.spec {
        return Ok(answer(StatusCode::OK, account, &stored));
    }
    let written = context.writes.change(&namespace, &next).await?;
    context.shown(&context.cache.endpoints, &written).await;
    Ok(answer(StatusCode::OK, account, &written))
}

/// Deletes an endpoint; one that is gone already is as good.
pub(super) async fn delete(context: &Context, account: &str, service: &str, name: &str) -> Refused<Reply> {
    let of = key(account, name);
    if is_object_name(name) {
        let stored = match context.cache.endpoints.get(&of) {
            Some(stored) => Some(Endpoint::clone(&stored)),
            None => context.writes.get::<Endpoint>(&of.namespace, name).await?,
        };
        if let Some(stored) = stored {
            if stored.spec.load_balancer != service {
                return Err(Refusal::missing("endpoint", name));
            }
            let uid = stored.metadata.uid.as_deref();
            match context.writes.delete::<Endpoint>(&of.namespace, name, uid).await {
                Ok(()) | Err(Failed::Gone | Failed::Changed) => {}
                Err(failed @ (Failed::Exists | Failed::Other(_))) => return Err(failed.into()),
            }
            context.shown_deleted(&context.cache.endpoints, &of, uid).await;
        }
    }
    Ok(reply::json(StatusCode::OK, &json!({ "message": "endpoint deleted" })))
}

/// True if an object can have the name.
pub(super) fn is_object_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        !bytes.is_empty() && bytes.iter().all(|byte| inner(*byte)) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}
