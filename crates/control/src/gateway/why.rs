//! `portolan why lb`: every place that a load balancer passes, and what is said there.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use portolan_api::gateway::{Endpoint, LoadBalancer};
use portolan_core::gateway::keys::GueKey;
use portolan_core::gateway::{ConditionKind, account_of, namespace_of};
use serde_json::json;

use super::snapshot::Objects;
use crate::runtime::conditions::find;
use crate::runtime::query::{Column, QueryError, QueryResult, Row, column, row};

const STEPS: &[Column] = &[column("place", "PLACE"), column("name", "NAME"), column("says", "SAYS")];

/// Why a load balancer is served, or is not.
pub(super) fn why(objects: &Objects, text: &str) -> Result<QueryResult, QueryError> {
    let balancer = found(objects, text)?;
    let (namespace, name) = (balancer.namespace().unwrap_or_default(), balancer.name_any());
    let account = account_of(&namespace).unwrap_or(&namespace);
    let mut rows = vec![account_says(objects, account)];
    rows.extend(pool_says(objects, &namespace, &balancer.spec.service_group));
    rows.push(step("key", &balancer.spec.gue_key.to_string(), &key_says(balancer.spec.gue_key)));
    rows.push(address_says(objects, balancer));
    let conditions = balancer.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
    for condition in conditions.iter().filter(|condition| condition.type_ != ConditionKind::Ready.as_str()) {
        rows.push(step("condition", &condition.type_, &says(condition)));
    }
    let is_own = |endpoint: &&Endpoint| {
        endpoint.namespace().as_deref() == Some(&*namespace) && endpoint.spec.load_balancer == name
    };
    for endpoint in objects.endpoints.iter().filter(is_own) {
        rows.push(endpoint_says(endpoint));
    }
    if balancer.metadata.deletion_timestamp.is_some() {
        rows.push(step("deletion", "", "its Envoy is drained, then its endpoints and its address are released"));
    }
    let ready = find(conditions, ConditionKind::Ready.as_str());
    let yes = ready.is_some_and(|ready| ready.status == "True");
    let summary = match ready {
        None => format!("LoadBalancer {account}/{name} has no status yet: does the operator run with gateway?"),
        Some(_) if yes => format!("LoadBalancer {account}/{name} is served at {}", balancer.spec.public_address),
        Some(ready) => format!("LoadBalancer {account}/{name} is not served: {}: {}", ready.reason, ready.message),
    };
    Ok(QueryResult { columns: STEPS, rows, summary, yes, warnings: Vec::new() })
}

fn found<'a>(objects: &'a Objects, text: &str) -> Result<&'a LoadBalancer, QueryError> {
    let hint = || "name it ACCOUNT/NAME; list them: kubectl get loadbalancers.egw.acnodal.io -A".to_owned();
    let Some((account, name)) = text.split_once('/') else {
        return Err(QueryError::Invalid { what: format!("`{text}` names no account"), hint: hint() });
    };
    let namespaces = [namespace_of(account), account.to_owned()];
    let is_meant = |balancer: &&LoadBalancer| {
        balancer.name_any() == name && balancer.namespace().is_some_and(|own| namespaces.contains(&own))
    };
    let missing = || QueryError::NotFound { what: format!("there is no LoadBalancer `{text}`"), hint: hint() };
    objects.load_balancers.iter().find(is_meant).ok_or_else(missing)
}

fn account_says(objects: &Objects, name: &str) -> Row {
    let Some(account) = objects.accounts.iter().find(|account| account.name_any() == name) else {
        return step("account", name, "does not exist: create it in namespace egw");
    };
    let namespace = namespace_of(name);
    let own = |one: &&LoadBalancer| one.namespace().as_deref() == Some(&*namespace);
    let count = objects.load_balancers.iter().filter(own).count();
    let limit = account.spec.limits.as_ref().and_then(|limits| limits.load_balancers);
    let limit = limit.map_or_else(String::new, |limit| format!(" of {limit}"));
    step("account", name, &format!("has key {} and {count}{limit} LoadBalancers", account.spec.gue_key))
}

fn pool_says(objects: &Objects, namespace: &str, group: &str) -> Vec<Row> {
    let found =
        objects.groups.iter().find(|one| one.name_any() == group && one.namespace().as_deref() == Some(namespace));
    let Some(found) = found else {
        return vec![step("servicegroup", group, "does not exist: create it")];
    };
    let prefix = &found.spec.service_prefix;
    let own = step("servicegroup", group, &format!("takes addresses from ServicePrefix {prefix}"));
    let name = prefix.split_once('/').map_or("", |(_, name)| name);
    let says = match objects.prefixes.iter().find(|one| one.name_any() == name) {
        None => "does not exist: create it in namespace egw".to_owned(),
        Some(object) => {
            let counts = object.status.as_ref().and_then(|status| status.addresses.clone()).unwrap_or_default();
            format!(
                "{}: {} of {} addresses in use, {} in quarantine",
                object.spec.pool, counts.in_use, counts.capacity, counts.quarantined
            )
        }
    };
    vec![own, step("serviceprefix", name, &says)]
}

fn key_says(key: u32) -> String {
    if key == 0 {
        return "none yet".to_owned();
    }
    let GueKey { account, service } = GueKey::split(key);
    format!("account {account}, service {service}")
}

fn address_says(objects: &Objects, balancer: &LoadBalancer) -> Row {
    let (address, uid) = (&balancer.spec.public_address, balancer.uid().unwrap_or_default());
    let claim = objects.claims.iter().find_map(|claim| {
        let section = claim.spec.gateway.as_ref()?;
        section.holders.iter().any(|holder| holder.uid == uid).then_some((claim, section))
    });
    let says = match claim {
        None if address.is_empty() => "no address is claimed for it".to_owned(),
        None => "no AddressClaim names it as its holder".to_owned(),
        Some((claim, section)) if section.holders.len() == 1 => format!("claimed for it alone by {}", claim.name_any()),
        Some((claim, section)) => {
            format!("claimed by {}, which {} LoadBalancers share", claim.name_any(), section.holders.len())
        }
    };
    step("address", if address.is_empty() { "none" } else { address }, &says)
}

fn endpoint_says(endpoint: &Endpoint) -> Row {
    let conditions = endpoint.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
    let spec = &endpoint.spec;
    let bad = conditions.iter().find(|condition| condition.status != "True");
    let state = match bad {
        None if conditions.is_empty() => "no status yet".to_owned(),
        None => "in service".to_owned(),
        Some(condition) => says(condition),
    };
    let place = format!("{} port {} on node {}", spec.address, spec.port.port, spec.node_address);
    step("endpoint", &endpoint.name_any(), &format!("{place}: {state}"))
}

fn says(condition: &Condition) -> String {
    match &*condition.status {
        "True" => condition.message.clone(),
        _ => format!("{}: {}", condition.reason, condition.message),
    }
}

fn step(place: &str, name: &str, says: &str) -> Row {
    row([("place", json!(place)), ("name", json!(name)), ("says", json!(says))])
}
