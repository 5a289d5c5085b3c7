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
mod coming;
mod metrics;
mod model;
mod observe;
mod ranges;
mod recorded;
mod recycle;
mod selected;
mod slices;
mod slim;
mod snapshot;
mod status;
mod tell;
mod tunnels;
mod validate;
pub mod webhooks;

pub use observe::Cache;
pub use tunnels::Subnets;
pub use validate::{Families, Problem};

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt as _;
use portolan_core::egress::GatewayName;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use self::coming::worth_waiting_for;
use self::metrics::Metrics;
use self::model::{Dirty, Model};
use self::observe::FlapDamping;
use self::recycle::Recycling;
use self::status::{Patience, Reporting, Waiting};
use self::tell::{Failovers, Telling};
use self::tunnels::Numbering;
use crate::runtime::Error;
use crate::runtime::app::Ctx;
use crate::runtime::events::Recorder;
use crate::runtime::store::Key;
use crate::runtime::turn::{Next, Turn};
use crate::runtime::write::Writer;

/// How egress runs.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub families: Families,
    pub tunnels: Subnets,
    /// How long a claim that nobody was ever seen to use is kept: its policy may be seen later than the claim.
    pub keep_unseen: Duration,
    /// How long a new term waits at most, before it places anything, for nodes that are about to be ready.
    pub await_nodes: Duration,
    /// How long a policy that was granted its first address is not shown without it being in force: nearly always its
    /// node takes it within that time, and one write tells both.
    pub await_holder: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let moment = Duration::from_secs(5);
        Self {
            families: Families::default(),
            tunnels: Subnets::default(),
            keep_unseen: moment,
            await_nodes: moment,
            await_holder: Duration::from_secs(10),
        }
    }
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
        damping: FlapDamping::default(),
        term: Term::default(),
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
    damping: FlapDamping,
    term: Term,
}

/// What this replica knows and has yet to do since it began to lead.
#[derive(Default)]
struct Term {
    /// The first turn.
    began: Option<Instant>,
    /// None until something was planned.
    model: Option<Model>,
    dirty: Dirty,
    recycling: Recycling,
    failovers: Failovers,
    waiting: Waiting,
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
        self.term = Term::default();
    }

    async fn turn(&mut self) -> Result<Next, Error> {
        let now = Instant::now();
        let Self { cache, options, writer, recorder, metrics, damping, term } = self;
        let Term { began, model, dirty, recycling, failovers, waiting, shown, listed, counted } = term;
        let numbering = Numbering { writer, cache, metrics, subnets: options.tunnels };
        let telling = Telling { recorder, cache, metrics };
        // observe (no client): every watch has synced and shows our own last writes
        let changed = cache.take_changes();
        let patient_until = *began.get_or_insert(now) + options.await_nodes;
        if model.is_none() && now < patient_until && worth_waiting_for(cache, options.families) {
            // nodes get ready only with the number of their tunnel
            tunnels::apply(&numbering, &mut cache.nodes_and_tunnels()).await?;
            return Ok(Next::After(patient_until - now));
        }
        // validate, plan (no client; cannot fail): a bad object steps aside, what cannot be met is in the plan
        let model = if let Some(model) = model {
            model.follow(cache, &changed, damping, now, dirty);
            model.end_damping(cache, damping, now, dirty);
            model
        } else {
            let (whole, all) = Model::whole(cache, options.families, damping, now);
            *dirty = all;
            model.insert(whole)
        };
        dirty.policies.extend(model.selected.update_shadowed());
        recycling.note(&dirty.addresses, &model.planner, |address| cache.claim(address).is_some(), now);
        dirty.addresses.extend(recycling.answered());
        if recycling.asks(options.keep_unseen, now) {
            cache.relist_users();
        }
        // act (client): what holds a gateway, then the claims, and only what differs
        let unheld = act::finalizers(writer, cache, model, &dirty.gateways).await;
        let (released, failure) = act::claims(writer, cache, model, recycling, dirty).await;
        let mut failure = unheld.or(failure);
        failure = failure.or(tunnels::apply(&numbering, &mut dirty.tunnels).await.err());
        if dirty.info {
            match act::cluster_info(writer, cache, model).await {
                Ok(()) => dirty.info = false,
                Err(problem) => failure = failure.or(Some(problem)),
            }
        }
        // status (client): says what was done, not what was hoped
        telling.moves(std::mem::take(&mut dirty.moves), failovers, now).await;
        telling.failovers(failovers, model, now).await;
        telling.released(&released).await;
        let reporting = Reporting { writer, recorder, cache, model };
        let patience = Patience { waiting, at_most: options.await_holder, now };
        let (unshown, patient) = status::policies(&reporting, &mut dirty.policies, patience).await;
        failure = failure.or(unshown);
        let again = views(&reporting, dirty, shown, listed, now, &mut failure).await;
        let recount = counted.map(|last| last + COUNT).filter(|due| *due > now);
        if recount.is_none() {
            metrics.show(model);
            *counted = Some(now);
        }
        if let Some(problem) = failure {
            return Err(problem);
        }
        let recount = recount.filter(|_| !changed.is_empty());
        Ok(next([again, patient, recount, recycling.due(options.keep_unseen)], damping, now))
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
        let Some(seen) = cache.gateways.get(&Key::of_cluster(&name)) else {
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

fn next(again: [Option<Instant>; 4], damping: &FlapDamping, now: Instant) -> Next {
    let earliest = damping.waiting().map(|(_, until)| until).chain(again.into_iter().flatten()).min();
    earliest.map_or(Next::OnChange, |due| Next::After(due.saturating_duration_since(now)))
}
