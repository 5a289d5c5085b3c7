//! Egress: pods that a policy selects leave the cluster with an address of a gateway, through one of its nodes.
//!
//! ```text
//!   EgressGateway --pool, selector--.                        .--> AddressClaim (one per address: where it lives)
//!   Node, EgressTunnel --ready?-----+                        |        |
//!   EgressPolicy ------asks---------+--> plan (core::egress)-+        v
//!   EgressClusterPolicy --asks------+     pure, sticky       +--> policy status (what was granted)
//!   AddressClaim --recorded---------'                        '--> EgressGateway status (a view of both)
//!
//!   Pod, Namespace --selected by policies--> EgressEndpointSlice, EgressClusterEndpointSlice; who shadows whom
//!   Node, ServiceCIDR, Calico pools -------> EgressClusterInfo status (what is inside the cluster)
//!   Node ----------------------------------> EgressTunnel (its number)
//! ```
//!
//! The claims are the truth and come first; everything else only shows it. A turn takes up what moved since the last
//! one: the planner is kept between turns and follows change by change. A replica that begins to lead starts from
//! what is recorded.

mod act;
pub(crate) mod answers;
mod metrics;
mod model;
mod observe;
mod ranges;
mod selected;
mod slices;
mod snapshot;
mod status;
mod tunnels;
mod validate;
pub mod webhooks;

pub use observe::Cache;
pub use tunnels::Subnets;
pub use validate::{Families, Problem};

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt as _;
use portolan_core::egress::{Cause, GatewayName, Move};
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tracing::info;

use self::metrics::Metrics;
use self::model::{Dirty, Model};
use self::observe::Probation;
use self::status::Reporting;
use crate::runtime::Error;
use crate::runtime::app::Ctx;
use crate::runtime::events::{Recorder, Tone, What};
use crate::runtime::store::Key;
use crate::runtime::turn::{Next, Turn};
use crate::runtime::write::Writer;

/// How egress runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    pub families: Families,
    pub tunnels: Subnets,
}

/// Starts the loop on the process's tasks.
pub fn start(ctx: &Ctx, registry: &mut Registry, options: Options) -> Cache {
    let mut watches = ctx.watches();
    let cache = Cache::watched(&mut watches);
    let egress = Egress {
        cache: cache.clone(),
        options,
        writer: ctx.writer("egress"),
        recorder: ctx.recorder("egress"),
        metrics: Metrics::register(registry),
        probation: Probation::default(),
        model: None,
        dirty: Dirty::default(),
        shown: BTreeMap::new(),
        listed: None,
        counted: None,
    };
    ctx.tasks.spawn("egress", ctx.turns("egress").run(watches, egress));
    cache
}

struct Egress {
    cache: Cache,
    options: Options,
    writer: Writer,
    recorder: Recorder,
    metrics: Metrics,
    probation: Probation,
    /// None until the first turn of a term.
    model: Option<Model>,
    dirty: Dirty,
    /// When each gateway's status was written last.
    shown: BTreeMap<GatewayName, Instant>,
    /// When slices were written last.
    listed: Option<Instant>,
    /// When the metrics were worked out last.
    counted: Option<Instant>,
}

/// Views of many objects are written at most this often.
const GATHER: Duration = Duration::from_secs(1);
/// Metrics that look at every policy are worked out at most this often.
const COUNT: Duration = Duration::from_secs(5);

impl Turn for Egress {
    fn begin(&mut self) {
        self.model = None;
    }

    async fn turn(&mut self) -> Result<Next, Error> {
        let now = Instant::now();
        let Self { cache, options, writer, recorder, metrics, probation, model, dirty, shown, listed, counted } = self;
        // observe (no client): every watch has synced and shows our own last writes
        let moved = cache.moved();
        // validate, plan (no client; cannot fail): a bad object steps aside, what cannot be met is in the plan
        let model = if let Some(model) = model {
            model.follow(cache, &moved, probation, now, dirty);
            model.end_probation(cache, probation, now, dirty);
            model
        } else {
            let (whole, all) = Model::whole(cache, options.families, probation, now);
            *dirty = all;
            model.insert(whole)
        };
        dirty.policies.extend(model.selected.reshadow());
        // act (client): what holds a gateway, then the claims, and only what differs
        let unheld = act::finalizers(writer, cache, model, &dirty.gateways).await;
        let (done, failure) = act::claims(writer, cache, model, dirty).await;
        let mut failure = unheld.or(failure);
        tell_moves(recorder, cache, metrics, std::mem::take(&mut dirty.moves)).await;
        failure = failure.or(tunnels::apply(writer, cache, options.tunnels, &mut dirty.tunnels).await.err());
        if dirty.info {
            match act::cluster_info(writer, cache, model).await {
                Ok(()) => dirty.info = false,
                Err(problem) => failure = failure.or(Some(problem)),
            }
        }
        // status (client): says what was done, not what was hoped
        let reporting = Reporting { writer, recorder, cache, model };
        failure = failure.or(status::policies(&reporting, &done, &mut dirty.policies).await);
        let again = views(&reporting, dirty, shown, listed, now, &mut failure).await;
        let recount = counted.map(|last| last + COUNT).filter(|due| *due > now);
        if recount.is_none() {
            metrics.show(model);
            *counted = Some(now);
        }
        match failure {
            Some(problem) => Err(problem),
            None if !dirty.policies.is_empty() => Ok(Next::After(Duration::ZERO)),
            None => Ok(next(again.into_iter().chain(recount.filter(|_| !moved.is_empty())).min(), probation, now)),
        }
    }
}

/// Gateways and slices show many objects each: they are written once a second at most. Gives when to come again.
async fn views(
    reporting: &Reporting<'_>,
    dirty: &mut Dirty,
    shown: &mut BTreeMap<GatewayName, Instant>,
    listed: &mut Option<Instant>,
    now: Instant,
    failure: &mut Option<Error>,
) -> Option<Instant> {
    let Reporting { writer, cache, model, .. } = reporting;
    let mut again = None;
    let mut later = |due: Instant| again = Some(again.map_or(due, |earlier: Instant| earlier.min(due)));
    for name in dirty.gateways.clone() {
        let Some(seen) = cache.gateways.get(&Key { namespace: String::new(), name: name.to_string() }) else {
            dirty.gateways.remove(&name);
            shown.remove(&name);
            continue;
        };
        // One that was only just held has another version by now; it is shown when that was seen.
        if seen.metadata.deletion_timestamp.is_none() && seen.finalizers().is_empty() {
            continue;
        }
        let due = shown.get(&name).map_or(now, |last| *last + GATHER);
        if due > now {
            later(due);
            continue;
        }
        match status::gateway(reporting, &seen).await {
            Ok(()) => {
                dirty.gateways.remove(&name);
                shown.insert(name, now);
            }
            Err(problem) => drop(failure.get_or_insert(problem)),
        }
    }
    if !dirty.slices.is_empty() {
        let due = listed.map_or(now, |last| last + GATHER);
        if due > now {
            later(due);
        } else {
            *listed = Some(now);
            if let Err(problem) = slices::apply(writer, cache, model, &mut dirty.slices).await {
                failure.get_or_insert(problem);
            }
        }
    }
    again
}

fn next(again: Option<Instant>, probation: &Probation, now: Instant) -> Next {
    let earliest = probation.waiting().map(|(_, until)| until).chain(again).min();
    earliest.map_or(Next::OnChange, |due| Next::After(due.saturating_duration_since(now)))
}

async fn tell_moves(recorder: &Recorder, cache: &Cache, metrics: &Metrics, moves: Vec<Move>) {
    for Move { eip, policy, gateway, from, to, why } in moves {
        metrics.moved(why);
        let what =
            policy.map_or_else(|| eip.to_string(), |policy| format!("policy {policy}, on its node's own address,"));
        let at = |node: Option<&str>| node.unwrap_or("no node").to_owned();
        let note = format!("{what} goes from {} to {}: {}", at(from.as_deref()), at(to.as_deref()), because(why));
        info!(gateway = &*gateway, note, "moved");
        if let Some(gateway) = cache.gateways.get(&Key { namespace: String::new(), name: gateway.to_string() }) {
            let what = What { reason: "EIPMoved", action: "Move", note: &note };
            recorder.report(gateway.as_ref(), Tone::Normal, &what).await;
        }
    }
}

/// Why something moved, in words.
pub(crate) const fn because(why: Cause) -> &'static str {
    match why {
        Cause::NodeDeleted => "the node is gone",
        Cause::NodeNotReady => "the node is not ready, or is being drained",
        Cause::NotSelected => "the gateway no longer selects the node",
        Cause::Barred => "the address cannot live on the node",
        Cause::NodeReady => "a node is ready again",
    }
}
