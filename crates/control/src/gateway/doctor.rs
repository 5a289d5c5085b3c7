//! What is wrong with gateway: objects that are not ready, and what the ledgers of keys and addresses do not agree on.

use std::collections::{BTreeMap, BTreeSet};

use kube::{Client, ResourceExt as _};

use super::query::status;
use super::snapshot::Objects;
use crate::runtime::doctor::{Check, Examination, of_status};
use crate::runtime::query::{QueryError, Row};

const OBJECTS: &str = "objects";
const CLAIMS: &str = "address-claims";
const KEYS: &str = "keys";

/// Checks everything.
pub(super) async fn examine(client: Client, examination: Examination) -> Result<Vec<Check>, QueryError> {
    let status = status(client.clone()).await?;
    examination.require(status.rows.iter().map(object), "list the objects: portolan status gateway")?;
    let objects = Objects::read(&client).await?;
    let mut checks = of_status(OBJECTS, status, &examination, judge);
    let concerns = |check: &Check| check.object.is_empty() || examination.concerns(&check.object);
    checks.extend(claims(&objects).into_iter().chain(keys(&objects)).filter(concerns));
    Ok(checks)
}

fn object(row: &Row) -> String {
    match (text(row, "account"), text(row, "name")) {
        ("", name) | (name, "") => format!("{}/{name}", text(row, "kind")),
        (account, name) => format!("{}/{account}/{name}", text(row, "kind")),
    }
}

fn judge(row: &Row) -> Option<Check> {
    let problem = text(row, "problem");
    let advice = match text(row, "kind") {
        "LoadBalancer" => format!("see each step: portolan why lb {}/{}", text(row, "account"), text(row, "name")),
        kind => format!("see its conditions: kubectl describe {}.egw.acnodal.io -A", kind.to_lowercase()),
    };
    (!problem.is_empty()).then(|| Check::fail(OBJECTS, object(row), problem, advice))
}

fn text<'a>(row: &'a Row, key: &str) -> &'a str {
    row.get(key).and_then(|value| value.as_str()).unwrap_or_default()
}

/// Each address of a load balancer has a claim that names it, and no claim names one that is gone.
fn claims(objects: &Objects) -> Vec<Check> {
    let live: BTreeSet<String> = objects.load_balancers.iter().filter_map(kube::ResourceExt::uid).collect();
    let mut held = BTreeSet::new();
    let mut checks = Vec::new();
    for claim in &objects.claims {
        for holder in claim.spec.gateway.iter().flat_map(|section| &section.holders) {
            if live.contains(&holder.uid) {
                held.insert((holder.uid.clone(), claim.name_any()));
            } else {
                let seen = format!("its holder {}/{} does not exist", holder.namespace, holder.name);
                let advice = "the operator releases it; if it stays, see the operator's log";
                checks.push(Check::warn(CLAIMS, format!("AddressClaim/{}", claim.name_any()), seen, advice));
            }
        }
    }
    for balancer in objects.load_balancers.iter().filter(|one| one.metadata.deletion_timestamp.is_none()) {
        let Ok(address) = balancer.spec.public_address.parse() else { continue };
        let name = portolan_core::net::claim_name(address);
        let is_asked_for = balancer.spec.gue_key == 0;
        if !is_asked_for && !held.contains(&(balancer.uid().unwrap_or_default(), name)) {
            let seen = format!("no AddressClaim says that it has {address}");
            let advice = "the operator claims it again, unless another has it: see its conditions";
            let object = format!("LoadBalancer/{}/{}", balancer.namespace().unwrap_or_default(), balancer.name_any());
            checks.push(Check::fail(CLAIMS, object, seen, advice));
        }
    }
    or_ok(checks, CLAIMS, "claims and load balancers agree")
}

/// No key is carried twice.
fn keys(objects: &Objects) -> Vec<Check> {
    let accounts =
        objects.accounts.iter().map(|one| (u32::from(one.spec.gue_key), format!("Account/{}", one.name_any())));
    let balancers = objects.load_balancers.iter().map(|one| {
        (one.spec.gue_key, format!("LoadBalancer/{}/{}", one.namespace().unwrap_or_default(), one.name_any()))
    });
    let mut checks = twice(accounts);
    checks.extend(twice(balancers));
    or_ok(checks, KEYS, "no key is carried twice")
}

fn twice(keys: impl Iterator<Item = (u32, String)>) -> Vec<Check> {
    let mut holders: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (key, object) in keys.filter(|(key, _)| *key != 0) {
        holders.entry(key).or_default().push(object);
    }
    let doubled = holders.into_iter().filter(|(_, objects)| objects.len() > 1);
    let check = |(key, objects): (u32, Vec<String>)| {
        let seen = format!("key {key} is carried by {}", objects.join(" and "));
        Check::fail(KEYS, objects[0].clone(), seen, "delete and recreate the younger: it gets a new key")
    };
    doubled.map(check).collect()
}

fn or_ok(checks: Vec<Check>, name: &'static str, seen: &str) -> Vec<Check> {
    if checks.is_empty() { vec![Check::ok(name, seen)] } else { checks }
}
