//! Ipam: egress addresses for annotated namespaces, attached to nodes on a cloud and published to OpenShift SDN.
//!
//! ```text
//!   Namespace 1--* AddressClaim *--1 Node 1--1 HostSubnet
//!             1--1 NetNamespace         1--1 instance on the cloud
//!
//!   API server --watch--> Cache --validate--> Model: World, Journal --plan--> actions
//!   cloud --describe (in the background)-------^                               |
//!     ^                                                                        |
//!     '-- calls: assign, take, release <----------- act -----------------------'
//!         AddressClaims, HostSubnets, NetNamespaces, annotations <--'
//! ```
//! The claims are the journal: whatever a call does is recorded in one before it is made, so that a process may end at any
//! moment. The kinds of OpenShift are never created or deleted. Without them the capability idles.

mod act;
mod backend;
mod describe;
mod doctor;
mod events;
mod failures;
mod kinds;
mod metrics;
mod model;
mod names;
mod observe;
mod options;
mod query;
mod settings;
mod snapshot;
mod timings;
mod validate;
mod why;

use std::sync::Arc;

pub use backend::Backend;
pub use observe::Cache;
use portolan_core::ipam::Plan;
use prometheus_client::registry::Registry;
pub use settings::Options;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::info;

use self::act::{Due, Ledger, Writes};
use self::describe::{Describer, Source, Wanted};
use self::events::Reported;
use self::failures::Failures;
use self::metrics::Metrics;
use self::model::Model;
use self::timings::Timings;
use crate::runtime::app::Ctx;
use crate::runtime::capability::Capability;
use crate::runtime::clock::Clock;
use crate::runtime::due::WriteQueues;
use crate::runtime::events::Recorder;
use crate::runtime::lease::Term;
use crate::runtime::reconcile::{Next, Reconciler};
use crate::runtime::tasks::Tasks;
use crate::runtime::write::Writer;

/// Ipam as a value.
pub const CAPABILITY: Capability = Capability {
    name: "ipam",
    description: "Out, on a cloud: egress addresses for namespaces of OpenShift",
    by_default: true,
    kinds: kinds::KINDS,
    options: <options::IpamArgs as clap::Args>::augment_args,
    configure: options::configure,
    admission: None,
    queries: query::QUERIES,
};

/// Starts the loop on the process's tasks.
pub fn start(ctx: &Ctx, registry: &mut Registry, options: Options) -> Cache {
    let mut watches = ctx.watches();
    let cache = Cache::watched(&mut watches);
    let ipam = Ipam {
        cache: cache.clone(),
        writer: ctx.writer("ipam"),
        recorder: ctx.recorder("ipam"),
        metrics: Metrics::register(registry),
        queues: ctx.write_queues(&watches),
        tasks: ctx.tasks.clone(),
        wake: watches.waker(),
        clock: Clock::start(),
        options,
        term: None,
    };
    ctx.tasks.spawn("ipam", ctx.reconciles("ipam").run(watches, ipam));
    cache
}

struct Ipam {
    cache: Cache,
    writer: Writer,
    recorder: Recorder,
    metrics: Metrics,
    queues: WriteQueues,
    tasks: Tasks,
    wake: Arc<Notify>,
    clock: Clock,
    options: Options,
    /// None while another replica leads.
    term: Option<TermState>,
}

/// What this replica knows and has yet to do since it began to lead.
struct TermState {
    model: Option<Model>,
    plan: Plan,
    ledger: Ledger,
    writes: Writes,
    describer: Describer,
    reported: Reported,
    failures: Failures,
    timings: Timings,
    idles: bool,
}

impl Reconciler for Ipam {
    fn begin(&mut self, term: &Term) {
        let Self { metrics, queues, tasks, wake, clock, options, .. } = &*self;
        let source = Source {
            cloud: options.cloud.clone(),
            clock: *clock,
            verify_interval: options.verify_interval,
            metrics: metrics.clone(),
            wake: wake.clone(),
        };
        self.term = Some(TermState {
            model: None,
            plan: Plan::default(),
            ledger: Ledger::new(*clock),
            writes: Writes::new(queues, options, term.clone(), wake.clone(), metrics.clone()),
            describer: Describer::start(tasks, source),
            reported: Reported::default(),
            failures: Failures::default(),
            timings: Timings::default(),
            idles: false,
        });
    }

    fn end(&mut self) {
        self.term = None;
        self.metrics.forget();
    }

    async fn reconcile(&mut self) -> Next {
        let Self { cache, writer, recorder, metrics, clock, options, term, .. } = self;
        let Some(TermState { model, plan: last, ledger, writes, describer, reported, failures, timings, idles }) = term
        else {
            return Next::OnChange;
        };
        let now = clock.now();

        // observe, validate (no client): what cannot be read stays as it was
        let changes = cache.take_changes();
        let is_first = model.is_none();
        let model = model.get_or_insert_with(|| Model::whole(cache, options, now));
        let followed = model.follow(cache, &changes, now);
        if !model.is_served() {
            if !std::mem::replace(idles, true) {
                info!("ipam idles: there are no NetNamespaces and HostSubnets of OpenShift SDN, and no OVN-Kubernetes");
            }
            return Next::OnChange;
        }
        let resumes = std::mem::take(idles);
        let is_unread = describer.take_problem().is_some_and(|problem| model.undescribed(problem));
        let descriptions = describer.take();
        let ended = ledger.take_changed();
        let is_due = last.wake.is_some_and(|wake| wake <= now);
        let was_read = is_unread || !descriptions.is_empty();
        let differs = is_first || resumes || followed.changed || ended || is_due || was_read;
        for description in descriptions {
            model.described(description);
        }

        // plan (no client; cannot fail)
        if differs {
            let began = Instant::now();
            model.world.now = now;
            *last = ledger.read(|calls| model.plan(calls));
            metrics.planned(began.elapsed());
            metrics.show(model);
            reported.follow(recorder, cache, last);
            failures.follow(metrics, model, last, &ledger.take_uncounted());
            writes.plan(Due::of(last));
        }

        // act (client): each object by itself
        timings.called(ledger.take_succeeded());
        let written = writes.act(writer, cache, model, ledger).await;
        written.repaired.into_iter().for_each(|place| metrics.repaired(place));
        for done in written.steps {
            metrics.step(done.step);
            timings.done(metrics, &done);
            events::done(recorder, cache, &done);
        }

        // what to look at next
        let awaiting = last.awaiting.iter().filter(|instance| !ledger.is_busy(instance)).cloned();
        let wanted = Wanted { instances: model.instances(), awaiting: awaiting.collect() };
        describer.want(wanted, is_first || resumes || followed.nodes, ended);
        let moments = [last.wake, model.controller_until].map(|moment| moment.map(|moment| clock.instant(moment)));
        Next::at_earliest(moments.into_iter().chain([writes.next_due()]))
    }
}
