//! Says on policies and gateways what was done, and why not. Nothing is written that stands there already.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::core::object::HasStatus;
use portolan_api::address_claim::HoldingState;
use portolan_api::egress::{
    EgressGateway, EgressGatewayStatus, EgressPolicyStatus, EipEntry, GrantedEip, IpUsage, NodeEntry, PolicyReference,
};
use portolan_api::well_known::{conditions, reasons};
use portolan_core::egress::{Binding, Eip, GatewayName, PolicyName, Unmet};
use tokio::time::Instant;

use super::act::acting::Acting;
use super::model::{Model, phase};
use super::observe::Cache;
use super::selected::Shadow;
use super::validate::{PolicyView, Problem};
use crate::runtime::conditions::condition;
use crate::runtime::due::Prepared;
use crate::runtime::events::{EventDetails, EventType};
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::Kind;
use crate::runtime::write::Wrote;

/// At most this many policies are named in a gateway's status.
const NAMED: usize = 1_000;

/// How long an object without a status waits for what it lacks: one `kubectl apply` may create it a moment later, or a
/// node may be about to be ready.
const ARRIVAL: Duration = Duration::from_secs(1);

/// What the status of a policy needs. Its first address is not shown before its node has taken it, but after
/// `await_holder` at the latest: nearly always one write then shows both.
pub(super) fn prepare_policy(
    acting: &Acting<'_>,
    name: &PolicyName,
    since: Instant,
    await_holder: Duration,
) -> Prepared<()> {
    let Acting { cache, model, .. } = acting;
    let (first_shown, arrived) = (since + await_holder, since + ARRIVAL.min(await_holder));
    if model.planner.binding(name).is_none() && Instant::now() < arrived && !has_status(cache, name) {
        return Prepared::At(arrived);
    }
    if let Some(binding) = model.planner.binding(name) {
        match (is_recorded(cache, &binding), was_granted(cache, name)) {
            // what it has been shown stays until the claims say what was planned
            (false, true) => return Prepared::Nothing,
            (true, false) if pending(cache, &binding).is_none() => {}
            (_, false) if Instant::now() < first_shown => return Prepared::At(first_shown),
            (true, true) | (_, false) => {}
        }
    }
    let key = key(name);
    if name.namespace.is_some() {
        let policy = cache.policies.get(&key);
        policy.map_or(Prepared::Nothing, |policy| policy_status(acting, name, &cache.policies, policy))
    } else {
        let policy = cache.cluster_policies.get(&key);
        policy.map_or(Prepared::Nothing, |policy| policy_status(acting, name, &cache.cluster_policies, policy))
    }
}

/// True when the claims say what was planned.
fn is_recorded(cache: &Cache, binding: &Binding) -> bool {
    binding.eip.addresses().all(|address| {
        let claim = cache.claim(address);
        let record = claim.as_ref().and_then(|claim| claim.spec.egress.as_ref());
        record.is_some_and(|record| {
            record.gateway == *binding.gateway && record.node.as_deref() == binding.node.as_deref()
        })
    })
}

fn was_granted(cache: &Cache, name: &PolicyName) -> bool {
    of_policy(cache, name, |policy| policy.granted().is_some())
}

fn has_status(cache: &Cache, name: &PolicyName) -> bool {
    of_policy(cache, name, |policy| policy.status.is_some_and(|status| !status.conditions.is_empty()))
}

/// Whether a policy is there, and so.
fn of_policy(cache: &Cache, name: &PolicyName, is_so: impl Fn(PolicyView<'_>) -> bool) -> bool {
    let key = key(name);
    if name.namespace.is_some() {
        cache.policies.get(&key).is_some_and(|policy| is_so(PolicyView::from(&*policy)))
    } else {
        cache.cluster_policies.get(&key).is_some_and(|policy| is_so(PolicyView::from(&*policy)))
    }
}

fn key(name: &PolicyName) -> Key {
    Key { namespace: name.namespace.as_deref().unwrap_or_default().to_owned(), name: name.name.to_string() }
}

fn policy_status<K>(acting: &Acting<'_>, name: &PolicyName, store: &Store<K>, seen: Arc<K>) -> Prepared<()>
where
    K: Kind + HasStatus<Status = EgressPolicyStatus>,
{
    if seen.meta().deletion_timestamp.is_some() {
        return Prepared::Nothing;
    }
    let Acting { writer, recorder, cache, model } = acting;
    let binding = model.planner.binding(name).filter(|binding| is_recorded(cache, binding));
    let want = wanted(cache, model, name, binding.as_ref(), seen.meta().generation.unwrap_or_default());
    let host_network_pod = model.selected.on_host(name).map(ToString::to_string);
    let (writer, recorder, store) = ((*writer).clone(), (*recorder).clone(), store.clone());
    Prepared::write(async move {
        if writer.status(&store, seen.as_ref(), &want).await? == Wrote::Unchanged {
            return Ok(());
        }
        let before = seen.status().and_then(|status| status.eip.as_ref());
        if let Some(eip) = want.eip.filter(|eip| before != Some(eip)) {
            let node = want.node.unwrap_or_default();
            let note = format!("leaves with {} through node {node}", text(&eip));
            let details = EventDetails { reason: "EIPAssigned", action: "Assign", note: &note };
            recorder.record(seen.as_ref(), EventType::Normal, &details);
        }
        if let Some(pod) = host_network_pod {
            let note = format!(
                "pod {pod} uses the host network and keeps its node's address: policies serve pods with an address of their own"
            );
            let details = EventDetails { reason: "HostNetworkPod", action: "Select", note: &note };
            recorder.record(seen.as_ref(), EventType::Warning, &details);
        }
        Ok(())
    })
}

fn text(eip: &GrantedEip) -> String {
    [eip.ipv4.as_deref(), eip.ipv6.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

/// The status of a policy, transition times aside.
pub(super) fn wanted(
    cache: &Cache,
    model: &Model,
    name: &PolicyName,
    binding: Option<&Binding>,
    generation: i64,
) -> EgressPolicyStatus {
    let (not_accepted, mut not_programmed) = obstacles(model, name);
    if not_programmed.is_none() {
        not_programmed = match binding {
            None => Some(Problem::new(reasons::NOT_PROGRAMMED, "nothing was granted yet")),
            Some(binding) => pending(cache, binding),
        };
    }
    if not_programmed.is_none()
        && let Some(shadow) = model.selected.shadowed_by(name)
    {
        let message = match shadow {
            Shadow::Winner(winner) => format!(
                "policy `{winner}` wins for every pod and destination of this one: raise spec.priority, or delete one of the two"
            ),
            Shadow::NeverServed => {
                "every destination it names is link-local, loopback or multicast, which never leaves: name others"
                    .to_owned()
            }
        };
        not_programmed = Some(Problem::new(reasons::SHADOWED, message));
    }
    let eip = binding.map(|binding| binding.eip).filter(|eip| !eip.is_none()).map(granted);
    EgressPolicyStatus {
        eip,
        node: binding.and_then(|binding| binding.node.as_deref().map(str::to_owned)),
        observed_generation: Some(generation),
        conditions: summed(not_accepted.as_ref(), not_programmed.as_ref(), generation),
    }
}

fn granted(eip: Eip) -> GrantedEip {
    GrantedEip { ipv4: eip.v4.map(|address| address.to_string()), ipv6: eip.v6.map(|address| address.to_string()) }
}

/// What stands against a policy: the user must edit something, or something is missing in the cluster.
pub(super) fn obstacles(model: &Model, name: &PolicyName) -> (Option<Problem>, Option<Problem>) {
    let problem = model.problems.get(name).cloned();
    let Some(unmet) = model.planner.unmet(name) else { return (problem, None) };
    let (reason, must_edit) = match unmet {
        Unmet::Refused => (reasons::INVALID, true),
        Unmet::GatewayNotFound => (reasons::GATEWAY_NOT_FOUND, true),
        Unmet::OutsidePool(_) => (reasons::OUTSIDE_POOL, true),
        Unmet::PairMismatch(..) => (reasons::PAIR_MISMATCH, true),
        Unmet::NotAllowed(_) => (reasons::NOT_ALLOWED, true),
        Unmet::ImmutableField => (reasons::IMMUTABLE_FIELD, true),
        Unmet::Taken(_) => (reasons::NOT_PROGRAMMED, false),
        Unmet::NoReadyNode => (reasons::NO_READY_NODE, false),
        Unmet::NoCapacity => (reasons::NO_CAPACITY, false),
        Unmet::PoolEmpty => (reasons::POOL_EMPTY, false),
        Unmet::SlotsExhausted => (reasons::SLOTS_EXHAUSTED, false),
    };
    let told = Problem::new(reason, unmet.to_string());
    if must_edit { (Some(problem.unwrap_or(told)), None) } else { (problem, Some(told)) }
}

/// What keeps a granted address from being in force.
fn pending(cache: &Cache, binding: &Binding) -> Option<Problem> {
    let node = binding.node.as_deref()?;
    let waiting = binding.eip.addresses().find(|address| !is_held(cache, *address, node))?;
    let message = format!("node `{node}` has not taken address {waiting} yet");
    Some(Problem::new(reasons::NOT_PROGRAMMED, message))
}

/// True when the node says that it has the address, as it was last placed.
pub(super) fn is_held(cache: &Cache, address: IpAddr, node: &str) -> bool {
    let claim = cache.claim(address);
    claim.is_some_and(|claim| {
        let epoch = claim.spec.egress.as_ref().map(|record| record.epoch);
        let holding = claim.status.as_ref().and_then(|status| status.egress.as_ref());
        holding.is_some_and(|holding| {
            holding.state == Some(HoldingState::Held) && holding.epoch == epoch && holding.node.as_deref() == Some(node)
        })
    })
}

fn summed(accepted: Option<&Problem>, programmed: Option<&Problem>, generation: i64) -> Vec<Condition> {
    let part = |kind, problem: Option<&Problem>, fine| match problem {
        Some(problem) => condition(kind, Some(false), problem.reason, problem.message.clone(), generation),
        None => condition(kind, Some(true), fine, "", generation),
    };
    vec![
        part(conditions::ACCEPTED, accepted, reasons::ACCEPTED),
        part(conditions::PROGRAMMED, programmed, reasons::PROGRAMMED),
        part(conditions::READY, accepted.or(programmed), reasons::PROGRAMMED),
    ]
}

/// What the status of a gateway needs.
pub(super) fn prepare_gateway(
    acting: &Acting<'_>,
    name: &GatewayName,
    since: Instant,
    await_holder: Duration,
) -> Prepared<()> {
    let Acting { writer, recorder, cache, model } = acting;
    let Some(seen) = cache.gateways.get(&Key::of_cluster(name)) else { return Prepared::Nothing };
    // One that only just got its finalizer has another version by now; it is shown when that was seen.
    if seen.metadata.deletion_timestamp.is_none() && seen.finalizers().is_empty() {
        return Prepared::Nothing;
    }
    let has_status = seen.status.as_ref().is_some_and(|status| !status.conditions.is_empty());
    let arrived = since + ARRIVAL.min(await_holder);
    if !has_status && model.planner.ready_nodes(name).is_empty() && Instant::now() < arrived {
        return Prepared::At(arrived);
    }
    let want = gateway_wanted(cache, model, &seen);
    let (writer, recorder, gateways) = ((*writer).clone(), (*recorder).clone(), cache.gateways.clone());
    Prepared::write(async move {
        if writer.status(&gateways, seen.as_ref(), &want).await? == Wrote::Unchanged {
            return Ok(());
        }
        let before = seen.status.as_ref().and_then(|status| status.ip_usage.clone()).unwrap_or_default();
        if let Some(usage) = &want.ip_usage
            && nearly_exhausted(usage)
            && !nearly_exhausted(&before)
        {
            let note = format!(
                "{} of {} IPv4 and {} of {} IPv6 addresses are free: add a range, or delete policies",
                usage.ipv4_free, usage.ipv4_total, usage.ipv6_free, usage.ipv6_total
            );
            let details = EventDetails { reason: "PoolExhausted", action: "Allocate", note: &note };
            recorder.record(seen.as_ref(), EventType::Warning, &details);
        }
        Ok(())
    })
}

/// Nine tenths of a family or more are in use.
fn nearly_exhausted(usage: &IpUsage) -> bool {
    let full = |free: i64, total: i64| total > 0 && free * 10 <= total;
    full(usage.ipv4_free, usage.ipv4_total) || full(usage.ipv6_free, usage.ipv6_total)
}

/// The status of a gateway, transition times aside.
pub(super) fn gateway_wanted(cache: &Cache, model: &Model, seen: &EgressGateway) -> EgressGatewayStatus {
    let name: GatewayName = seen.name_any().into();
    let generation = seen.metadata.generation.unwrap_or_default();
    let view = model.planner.view(&name, NAMED).unwrap_or_default();
    let listed: usize = view.nodes.values().flatten().map(|entry| entry.policies.len()).sum();
    let node_list = view.nodes.iter().map(|(node, entries)| NodeEntry {
        name: node.to_string(),
        status: phase(cache, node).as_str().to_owned(),
        eips: entries
            .iter()
            .map(|entry| EipEntry {
                ipv4: entry.eip.v4.map(|address| address.to_string()).unwrap_or_default(),
                ipv6: entry.eip.v6.map(|address| address.to_string()).unwrap_or_default(),
                policies: entry.policies.iter().map(reference).collect(),
            })
            .collect(),
        epis: Vec::new(),
    });
    let not_accepted = held(model, seen).or_else(|| {
        let refusal = model.gateways.by_name.get(&name).and_then(|checked| checked.refusal(false));
        refusal.or_else(|| shrunk(model, &name))
    });
    let dark = model.planner.ready_nodes(&name).is_empty();
    let not_programmed = dark.then(|| Problem::new(reasons::NO_READY_NODE, Unmet::NoReadyNode.to_string()));
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let truncated = u64::try_from(listed).unwrap_or(u64::MAX) < view.policies;
    EgressGatewayStatus {
        node_list: node_list.collect(),
        ip_usage: Some(IpUsage {
            ipv4_total: count(view.total[0]),
            ipv4_free: count(view.free[0]),
            ipv6_total: count(view.total[1]),
            ipv6_free: count(view.free[1]),
        }),
        policy_count: Some(count(view.policies)),
        truncated: truncated.then_some(true),
        observed_generation: Some(generation),
        conditions: summed(not_accepted.as_ref(), not_programmed.as_ref(), generation),
    }
}

/// At most this many policies are named where something is said about a gateway.
const EXAMPLES: usize = 3;

/// Why a gateway that is being deleted is still there, and what ends it.
fn held(model: &Model, gateway: &EgressGateway) -> Option<Problem> {
    gateway.metadata.deletion_timestamp.as_ref()?;
    let (policies, count) = model.planner.policies_of(&gateway.name_any(), EXAMPLES);
    let message = if policies.is_empty() {
        "it is being deleted: it goes when its nodes have released its addresses".to_owned()
    } else {
        let names: Vec<String> = policies.iter().map(|policy| format!("`{policy}`")).collect();
        let more = count.saturating_sub(policies.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "it is being deleted and held by {} {}{more}: delete them, or recreate them with another gateway in \
             spec.egressGatewayName; until then it serves them and no others",
            if count == 1 { "policy" } else { "policies" },
            names.join(", ")
        )
    };
    Some(Problem::new(reasons::DELETING, message))
}

/// An address in use that is no longer in the pool.
pub(super) fn shrunk(model: &Model, gateway: &GatewayName) -> Option<Problem> {
    let address = model.planner.outside_pool(gateway)?;
    let message = format!(
        "address {address} is in use but no longer in the pool: put it back, or delete the policies that use it"
    );
    Some(Problem::new(reasons::POOL_SHRUNK_IN_USE, message))
}

fn reference(policy: &PolicyName) -> PolicyReference {
    PolicyReference {
        name: policy.name.to_string(),
        namespace: policy.namespace.as_deref().unwrap_or_default().to_owned(),
    }
}
