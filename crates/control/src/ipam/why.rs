//! `portolan why namespace`: every place that an address passes, and what is said there.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use portolan_core::ipam::ovn::Ovn;
use portolan_core::ipam::{AddressList, Assigned, Claim, Journal, PrivateIp, State, World};
use serde_json::json;

use super::backend::Network;
use super::names::EGRESSIPAM;
use super::snapshot::{IDLE, Known};
use crate::runtime::query::{Column, QueryError, QueryResult, Row, column, row};

const STEPS: &[Column] = &[column("place", "PLACE"), column("name", "NAME"), column("says", "SAYS")];

/// Why a namespace has its addresses, or has none.
pub(super) fn why(known: &Known, name: &str) -> Result<QueryResult, QueryError> {
    let Known { world, journal, .. } = known;
    let Some(namespace) = world.namespaces.get(name) else {
        return Err(QueryError::NotFound {
            what: format!("there is no namespace `{name}`"),
            hint: "list them: kubectl get namespaces".to_owned(),
        });
    };
    let mut rows = Vec::new();
    let asks = if namespace.opted_in {
        "asks for egress addresses".to_owned()
    } else {
        format!("does not ask for egress addresses: kubectl annotate namespace {name} {EGRESSIPAM}=yes")
    };
    rows.push(step("namespace", name, &asks));
    if let Some(list) = &namespace.egressips {
        rows.push(step("namespace", "egressips", list));
    }
    if !known.is_served() {
        rows.push(step("cluster", "", IDLE));
    }
    let claims = claims_of(journal, name);
    for (address, claim) in &claims {
        rows.push(step("address", &address.to_string(), &claim_says(claim)));
        if known.network == Network::Sdn {
            rows.push(step("hostsubnet", &claim.spec.node, &hosts_say(world, **address, claim)));
        }
        if known.network == Network::Ovn || world.cloud_controller.is_some() {
            let says = private_ip_says(known.ovn.private_ips.get(*address));
            rows.push(step("cloudprivateipconfig", &address.to_string(), &says));
        }
    }
    match known.network {
        Network::Sdn => rows.push(step("netnamespace", name, &net_namespace_says(world, name))),
        Network::Ovn => rows.push(egress_ip_step(&known.ovn, name)),
        Network::Absent | Network::Ambiguous => {}
    }
    if let Some(status) = &namespace.status {
        rows.push(step("unmet", "", status));
    }
    let is_served = is_served(&claims) && namespace.status.is_none();
    let summary = match (namespace.opted_in, is_served) {
        (true, true) => format!("namespace {name} is served with {} addresses", claims.len()),
        (true, false) if claims.is_empty() && namespace.status.is_none() => {
            format!("namespace {name} waits for its addresses: does the operator run with ipam?")
        }
        (true, false) => format!("namespace {name} is not served yet"),
        (false, _) if claims.is_empty() => format!("namespace {name} asks for no addresses"),
        (false, _) => format!("the addresses of namespace {name} are being released"),
    };
    let yes = if namespace.opted_in { is_served } else { claims.is_empty() };
    Ok(QueryResult { columns: STEPS, rows, summary, yes, warnings: Vec::new() })
}

/// The addresses that a namespace has, gets, or gives back.
pub(super) fn claims_of<'a>(journal: &'a Journal, name: &str) -> BTreeMap<&'a Ipv4Addr, &'a Claim> {
    journal.claims.iter().filter(|(_, claim)| &*claim.spec.owner.name == name && !claim.is_cooling()).collect()
}

pub(super) fn is_served(claims: &BTreeMap<&Ipv4Addr, &Claim>) -> bool {
    !claims.is_empty() && claims.values().all(|claim| claim.status.state == State::Published)
}

fn claim_says(claim: &Claim) -> String {
    let state = claim.status.state.as_str();
    let requested = if claim.spec.requested { ", requested by name" } else { "" };
    let failed = claim.status.last_error.as_ref().map_or_else(String::new, |failure| {
        format!("; {} attempts failed, the last with: {}", claim.status.attempts, failure.error)
    });
    format!("{state} in zone {}, for node {}{requested}{failed}", claim.spec.zone, claim.spec.node)
}

fn hosts_say(world: &World, address: Ipv4Addr, claim: &Claim) -> String {
    let hosts = world.host_subnets.iter().filter(|(_, subnet)| subnet.egress_ips.contains(&address));
    let hosts: Vec<&str> = hosts.map(|(name, _)| &**name).collect();
    match hosts[..] {
        [] => format!("no HostSubnet lists {address}"),
        [host] if host == &*claim.spec.node => format!("lists {address}"),
        [..] => format!("{address} is listed by {} and should be by {}", hosts.join(", "), claim.spec.node),
    }
}

fn net_namespace_says(world: &World, name: &str) -> String {
    match world.net_namespaces.get(name) {
        None => "does not exist: OpenShift SDN makes it".to_owned(),
        Some(object) if object.egress_ips.is_empty() => "lists no egress addresses".to_owned(),
        Some(object) => format!("lists {}", AddressList::format(&object.egress_ips)),
    }
}

/// What the EgressIP of a namespace says.
fn egress_ip_step(ovn: &Ovn, name: &str) -> Row {
    let Some(found) = ovn.egress_ips.get(name) else {
        return step("egressip", name, "does not exist: the operator makes it");
    };
    let placed = found.addresses.iter().map(|address| match found.items.get(address) {
        Some(node) => format!("{address}, assigned to node {node}"),
        None => format!("{address}, assigned to no node: kubectl describe egressip {}", found.name),
    });
    let edited =
        if found.is_intact { "" } else { "; its selector was changed, and does not select this namespace alone" };
    let placed: Vec<String> = placed.collect();
    step("egressip", &found.name, &format!("lists {}{edited}", placed.join("; ")))
}

/// What a CloudPrivateIPConfig says.
fn private_ip_says(found: Option<&PrivateIp>) -> String {
    let Some(found) = found else {
        return "does not exist: the network plugin makes it for the node that it chose".to_owned();
    };
    let node = found.status.node.as_ref().unwrap_or(&found.wanted);
    match &found.status.assigned {
        Assigned::Yes => format!("attached to node {node}"),
        Assigned::Pending => format!("to be attached to node {node}"),
        Assigned::Failed(message) => format!("not attached to node {}: {message}", found.wanted),
    }
}

fn step(place: &str, name: &str, says: &str) -> Row {
    row([("place", json!(place)), ("name", json!(name)), ("says", json!(says))])
}
