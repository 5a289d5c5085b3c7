//! Mesh: VirtualServices, Routes and Targets become listeners, routes and clusters on the proxies of pods.
//!
//! ```text
//!   VirtualService --rules--> Route --hops--> Target      users write these, in any dialect
//!   Service, EndpointSlice, Pod, Namespace                what names stand for
//!          |
//!          v
//!   resolve (core::mesh::control): pure, change by change
//!          |--> generated VirtualServices and Targets     what names make necessary
//!          |--> what every proxy should hold --> fleet: one task per proxy, over its REST API
//!          '--> verdicts ------------------------------> status, with what the proxies answered
//! ```
//!
//! Proxies hold nothing that matters: what they hold is read from them and compared. A replica that begins to lead looks
//! at all of them.

mod act;
mod doctor;
mod events;
mod intern;
mod kinds;
mod metrics;
mod model;
mod observe;
mod options;
mod owner;
pub mod pod;
mod query;
mod settings;
mod snapshot;
mod status;
mod validate;
pub mod webhooks;

pub use ipnet::IpNet;
pub use observe::Cache;
pub use portolan_core::mesh::control::{ClusterDomain, CrossNamespace, Settings};
pub use portolan_drivers::l7mp::{ClientCertificate, TlsFileError, TlsFiles};
pub use settings::Options;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use portolan_core::mesh::control::{Change, Resolver};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use self::act::fleet::{Fleet, MemberChange};
use self::act::generated::{Generating, Generation};
use self::events::{Absences, MeshEvents};
use self::metrics::Metrics;
use self::model::{follow, join, known_facts};
use self::owner::Owner;
use self::status::{Owned, Reporting};
use crate::runtime::Error;
use crate::runtime::app::Ctx;
use crate::runtime::capability::Capability;
use crate::runtime::due::{DueWrites, Pace, Prepared, WriteQueues};
use crate::runtime::lease::Term;
use crate::runtime::reconcile::{Next, Reconciler};
use crate::runtime::write::Writer;

/// The mesh as a value.
pub const CAPABILITY: Capability = Capability {
    name: "mesh",
    description: "Through: routes between protocols inside the cluster",
    by_default: true,
    kinds: kinds::KINDS,
    options: <options::MeshArgs as clap::Args>::augment_args,
    configure: options::configure,
    admission: Some(webhooks::ADMISSION),
    queries: query::QUERIES,
};

/// Starts the loop on the process's tasks.
pub fn start(ctx: &Ctx, registry: &mut Registry, options: Options) -> Cache {
    let mut watches = ctx.watches();
    let cache = Cache::watched(&mut watches, &options);
    let metrics = Metrics::register(registry);
    let queues = ctx.write_queues(&watches);
    let mesh = Mesh {
        cache: cache.clone(),
        writer: ctx.writer("mesh"),
        events: MeshEvents::new(ctx.recorder("mesh")),
        fleet: Fleet::new(ctx.tasks.clone(), watches.waker(), &options, metrics.clone()),
        metrics,
        options,
        term: TermState::new(&queues),
        queues,
    };
    ctx.tasks.spawn("mesh", ctx.reconciles("mesh").run(watches, mesh));
    cache
}

struct Mesh {
    cache: Cache,
    writer: Writer,
    events: MeshEvents,
    fleet: Fleet,
    metrics: Metrics,
    options: Options,
    queues: WriteQueues,
    term: TermState,
}

/// What this replica knows and has yet to do since it began to lead.
struct TermState {
    /// None until something was resolved.
    resolver: Option<Resolver>,
    /// Statuses that may differ.
    statuses: DueWrites<Owner, Vec<Owned>>,
    /// Generated objects that may differ.
    generated: DueWrites<Owner, Generation>,
    /// When the API server last forbade us to write them.
    forbidden: Option<Instant>,
    /// What owners are to say of those they own, by the name that the shipped operator has for these.
    children: BTreeMap<Owner, BTreeMap<String, i64>>,
    absences: Absences,
}

impl TermState {
    fn new(queues: &WriteQueues) -> Self {
        Self {
            resolver: None,
            statuses: queues.queue("mesh statuses", Pace::VIEW),
            generated: queues.queue("mesh generated", Pace::URGENT),
            forbidden: None,
            children: BTreeMap::new(),
            absences: Absences::default(),
        }
    }
}

/// How often generated objects are retried while the API server forbids them.
const FORBIDDEN_RETRY: Duration = Duration::from_mins(1);

impl Reconciler for Mesh {
    fn begin(&mut self, term: &Term) {
        self.term = TermState::new(&self.queues);
        self.metrics.forget();
        self.fleet.begin(term);
    }

    fn end(&mut self) {
        self.fleet.end();
        self.term = TermState::new(&self.queues);
    }

    async fn reconcile(&mut self) -> Next {
        let now = Instant::now();
        let Self { cache, writer, events, fleet, metrics, options, queues: _, term } = self;
        let TermState { resolver, statuses, generated, forbidden, children, absences } = term;
        // observe, validate, plan (no client; cannot fail): a bad object steps aside, what cannot be met is in its verdict
        let (resolver, mut touched, pods) = follow(resolver, cache, &options.settings, events);
        for report in fleet.reports() {
            events.report(cache, &report);
            touched.objects.extend(report.about);
            if let Some(facts) = report.facts {
                join(&mut touched, resolver.change(Change::Proxy(report.pod, Some(facts))));
            }
        }
        let absence_due = absences.follow(fleet, now, |pod, presence| events.presence(cache, pod, presence));
        metrics.thought(now.elapsed());
        // act: proxies are configured by tasks of their own, which nobody waits for
        let mut joined = BTreeSet::new();
        for pod in pods {
            match fleet.follow(&pod, cache, resolver) {
                MemberChange::New => drop(joined.insert(pod)),
                MemberChange::Gone if resolver.world().proxies.contains_key(&pod) => {
                    join(&mut touched, resolver.change(Change::Proxy(pod, None)));
                }
                MemberChange::Known | MemberChange::Gone => {}
            }
        }
        for (pod, names) in std::mem::take(&mut touched.pods).into_iter().filter(|(pod, _)| !joined.contains(pod)) {
            let config = resolver.desired_of(&pod, &names);
            fleet.configure(&pod, names, &config, known_facts(resolver, &pod));
        }
        for pod in joined {
            let config = resolver.desired(&pod);
            fleet.configure(&pod, config.keys().collect(), &config, known_facts(resolver, &pod));
        }
        // act (client): generated objects
        generated.extend(std::mem::take(&mut touched.generated));
        let retry_at = forbidden.map(|since: Instant| since + FORBIDDEN_RETRY).filter(|at| *at > now);
        let generating = Generating { writer, events, cache, resolver };
        let ended = generated.pass(|owner, _| retry_at.map_or_else(|| generating.prepare(owner), Prepared::At)).await;
        if ended.iter().any(|(_, result)| result.as_ref().is_err_and(Error::is_forbidden)) {
            *forbidden = Some(now);
            join(&mut touched, resolver.change(Change::WritesGenerated(false)));
        } else if ended.iter().any(|(_, result)| result.is_ok()) {
            *forbidden = None;
            join(&mut touched, resolver.change(Change::WritesGenerated(true)));
        }
        metrics.count(&fleet.count(), resolver.generated_count());
        // status (client): what the proxies answered, as far as they have
        statuses.extend(touched.objects);
        let patience = options.patience;
        let reporting = Reporting { writer, events, metrics, cache, resolver, fleet, children, patience };
        let ended = statuses.pass(|owner, since| reporting.prepare(owner, since)).await;
        for Owned { owner, child, generation } in ended.into_iter().filter_map(|(_, owned)| owned.ok()).flatten() {
            if children.entry(owner.clone()).or_default().insert(child, generation) != Some(generation) {
                statuses.add(owner);
            }
        }
        Next::at_earliest([absence_due, generated.next_due(), statuses.next_due()])
    }
}
