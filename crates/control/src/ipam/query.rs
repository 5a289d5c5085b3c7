//! What `portolan plan`, `why` and `status` can ask of ipam. The cloud itself is not asked: the journal says what is
//! where, and `portolan doctor` compares it with the cloud.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use kube::Client;
use portolan_core::ipam::{Action, AddressList, Claim, Journal, Plan, State, Step, World};
use serde_json::{Value, json};

use super::doctor;
use super::names::EGRESSIPAM;
use super::snapshot::{Objects, planned};
use crate::runtime::capability::{Queries, Why};
use crate::runtime::query::{Column, QueryError, QueryResult, Row, column, row, wide};

/// What users can ask.
pub(super) const QUERIES: Queries = Queries {
    plan: |client, changes| Box::pin(plan(client, changes)),
    why: &[Why {
        words: &["namespace", "ns", "namespaces"],
        about: "NAME of a namespace that asks for egress addresses",
        explain: |client, name, _| Box::pin(why(client, name)),
    }],
    status: |client| Box::pin(status(client)),
    node_loss: Some(|client, node| Box::pin(node_loss(client, node))),
    doctor: |client, examination| Box::pin(doctor::examine(client, examination)),
};

/// What the cloud alone knows.
const ASSUMED: &str = "the cloud was not asked: room on nodes and free addresses are not judged";

const IDLE: &str = "the cluster has no NetNamespaces and HostSubnets of OpenShift SDN: ipam does nothing, unless there is \
    OVN-Kubernetes, for which this knows no more";

/// What applying these namespaces would change.
async fn plan(client: Client, changes: Vec<Value>) -> Result<QueryResult, QueryError> {
    let objects = Objects::read(&client).await?;
    let mut changed = objects.clone();
    changed.overlay(&changes)?;
    if !objects.is_served() {
        return Ok(QueryResult { warnings: vec![IDLE.to_owned()], ..QueryResult::of_changes(Vec::new()) });
    }
    let (before, journal) = objects.world();
    let (mut after, _) = changed.world();
    let mut rows = Vec::new();
    for (name, namespace) in after.namespaces.iter_mut().filter(|(_, namespace)| namespace.opted_in) {
        let is_new = before.namespaces.get(name) != Some(&*namespace);
        let AddressList::Addresses(list) = AddressList::parse(namespace.egressips.as_deref()) else { continue };
        let unknown = list.iter().filter(|address| !owns(&journal, name, **address)).filter(|_| is_new);
        let asked: Vec<Row> = unknown.map(|address| requested(name, *address, &journal)).collect();
        if !asked.is_empty() {
            // Only the cloud knows the subnets of these addresses, so nothing else of the namespace can be planned.
            namespace.clone_from(before.namespaces.get(name).unwrap_or(&<_>::default()));
            rows.extend(asked);
        }
    }
    rows.extend(differences(&planned(&before, &journal), &planned(&after, &journal), &journal));
    let warnings = if rows.is_empty() { Vec::new() } else { vec![ASSUMED.to_owned()] };
    Ok(QueryResult { warnings, ..QueryResult::of_changes(rows) })
}

fn owns(journal: &Journal, namespace: &str, address: Ipv4Addr) -> bool {
    journal.claims.get(&address).is_some_and(|claim| &*claim.spec.owner.name == namespace)
}

fn requested(namespace: &str, address: Ipv4Addr, journal: &Journal) -> Row {
    let owner = journal.claims.get(&address).filter(|claim| !claim.is_cooling()).map(|claim| &claim.spec.owner.name);
    let (done, why) = match owner {
        Some(owner) => ("AddressInUse", format!("namespace {owner} has it")),
        None if journal.other_use.contains(&address) => ("AddressInUse", "another capability has it".to_owned()),
        None => ("requested", "the subnet that holds it decides the zone".to_owned()),
    };
    change(&format!("namespace {namespace}"), done, None, Some(&address.to_string()), &why)
}

/// What the loss of a node would change.
async fn node_loss(client: Client, node: String) -> Result<QueryResult, QueryError> {
    let objects = Objects::read(&client).await?;
    let mut without = objects.clone();
    without.lose(&node)?;
    let (before, journal) = objects.world();
    let (after, _) = without.world();
    let rows = differences(&planned(&before, &journal), &planned(&after, &journal), &journal);
    let warnings = if rows.is_empty() { Vec::new() } else { vec![ASSUMED.to_owned()] };
    Ok(QueryResult { warnings, ..QueryResult::of_changes(rows) })
}

/// What one plan does and the other does not.
fn differences(before: &Plan, after: &Plan, journal: &Journal) -> Vec<Row> {
    let mut rows = Vec::new();
    for action in after.actions.iter().filter(|action| !before.actions.contains(action)) {
        rows.extend(shown(action, journal));
    }
    for unmet in after.unmet.iter().filter(|unmet| !before.unmet.contains(unmet)) {
        rows.push(change(&format!("namespace {}", unmet.namespace), unmet.reason.as_str(), None, None, &unmet.message));
    }
    rows
}

/// An action as a change; none for what only follows from others.
fn shown(action: &Action, journal: &Journal) -> Option<Row> {
    match action {
        Action::CreateClaim(write) => {
            let spec = &write.claim.spec;
            let done = format!("gets an address in zone {}", spec.zone);
            let why = "the node of the zone with the fewest addresses";
            Some(change(&format!("namespace {}", spec.owner.name), &done, None, Some(&spec.node), why))
        }
        Action::UpdateClaim(write) => {
            let done = match write.step {
                Step::Release | Step::RollBack => "released",
                Step::Move => "moved",
                Step::Block => "blocked",
                Step::Repair => "put there again",
                Step::Reserve | Step::Adopt | Step::Target | Step::Attached | Step::Published | Step::Gone => {
                    return None;
                }
            };
            let from = journal.claims.get(&write.address).and_then(|claim| claim.status.node.as_deref());
            let to = Some(&*write.claim.spec.node).filter(|_| matches!(write.step, Step::Move | Step::Repair));
            let why = format!("it is an address of namespace {}", write.claim.spec.owner.name);
            Some(change(&format!("address {}", write.address), done, from, to, &why))
        }
        Action::ConfirmClaim(_)
        | Action::DeleteClaim(_)
        | Action::Call(_)
        | Action::SetHostSubnet { .. }
        | Action::SetNetNamespace { .. }
        | Action::AnnotateNamespace { .. } => None,
    }
}

fn change(what: &str, done: &str, from: Option<&str>, to: Option<&str>, why: &str) -> Row {
    row([
        ("what", json!(what)),
        ("change", json!(done)),
        ("from", json!(from)),
        ("to", json!(to)),
        ("why", json!(why)),
        ("gateway", Value::Null),
    ])
}

const STEPS: &[Column] = &[column("place", "PLACE"), column("name", "NAME"), column("says", "SAYS")];

/// Why a namespace has its addresses, or has none.
async fn why(client: Client, name: String) -> Result<QueryResult, QueryError> {
    let objects = Objects::read(&client).await?;
    let (world, journal) = objects.world();
    let Some(namespace) = world.namespaces.get(name.as_str()) else {
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
    rows.push(step("namespace", &name, &asks));
    if let Some(list) = &namespace.egressips {
        rows.push(step("namespace", "egressips", list));
    }
    if !objects.is_served() {
        rows.push(step("cluster", "", IDLE));
    }
    let claims = claims_of(&journal, &name);
    for (address, claim) in &claims {
        rows.push(step("address", &address.to_string(), &claim_says(claim)));
        rows.push(step("hostsubnet", &claim.spec.node, &hosts_say(&world, **address, claim)));
    }
    rows.push(step("netnamespace", &name, &net_namespace_says(&world, &name)));
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
fn claims_of<'a>(journal: &'a Journal, name: &str) -> BTreeMap<&'a Ipv4Addr, &'a Claim> {
    journal.claims.iter().filter(|(_, claim)| &*claim.spec.owner.name == name && !claim.is_cooling()).collect()
}

fn is_served(claims: &BTreeMap<&Ipv4Addr, &Claim>) -> bool {
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

fn step(place: &str, name: &str, says: &str) -> Row {
    row([("place", json!(place)), ("name", json!(name)), ("says", json!(says))])
}

const NAMESPACES: &[Column] = &[
    column("namespace", "NAMESPACE"),
    column("served", "SERVED"),
    column("addresses", "ADDRESSES"),
    column("nodes", "NODES"),
    column("problem", "PROBLEM"),
    wide("zones", "ZONES"),
    wide("states", "STATES"),
];

/// Every namespace that asks for addresses or still has some.
async fn status(client: Client) -> Result<QueryResult, QueryError> {
    let objects = Objects::read(&client).await?;
    let (world, journal) = objects.world();
    let owners = journal.claims.values().filter(|claim| !claim.is_cooling()).map(|claim| &claim.spec.owner.name);
    let opted_in = world.namespaces.iter().filter(|(_, namespace)| namespace.opted_in).map(|(name, _)| name);
    let names: BTreeSet<_> = owners.chain(opted_in).collect();
    let rows: Vec<Row> = names.iter().map(|name| namespace_row(&world, &journal, name)).collect();
    let served = rows.iter().filter(|row| row["served"] == true).count();
    let summary = match rows.len() {
        0 => "no namespace asks for egress addresses".to_owned(),
        all => format!("{served} of {all} namespaces are served"),
    };
    let is_idle = !objects.is_served() && !rows.is_empty();
    let warnings = if is_idle { vec![IDLE.to_owned()] } else { Vec::new() };
    Ok(QueryResult { columns: NAMESPACES, yes: served == rows.len(), rows, summary, warnings })
}

fn namespace_row(world: &World, journal: &Journal, name: &str) -> Row {
    let claims = claims_of(journal, name);
    let listed = |part: fn(&Claim) -> &str| claims.values().map(|claim| part(claim)).collect::<Vec<_>>().join(",");
    let namespace = world.namespaces.get(name);
    let addresses: BTreeSet<Ipv4Addr> = claims.keys().map(|address| **address).collect();
    let problem = match namespace {
        None => "the namespace is gone, its addresses are released".to_owned(),
        Some(namespace) if !namespace.opted_in => "it opted out, its addresses are released".to_owned(),
        Some(namespace) => match &namespace.status {
            Some(status) => status.to_string(),
            None if claims.is_empty() => "no address yet: does the operator run with ipam?".to_owned(),
            None => String::new(),
        },
    };
    row([
        ("namespace", json!(name)),
        ("served", json!(is_served(&claims) && problem.is_empty())),
        ("addresses", json!(&*AddressList::format(&addresses))),
        ("nodes", json!(listed(|claim| &claim.spec.node))),
        ("problem", json!(problem)),
        ("zones", json!(listed(|claim| &claim.spec.zone))),
        ("states", json!(listed(|claim| claim.status.state.as_str()))),
    ])
}
