//! What `portolan plan`, `why` and `status` can ask of ipam. The cloud itself is not asked: the journal says what is
//! where, and `portolan doctor` compares it with the cloud.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use kube::Client;
use portolan_core::ipam::{Action, AddressList, Claim, Journal, State, Step, World};
use serde_json::{Value, json};

use super::backend::Network;
use super::doctor;
use super::snapshot::{IDLE, Known, Objects};
use super::why::{claims_of, is_served, why};
use crate::runtime::capability::{Queries, Why};
use crate::runtime::query::{Column, QueryError, QueryResult, Row, column, row, wide};

/// What users can ask.
pub(super) const QUERIES: Queries = Queries {
    plan: |client, changes| Box::pin(plan(client, changes)),
    why: &[Why {
        words: &["namespace", "ns", "namespaces"],
        about: "NAME of a namespace that asks for egress addresses",
        explain: |client, name, _| Box::pin(async move { why(&Objects::read(&client).await?.known(), &name) }),
    }],
    status: |client| Box::pin(status(client)),
    node_loss: Some(|client, node| Box::pin(node_loss(client, node))),
    doctor: |client, examination| Box::pin(doctor::examine(client, examination)),
};

/// What the cloud alone knows.
const ASSUMED: &str = "the cloud was not asked: room on nodes and free addresses are not judged";

/// What applying these namespaces would change.
async fn plan(client: Client, changes: Vec<Value>) -> Result<QueryResult, QueryError> {
    let objects = Objects::read(&client).await?;
    let mut changed = objects.clone();
    changed.overlay(&changes)?;
    let before = objects.known();
    if !before.is_served() {
        return Ok(QueryResult { warnings: vec![IDLE.to_owned()], ..QueryResult::of_changes(Vec::new()) });
    }
    let mut after = changed.known();
    let journal = &before.journal;
    let mut rows = Vec::new();
    for (name, namespace) in after.world.namespaces.iter_mut().filter(|(_, namespace)| namespace.opted_in) {
        let is_new = before.world.namespaces.get(name) != Some(&*namespace);
        let AddressList::Addresses(list) = AddressList::parse(namespace.egressips.as_deref()) else { continue };
        let unknown = list.iter().filter(|address| !owns(journal, name, **address)).filter(|_| is_new);
        let asked: Vec<Row> = unknown.map(|address| requested(name, *address, journal)).collect();
        if !asked.is_empty() {
            // Only the cloud knows the subnets of these addresses, so nothing else of the namespace can be planned.
            namespace.clone_from(before.world.namespaces.get(name).unwrap_or(&<_>::default()));
            rows.extend(asked);
        }
    }
    rows.extend(differences(&before, &after));
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
    let before = objects.known();
    let rows = match before.network {
        Network::Ovn => left_to_ovn(&before.journal, &node),
        Network::Sdn | Network::Absent | Network::Ambiguous => differences(&before, &without.known()),
    };
    let warnings = if rows.is_empty() { Vec::new() } else { vec![ASSUMED.to_owned()] };
    Ok(QueryResult { warnings, ..QueryResult::of_changes(rows) })
}

const OVN_CHOOSES: &str = "OVN-Kubernetes chooses the node";

/// The addresses of a node that OVN-Kubernetes would move.
fn left_to_ovn(journal: &Journal, node: &str) -> Vec<Row> {
    let hosted = journal.claims.iter().filter(|(_, claim)| claim.status.node.as_deref() == Some(node));
    let live = hosted.filter(|(_, claim)| claim.status.state != State::Releasing);
    live.map(|(address, _)| change(&format!("address {address}"), "moved", Some(node), None, OVN_CHOOSES)).collect()
}

/// What one plan does and the other does not.
fn differences(before: &Known, after: &Known) -> Vec<Row> {
    let mut rows = Vec::new();
    let (now, then) = (before.planned(), after.planned());
    for action in then.actions.iter().filter(|action| !now.actions.contains(action)) {
        rows.extend(shown(action, before));
    }
    for unmet in then.unmet.iter().filter(|unmet| !now.unmet.contains(unmet)) {
        rows.push(change(&format!("namespace {}", unmet.namespace), unmet.reason.as_str(), None, None, &unmet.message));
    }
    rows
}

/// An action as a change; none for what only follows from others.
fn shown(action: &Action, known: &Known) -> Option<Row> {
    let journal = &known.journal;
    match action {
        Action::CreateClaim(write) => {
            let spec = &write.claim.spec;
            let done = format!("gets an address in zone {}", spec.zone);
            let (node, why) = match known.network {
                Network::Ovn => (None, OVN_CHOOSES),
                Network::Sdn | Network::Absent | Network::Ambiguous => {
                    (Some(&*spec.node), "the node of the zone with the fewest addresses")
                }
            };
            Some(change(&format!("namespace {}", spec.owner.name), &done, None, node, why))
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
    let known = Objects::read(&client).await?.known();
    let Known { world, journal, .. } = &known;
    let owners = journal.claims.values().filter(|claim| !claim.is_cooling()).map(|claim| &claim.spec.owner.name);
    let opted_in = world.namespaces.iter().filter(|(_, namespace)| namespace.opted_in).map(|(name, _)| name);
    let names: BTreeSet<_> = owners.chain(opted_in).collect();
    let rows: Vec<Row> = names.iter().map(|name| namespace_row(world, journal, name)).collect();
    let served = rows.iter().filter(|row| row["served"] == true).count();
    let summary = match rows.len() {
        0 => "no namespace asks for egress addresses".to_owned(),
        all => format!("{served} of {all} namespaces are served"),
    };
    let is_idle = !known.is_served() && !rows.is_empty();
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
