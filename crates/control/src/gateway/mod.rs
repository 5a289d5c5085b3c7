//! Gateway: external load balancers for the Services of many tenants, each with a public address and an Envoy of its own.
//!
//! ```text
//!   EGW 1--* Account 1--* ServiceGroup 1--* LoadBalancer 1--* Endpoint
//!                            *--1 ServicePrefix 1--* AddressClaim *--* LoadBalancer
//!
//!   API server --watch--> Cache --validate--> Model: World --plan--> Plan
//!   Envoys --report---------------------------^                      |
//!     ^                                                              |
//!     '-- units <--------------------- act --------------------------'
//!         numbers in parents' status, claims, objects, status <--'
//! ```
//! A number is reserved in its parent's status and an address in its claim before an object carries it, both locked by
//! the API server: a process may end at any moment, and of two that decide at the same time one is refused.

mod act;
mod doctor;
mod envoys;
mod events;
mod kinds;
mod metrics;
mod model;
mod names;
mod observe;
mod options;
mod query;
pub mod rest;
mod runtime;
mod settings;
mod snapshot;
mod status;
mod validate;
mod versions;
pub mod webhooks;
mod why;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use act::envoys::start as start_deployments;
pub use envoys::{DeploymentOptions, DeploymentProxies};
pub use observe::Cache;
use portolan_core::gateway::Plan;
use portolan_core::gateway::unit::{Report, UnitId};
use prometheus_client::registry::Registry;
pub use settings::Options;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::act::Writes;
use self::metrics::Metrics;
use self::model::Model;
use self::versions::Versions;
use crate::runtime::app::Ctx;
use crate::runtime::capability::Capability;
use crate::runtime::clock::Clock;
use crate::runtime::due::WriteQueues;
use crate::runtime::events::Recorder;
use crate::runtime::lease::Term;
use crate::runtime::reconcile::{Next, Reconciler};
use crate::runtime::write::Writer;

/// The gateway as a value.
pub const CAPABILITY: Capability = Capability {
    name: "gateway",
    description: "In: external load balancers for the Services of many tenants",
    by_default: true,
    kinds: kinds::KINDS,
    options: <options::GatewayArgs as clap::Args>::augment_args,
    configure: options::configure,
    admission: Some(webhooks::ADMISSION),
    queries: query::QUERIES,
};

/// Starts the loop on the process's tasks. `wake` is what the proxies call when a report changes.
pub fn start(ctx: &Ctx, registry: &mut Registry, wake: Arc<Notify>, options: Options) -> Cache {
    let mut watches = ctx.watches_that_wake(wake);
    let cache = Cache::watched(&mut watches);
    let gateway = Gateway {
        cache: cache.clone(),
        writer: ctx.writer("gateway"),
        recorder: ctx.recorder("gateway"),
        metrics: Metrics::register(registry),
        queues: ctx.write_queues(&watches),
        clock: Clock::start(),
        options,
        term: None,
    };
    ctx.tasks.spawn("gateway", ctx.reconciles("gateway").run(watches, gateway));
    cache
}

struct Gateway {
    cache: Cache,
    writer: Writer,
    recorder: Recorder,
    metrics: Metrics,
    queues: WriteQueues,
    clock: Clock,
    options: Options,
    /// None while another replica leads.
    term: Option<TermState>,
}

/// What this replica knows and has yet to do since it began to lead.
struct TermState {
    model: Option<Model>,
    plan: Plan,
    reports: Option<BTreeMap<UnitId, Report>>,
    versions: Versions,
    writes: Writes,
}

impl Reconciler for Gateway {
    fn begin(&mut self, _term: &Term) {
        self.term = Some(TermState {
            model: None,
            plan: Plan::default(),
            reports: None,
            versions: Versions::default(),
            writes: Writes::new(&self.queues),
        });
    }

    fn end(&mut self) {
        self.term = None;
        self.options.proxies.stand_by();
        self.metrics.forget();
    }

    async fn reconcile(&mut self) -> Next {
        let Self { cache, writer, recorder, metrics, clock, options, term, .. } = self;
        let Some(TermState { model, plan: last, reports, versions, writes }) = term else { return Next::OnChange };
        let now = clock.now();

        // observe, validate (no client)
        let mut changes = cache.take_changes();
        let (model, is_other_world) = if let Some(model) = model {
            let differs = model.follow(cache, &changes);
            (model, differs)
        } else {
            changes = cache.all();
            (model.insert(Model::whole(cache, options)), true)
        };
        let reported = options.proxies.reports();
        let is_due = last.next.is_some_and(|next| next <= now);

        // plan (no client; cannot fail)
        if is_other_world || is_due || reported != *reports {
            metrics.reported(reports.as_ref(), reported.as_ref());
            model.world.reports.clone_from(&reported);
            *reports = reported;
            let began = Instant::now();
            let plan = model.plan(now);
            metrics.planned(began.elapsed(), &plan);
            versions.follow(model, &plan);
            writes.plan(&changes, last, &plan);
            *last = plan;
            options.proxies.want(last.units.clone());
        } else {
            // our own writes, for the most part: what is decided stays, and may still have to be written
            writes.touched(&changes);
        }

        // act (client): each object by itself
        writes.act((writer, recorder), cache, model, versions, last).await;
        let next = last.next.map(|next| clock.instant(next));
        Next::at_earliest([next, writes.next_due()])
    }
}
