//! Mirror: the Services of remote clusters become Services and EndpointSlices here.
//!
//! ```text
//!   RemoteCluster, flags --> declared: what users ask for, with credentials from Secrets
//!                               |
//!                               v
//!   remote API server --watch--> reading (one per remote): damped, gathered
//!   local API server  --watch--> Cache
//!                               |
//!                               v
//!   core::mirror::Planner: what differs, name by name
//!                               |--> Services, namespaces, EndpointSlices     act
//!                               '--> RemoteCluster status, Service conditions status
//! ```
//! Services that clusters share by the Multi-Cluster Services API go another way, from the same watches: see [`mcs`].
//!
//! Remotes are only read, each with its own connection: one that is away holds up no other.

mod act;
mod convergence;
mod counts;
mod credentials;
mod declared;
mod doctor;
mod events;
mod kinds;
mod mcs;
mod metrics;
mod model;
mod names;
mod observe;
mod options;
mod query;
mod reading;
mod remote;
mod settings;
mod slim;
mod snapshot;
mod status;
mod validate;

pub use observe::Cache;
pub use settings::{FlagsRemote, FlagsSource, Options};

use portolan_drivers::gke::Gke;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use self::act::Writes;
use self::act::acting::Parts;
use self::convergence::Convergence;
use self::events::{MirrorEvents, Reported};
use self::mcs::{ImportMetrics, LocalStores};
use self::metrics::Metrics;
use self::model::{Model, Touched};
use self::remote::{Google, RemoteContext};
use crate::runtime::app::Ctx;
use crate::runtime::capability::Capability;
use crate::runtime::due::WriteQueues;
use crate::runtime::lease::Term;
use crate::runtime::rate::Rate;
use crate::runtime::reconcile::{Next, Reconciler};
use crate::runtime::watch::Watches;
use crate::runtime::write::Writer;

/// The mirror as a value.
pub const CAPABILITY: Capability = Capability {
    name: "mirror",
    description: "Across: Services of other clusters, reachable here",
    by_default: true,
    kinds: kinds::KINDS,
    options: <options::MirrorArgs as clap::Args>::augment_args,
    configure: options::configure,
    admission: None,
    queries: query::QUERIES,
};

/// Starts the loop on the process's tasks.
pub fn start(ctx: &Ctx, registry: &mut Registry, options: Options) -> Cache {
    let mut watches = ctx.watches();
    let cache = Cache::watched(&mut watches, &options.operator_namespace);
    let queues = ctx.write_queues(&watches);
    let metrics = Metrics::register(registry);
    let gke_requests = metrics.clone();
    let mirror = Mirror {
        sharing: Sharing { watches: Some(ctx.watches_that_wake(watches.waker())), stores: None },
        cache: cache.clone(),
        writer: ctx.writer("mirror"),
        client: ctx.client.clone(),
        events: MirrorEvents::new(ctx.recorder("mirror")),
        metrics,
        import_metrics: ImportMetrics::register(registry),
        context: RemoteContext {
            google: Google {
                api: Gke::new(options.gke.clone()).reporting(move |call, code| gke_requests.gke_request(call, code)),
                key_file: options.google_key_file.clone(),
                metadata_host: options.google_metadata_host.clone(),
                lookup_interval: options.google_lookup_interval,
            },
            allow_loopback: options.allow_loopback,
            metrics: ctx.metrics.clone(),
            readiness: ctx.readiness.clone(),
            wake: watches.waker(),
        },
        rate: Rate::per_second(options.write_qps),
        term: TermState::new(&queues, &options),
        queues,
        options,
    };
    ctx.tasks.spawn("mirror", ctx.reconciles("mirror").run(watches, mirror));
    cache
}

struct Mirror {
    cache: Cache,
    writer: Writer,
    client: kube::Client,
    events: MirrorEvents,
    metrics: Metrics,
    import_metrics: ImportMetrics,
    context: RemoteContext,
    rate: Rate,
    options: Options,
    queues: WriteQueues,
    sharing: Sharing,
    term: TermState,
}

/// What is needed to share Services with other clusters; it is watched once that is asked for.
struct Sharing {
    /// For the stores.
    watches: Option<Watches>,
    stores: Option<LocalStores>,
}

impl Sharing {
    /// What is watched, if it is needed: to share, or to take away what was shared.
    fn stores(&mut self, cache: &Cache) -> Option<&mut LocalStores> {
        if self.stores.is_none() && (mcs::shares(cache) || mcs::has_imports(cache)) {
            self.stores = self.watches.take().map(LocalStores::watched);
        }
        self.stores.as_mut().filter(|stores| stores.settled())
    }
}

/// What this replica knows and has yet to do since it began to lead. Only the leader reads remotes.
struct TermState {
    model: Option<Model>,
    writes: Writes,
    reported: Reported,
    reported_imports: Reported,
    convergence: Convergence,
}

impl TermState {
    fn new(queues: &WriteQueues, options: &Options) -> Self {
        Self {
            model: None,
            writes: Writes::new(queues, options),
            reported: Reported::default(),
            reported_imports: Reported::default(),
            convergence: Convergence::default(),
        }
    }
}

impl Reconciler for Mirror {
    fn begin(&mut self, _: &Term) {
        self.end();
        self.sharing.stores.iter_mut().for_each(LocalStores::refresh);
    }

    fn end(&mut self) {
        self.term = TermState::new(&self.queues, &self.options);
        self.metrics.forget();
        self.import_metrics.forget();
    }

    async fn reconcile(&mut self) -> Next {
        let now = Instant::now();
        let Self {
            cache,
            writer,
            client,
            events,
            metrics,
            import_metrics,
            context,
            rate,
            options,
            queues: _,
            sharing,
            term,
        } = self;
        let TermState { model, writes, reported, reported_imports, convergence } = term;
        // observe, validate, plan (no client; cannot fail): a bad object steps aside, what cannot be met is in its decision
        let is_first = model.is_none();
        let mut touched = Touched::default();
        let model = model.get_or_insert_with(|| {
            let (whole, all) = Model::new(cache, options, now);
            touched = all;
            whole
        });
        model.follow(cache, options, context, is_first, now, &mut touched);
        for name in &touched.names {
            reported.follow(events, cache, model, name);
        }
        for (name, reading) in &mut model.readings {
            if let Some((moved, server)) = reading.take_move() {
                events.moved(cache, name, moved, &server);
            }
        }
        metrics.planned(now.elapsed());
        metrics.queued(touched.names.len());
        metrics.remotes(model, now);
        metrics.refused(&touched.refused);
        convergence.follow(&touched, model, metrics);
        writes.add(touched, model, cache);
        // act (client)
        let parts = Parts { writer, cache, rate, events, metrics, client };
        let changed = writes.objects(&parts, model, convergence).await;
        let changed = Touched { names: changed, ..Touched::default() };
        let changed = model.redecide(changed);
        writes.add(changed, model, cache);
        if let Some(stores) = sharing.stores(cache) {
            let (names, remotes) = model.follow_clusterset(cache, stores, options, now);
            import_metrics.decided(names.len(), &model.clusterset);
            for name in &names {
                reported_imports.follow_import(events, cache, &model.clusterset, name);
            }
            writes.add_imports(&names, remotes, model);
            writes.imports(&parts, model, stores).await;
        }
        // status (client)
        writes.views(&parts, model).await;
        Next::at_earliest([writes.next_due(), model.next_due(now)])
    }
}
