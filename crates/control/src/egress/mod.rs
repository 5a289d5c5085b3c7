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
mod claim_gc;
mod doctor;
mod events;
mod kinds;
mod metrics;
mod model;
mod observe;
mod options;
mod query;
mod ranges;
mod recorded;
mod selected;
mod slim;
mod snapshot;
mod startup_grace;
mod status;
mod validate;
pub mod webhooks;
mod why;

pub use act::Subnets;
pub use observe::Cache;
pub use validate::{Families, Problem};

use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::time::Instant;

use self::act::Writes;
use self::act::acting::Acting;
use self::claim_gc::ClaimGc;
use self::events::{Failovers, GatewayEvents};
use self::metrics::Metrics;
use self::model::{Dirty, Model};
use self::observe::FlapDamping;
use self::startup_grace::worth_waiting_for;
use crate::runtime::app::Ctx;
use crate::runtime::capability::Capability;
use crate::runtime::due::WriteQueues;
use crate::runtime::events::Recorder;
use crate::runtime::lease::Term;
use crate::runtime::reconcile::{Next, Reconciler};
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
    /// Delay the first status write of a policy this long, so that address and readiness go out together.
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

/// Egress as a value.
pub const CAPABILITY: Capability = Capability {
    name: "egress",
    description: "Out: fixed source addresses for pods",
    by_default: true,
    kinds: kinds::KINDS,
    options: <options::EgressArgs as clap::Args>::augment_args,
    configure: options::configure,
    admission: Some(webhooks::ADMISSION),
    queries: query::QUERIES,
};

/// Starts the loop on the process's tasks.
pub fn start(ctx: &Ctx, registry: &mut Registry, options: Options) -> Cache {
    let mut watches = ctx.watches();
    let cache = Cache::watched(&mut watches);
    let queues = ctx.write_queues(&watches);
    let egress = Egress {
        cache: cache.clone(),
        options,
        writer: ctx.writer("egress"),
        recorder: ctx.recorder("egress"),
        metrics: Metrics::register(registry),
        damping: FlapDamping::default(),
        term: TermState::new(&queues),
        queues,
    };
    ctx.tasks.spawn("egress", ctx.reconciles("egress").run(watches, egress));
    cache
}

struct Egress {
    cache: Cache,
    options: Options,
    writer: Writer,
    recorder: Recorder,
    metrics: Metrics,
    damping: FlapDamping,
    queues: WriteQueues,
    term: TermState,
}

/// What this replica knows and has yet to do since it began to lead.
struct TermState {
    /// The first reconcile.
    began: Option<Instant>,
    /// None until something was planned.
    model: Option<Model>,
    gc: ClaimGc,
    failovers: Failovers,
    writes: Writes,
    /// When the metrics were worked out last.
    counted: Option<Instant>,
}

impl TermState {
    fn new(queues: &WriteQueues) -> Self {
        let (gc, failovers) = (ClaimGc::default(), Failovers::default());
        Self { began: None, model: None, gc, failovers, writes: Writes::new(queues), counted: None }
    }
}

/// Metrics that look at every policy are worked out at most this often.
const COUNT: Duration = Duration::from_secs(5);

impl Reconciler for Egress {
    fn begin(&mut self, _term: &Term) {
        self.term = TermState::new(&self.queues);
    }

    fn end(&mut self) {
        self.term = TermState::new(&self.queues);
    }

    async fn reconcile(&mut self) -> Next {
        let now = Instant::now();
        let Self { cache, options, writer, recorder, metrics, damping, queues: _, term } = self;
        let TermState { began, model, gc, failovers, writes, counted } = term;
        // observe (no client): every watch has synced and shows our own last writes
        let changed = cache.take_changes();
        let patient_until = *began.get_or_insert(now) + options.await_nodes;
        if model.is_none() && now < patient_until && worth_waiting_for(cache, options.families) {
            // nodes get ready only with the number of their tunnel
            writes.tunnels(cache.nodes_and_tunnels(), (writer, cache, metrics), options.tunnels).await;
            return Next::at_earliest([Some(patient_until), writes.next_due()]);
        }
        // validate, plan (no client; cannot fail): a bad object steps aside, what cannot be met is in the plan
        let mut dirty = Dirty::default();
        let model = if let Some(model) = model {
            model.follow(cache, &changed, damping, now, &mut dirty);
            model.end_damping(cache, damping, now, &mut dirty);
            model
        } else {
            let (whole, all) = Model::whole(cache, options.families, damping, now);
            dirty = all;
            model.insert(whole)
        };
        dirty.policies.extend(model.selected.update_shadowed());
        gc.note(&dirty.addresses, &model.planner, |address| cache.claim(address).is_some(), now);
        dirty.addresses.extend(gc.answered());
        if gc.asks(options.keep_unseen, now) {
            cache.relist_users();
        }
        let moves = std::mem::take(&mut dirty.moves);
        writes.add(&mut dirty, model);
        // act (client): what holds a gateway, then the claims, and only what differs
        let acting = Acting { writer, recorder, cache, model };
        let released = writes.claims(&acting, gc).await;
        writes.tunnels([], (writer, cache, metrics), options.tunnels).await;
        // status (client): says what was done, not what was hoped
        let events = GatewayEvents { recorder, cache, metrics };
        events.moves(moves, failovers, now);
        events.failovers(failovers, model, now);
        events.released(&released);
        writes.views(&acting, options.await_holder).await;
        let recount = counted.map(|last| last + COUNT).filter(|due| *due > now);
        if recount.is_none() {
            metrics.show(model);
            *counted = Some(now);
        }
        let recount = recount.filter(|_| !changed.is_empty());
        let trusted = damping.waiting().map(|(_, until)| until).min();
        Next::at_earliest([writes.next_due(), recount, gc.due(options.keep_unseen), trusted])
    }
}
