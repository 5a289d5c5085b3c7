//! Objects as clients see them.

use kube::ResourceExt as _;
use portolan_api::gateway::{Account, Endpoint, LoadBalancer, ServiceGroup};
use serde::Serialize;
use serde_json::{Value, json};

use super::links;

pub(super) fn account(object: &Account) -> Value {
    let name = object.name_any();
    let mut object = object.clone();
    // the provider's own notes, which may quote what kubectl applied
    object.metadata.annotations = None;
    let key = object.spec.gue_key;
    let mut view = written(&object);
    set(&mut view, "group-id", key);
    json!({
        "link": {
            "self": links::account(&name), "groups": links::groups(&name), "services": links::services(&name),
        },
        "account": view,
    })
}

pub(super) fn group(account: &str, object: &ServiceGroup) -> Value {
    let name = object.name_any();
    let mut object = object.clone();
    object.spec.auth_creds = None;
    // kubectl notes what it applied, credentials too
    object.metadata.annotations = None;
    json!({
        "link": {
            "self": links::group(account, &name),
            "create-service": links::create_service(account, &name),
            "account": links::account(account),
        },
        "group": written(&object),
    })
}

pub(super) fn service(account: &str, object: &LoadBalancer) -> Value {
    let name = object.name_any();
    let mut view = written(object);
    let key = object.spec.gue_key;
    set(&mut view, "group-id", u16::try_from(key >> 16).unwrap_or_default());
    set(&mut view, "service-id", u16::try_from(key & 0xffff).unwrap_or_default());
    json!({
        "link": {
            "self": links::service(account, &name),
            "group": links::group(account, &object.spec.service_group),
            "create-endpoint": links::endpoints(account, &name),
        },
        "service": view,
    })
}

pub(super) fn endpoint(account: &str, object: &Endpoint) -> Value {
    let service = &object.spec.load_balancer;
    json!({
        "link": {
            "self": links::endpoint(account, service, &object.name_any()),
            "service": links::service(account, service),
        },
        "endpoint": written(object),
    })
}

fn written(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// Clients from 2021-01 read the halves of the key.
fn set(view: &mut Value, half: &str, value: u16) {
    if let Some(spec) = view.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert(half.to_owned(), value.into());
    }
}
