//! What the mirror reports: the status of RemoteClusters, and a condition on Services.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portolan_api::mirror::{HeldDeletions, NodeCount, RemoteCluster, RemoteClusterStatus, ServiceCount};
use portolan_api::well_known::mirror::{APPROVE_DELETIONS, PROGRAMMED};
use portolan_api::well_known::{conditions, reasons};
use portolan_core::mirror::{RemoteName, Role, ServiceName, Sync};

use super::act::acting::Acting;
use super::counts::Counts;
use super::model::{Model, concerns};
use super::observe::service_key;
use super::reading::Reading;
use super::validate::Problem;
use crate::runtime::conditions::{condition, find};
use crate::runtime::due::Prepared;
use crate::runtime::store::Key;

/// What the status of a RemoteCluster needs.
pub(super) fn prepare_remote(acting: &Acting<'_>, name: &RemoteName) -> Prepared<()> {
    let Acting { writer, cache, model, metrics, .. } = *acting;
    let counts = Counts::of(model, name);
    metrics.counts(name, &counts);
    let Some(seen) = cache.remotes.get(&Key::of_cluster(name)) else { return Prepared::Nothing };
    if seen.metadata.deletion_timestamp.is_some() {
        return Prepared::Nothing;
    }
    // What an earlier operator has shown of it stays while it is read anew: it is most likely still true.
    if let Some(reading) = model.readings.get(name)
        && let Some(known_by) = reading.starting_until()
        && seen.status.as_ref().is_some_and(|status| status.observed_generation == seen.metadata.generation)
    {
        return Prepared::At(known_by);
    }
    let want = wanted(model, name, &seen, counts);
    let (writer, remotes) = (writer.clone(), cache.remotes.clone());
    Prepared::write(async move { writer.status(&remotes, seen.as_ref(), &want).await.map(drop) })
}

/// The status of a RemoteCluster, transition times aside.
pub(super) fn wanted(model: &Model, name: &RemoteName, seen: &RemoteCluster, counts: Counts) -> RemoteClusterStatus {
    let generation = seen.metadata.generation.unwrap_or_default();
    let reading = model.readings.get(name);
    let state = reading.map(|reading| reading.cache.state()).unwrap_or_default();
    let refused = model.refused.get(name).or_else(|| reading?.declared.target.as_ref().err());
    let connected = match reading {
        None => Some(Problem::new("Connecting", "it is not accepted, so it is not connected to")),
        Some(reading) => disconnected(reading),
    };
    let synced = reading.and_then(|reading| unsynced(reading, connected.is_some()));
    let programmed = reading.and_then(|reading| unprogrammed(reading, &counts));
    let held = reading.and_then(|reading| reading.held.as_ref());
    // Not what the connection shows: it may have become another cluster since the model looked.
    let identity = reading.and_then(|reading| reading.identity_before.as_ref().or(reading.identity.as_ref()));
    let identity = match identity {
        Some(uid) => Some(uid.to_string()),
        None => seen.status.as_ref().and_then(|status| status.cluster_uid.clone()),
    };
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let is_known = reading.is_some_and(Reading::is_loaded);
    RemoteClusterStatus {
        observed_generation: Some(generation),
        cluster_uid: identity,
        server_version: state.version,
        server: state.server,
        credentials_expire: state.expires.map(|expires| expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        nodes: is_known.then(|| NodeCount { total: count(counts.nodes), usable: count(counts.usable_nodes) }),
        services: is_known.then(|| ServiceCount {
            candidates: count(counts.candidates),
            mirrored: count(counts.mirrored),
            frozen: count(counts.frozen),
            unmet: count(counts.unmet_services),
        }),
        unmet: counts.first,
        held_deletions: held.map(|held| HeldDeletions { count: count(held.count), hash: held.hash.clone() }),
        conditions: summed(refused, connected.as_ref(), synced.as_ref(), programmed.as_ref(), generation),
    }
}

fn summed(
    accepted: Option<&Problem>,
    connected: Option<&Problem>,
    synced: Option<&Problem>,
    programmed: Option<&Problem>,
    generation: i64,
) -> Vec<Condition> {
    let part = |kind, problem: Option<&Problem>, fine| match problem {
        Some(problem) => condition(kind, Some(false), problem.reason, problem.message.clone(), generation),
        None => condition(kind, Some(true), fine, "", generation),
    };
    vec![
        part(conditions::ACCEPTED, accepted, reasons::ACCEPTED),
        part(conditions::CONNECTED, connected, "Connected"),
        part(conditions::SYNCED, synced, "Complete"),
        part(conditions::PROGRAMMED, programmed, reasons::PROGRAMMED),
        part(conditions::READY, accepted.or(connected).or(synced).or(programmed), "Ready"),
    ]
}

fn disconnected(reading: &Reading) -> Option<Problem> {
    if let Some(problem) = reading.cache.problem() {
        return Some(if reading.is_stale() {
            Problem::new("Stale", stale(reading, &problem.message))
        } else {
            problem
        });
    }
    match reading.cache.state().identity {
        None => Some(Problem::new("Connecting", "not connected yet")),
        Some(_) if reading.is_stale() => Some(Problem::new("Stale", stale(reading, "its watches are silent"))),
        Some(_) => None,
    }
}

fn stale(reading: &Reading, why: &str) -> String {
    let after = reading.declared.checked.stale_after;
    format!("out of contact for longer than stale.after ({after:?}): {why}")
}

fn unsynced(reading: &Reading, is_disconnected: bool) -> Option<Problem> {
    if let Some(before) = &reading.identity_before {
        let message = format!(
            "this is another cluster than before (kube-system had the UID {before}): deletions are held until they are \
             approved"
        );
        return Some(Problem::new("IdentityChanged", message));
    }
    match reading.cache.sync() {
        Sync::Complete if reading.is_loaded() => reading
            .cache
            .exports_problem()
            .map(|problem| Problem::new("Listing", format!("its ServiceExports cannot be read: {}", problem.message))),
        Sync::Complete | Sync::Listing => Some(Problem::new("Listing", "not everything was listed yet")),
        Sync::Broken if is_disconnected => {
            Some(Problem::new("Listing", "what changed since the last contact is not known"))
        }
        Sync::Broken => Some(Problem::new("Listing", "it is being listed again")),
    }
}

fn unprogrammed(reading: &Reading, counts: &Counts) -> Option<Problem> {
    if reading.declared.paused {
        return Some(Problem::new("Paused", "spec.paused is true: nothing is written"));
    }
    if let Some(held) = &reading.held {
        let message = format!(
            "{} mirrors would be deleted, and the budget allows {}: check the remote, then approve them with \
             `kubectl annotate remotecluster NAME {APPROVE_DELETIONS}={}`",
            held.count, held.budget, held.hash
        );
        return Some(Problem::new("DeletionBudgetExceeded", message));
    }
    let pending = counts.pending;
    (pending > 0).then(|| Problem::new("WritesPending", format!("{pending} Services are yet to be written")))
}

/// What the condition on a Service needs.
pub(super) fn prepare_service(acting: &Acting<'_>, name: &ServiceName) -> Prepared<()> {
    let Acting { writer, cache, model, .. } = *acting;
    let Some(seen) = cache.services.get(&service_key(name)) else { return Prepared::Nothing };
    let role = model.planner.world().local.services.get(name).map_or(Role::Foreign, |service| service.role);
    let decision = model.decisions.get(name);
    if seen.metadata.deletion_timestamp.is_some() || decision.is_none_or(|decision| !decision.slices.is_empty()) {
        return Prepared::Nothing;
    }
    let before = seen_conditions(&seen);
    let unmet = decision.and_then(|decision| decision.unmet.iter().find(|unmet| concerns(role, decision, unmet)));
    let is_shown = match role {
        Role::HandLabelled => true,
        // Two writes per mirror are enough, unless there is something to say.
        Role::Mirror => unmet.is_some() || find(&before, PROGRAMMED).is_some(),
        Role::Foreign => false,
    };
    if !is_shown {
        return Prepared::Nothing;
    }
    let mut want = match unmet {
        Some(unmet) => condition(PROGRAMMED, Some(false), unmet.reason.as_str(), unmet.message.clone(), 0),
        None => condition(PROGRAMMED, Some(true), reasons::PROGRAMMED, "", 0),
    };
    // Services have no generation.
    want.observed_generation = seen.metadata.generation;
    let (writer, services) = (writer.clone(), cache.services.clone());
    Prepared::write(async move { writer.condition(&services, seen.as_ref(), &before, want).await.map(drop) })
}

fn seen_conditions(service: &Service) -> Vec<Condition> {
    service.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default()
}
